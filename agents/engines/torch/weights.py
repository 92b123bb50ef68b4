"""The matrices of a rollout: a policy's weights with its LoRA update added, laid out so that a pass has few products.

Queries, keys and values are one matrix, gate and up another, and the norm in front of a matrix is part of it. Rows of
queries and keys are in pairs, as the rotation of a position takes them. The policy's own weights stay as they are, also
where head and embedding are one matrix. On a CPU that has oneDNN a matrix is packed for the processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
PACKED_ROWS = 64  # for which a packed matrix is laid out
_ROPES = ("default", "linear", "llama3", "yarn")


def unusual(model: Any) -> str:
    """Return what of a model's architecture the engine's own decoder does not compute; "" where it computes all."""
    config = model.config
    if config.model_type not in FAMILIES:
        return f"model_type {config.model_type}"
    if config.hidden_act != "silu":
        return f"hidden_act {config.hidden_act}"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") not in _ROPES or rope.get("partial_rotary_factor", 1) != 1:
        return f"rope {rope}"
    return ""


class Matrix:
    """A matrix `[n, d]` with a bias, which `load` replaces."""

    def __init__(self) -> None:
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None
        self.packed = False

    def load(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take other numbers."""
        self.packed = weight.device.type == "cpu" and weight.dtype == torch.float32 and packs()
        self._weight = None  # the former one is freed first
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS) if self.packed else weight
        self._bias = bias

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the product with `x` `[r, d]`, plus the bias, plus `added` `[r, n]`."""
        if not self.packed:
            product = linear(x, self._weight, self._bias)  # type: ignore[arg-type]
            return product if added is None else product.add_(added)
        if added is None:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")  # type: ignore[no-any-return]
        return torch.ops.mkldnn._linear_pointwise(x, added, self._weight, self._bias, "add")  # type: ignore[no-any-return]


def packs() -> bool:
    """Return whether this torch packs matrices for the processor."""
    return bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


@dataclass(frozen=True)
class Layer:
    """One layer. `norms` `[heads, d]` are those of queries and keys, where the model has them; `window` is its own."""

    attend: Matrix  # to queries, keys and values
    output: Matrix
    rise: Matrix  # to gate and up
    fall: Matrix
    norms: Tensor | None
    window: int | None


class Weights:
    """All matrices of a causal LM of `transformers`. Raises ValueError where it is not one of the usual (`unusual`)."""

    def __init__(self, model: Any) -> None:
        if found := unusual(model):
            raise ValueError(f"the decoder does not compute {found}; it computes {', '.join(FAMILIES)}")
        self.config = config = model.config
        self._model = model
        self.heads = int(config.num_attention_heads)
        self.shared = int(getattr(config, "num_key_value_heads", None) or self.heads)
        self.size = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self.embedding: Tensor = model.get_input_embeddings().weight
        kinds = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None)
        if kinds is None:
            kinds = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
        windows = [window if kind == "sliding_attention" else None for kind in kinds]
        self.layers = [
            Layer(Matrix(), Matrix(), Matrix(), Matrix(), self._norms(layer), own)
            for layer, own in zip(model.model.layers, windows, strict=True)
        ]
        self.head = Matrix()
        self.load()

    @property
    def packed(self) -> bool:
        """Whether the matrices are packed for the processor."""
        return self.head.packed

    @torch.no_grad()
    def load(self) -> None:
        """Take the model's weights as they are now."""
        pair, order = self.heads + self.shared, torch.arange(self.size).view(2, -1).T.flatten()
        rows = torch.cat([order + self.size * head for head in range(pair)])
        for layer, given in zip(self.layers, self._model.model.layers):
            own, inner = given.self_attn, given.mlp
            weight, bias = _merged([own.q_proj, own.k_proj, own.v_proj], given.input_layernorm)
            scaled = self.size**-0.5 if layer.norms is None else 1.0
            for part in (weight, bias):
                if part is not None:
                    part[: len(rows)] = part[rows.to(part.device)]
                    part[: self.heads * self.size] *= scaled
            layer.attend.load(weight, bias)
            layer.output.load(*_merged([own.o_proj]))
            layer.rise.load(*_merged([inner.gate_proj, inner.up_proj], given.post_attention_layernorm))
            layer.fall.load(*_merged([inner.down_proj]))
        self.head.load(*_merged([self._model.get_output_embeddings()], self._model.model.norm))

    def rotations(self, positions: int) -> Tensor:
        """Return the rotation of each pair at positions 0 to `positions`, complex64 `[positions, d / 2]`."""
        where = torch.arange(positions, device=self.embedding.device)[None]
        cos, sin = self._model.model.rotary_emb(torch.zeros(1, device=where.device), where)
        return torch.complex(cos[0, :, : self.size // 2], sin[0, :, : self.size // 2])

    def _norms(self, layer: Any) -> Tensor | None:
        if not hasattr(layer.self_attn, "q_norm"):
            return None
        order = torch.arange(self.size).view(2, -1).T.flatten()
        query, key = (norm.weight.detach()[order] for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm))
        parts = [(query * self.size**-0.5).expand(self.heads, -1), key.expand(self.shared, -1)]
        return torch.cat(parts)


def _merged(modules: Sequence[Any], norm: Any = None) -> tuple[Tensor, Tensor | None]:
    """Return weight `[n, d]` and bias `[n]` of several layers as one, with the weights of the norm in front of them."""
    weights, biases = [], []
    for module in modules:
        plain = getattr(module, "base_layer", module)
        weight = plain.weight.detach().float()
        for name in getattr(module, "active_adapters", ()):
            up, down = (part[name].weight.float() for part in (module.lora_B, module.lora_A))
            weight = torch.addmm(weight, up, down, alpha=module.scaling[name])
        weights.append(weight)
        biases.append(plain.bias)
    fresh = len(weights) == 1 and weights[0].data_ptr() != plain.weight.data_ptr()
    whole = weights[0] if fresh else torch.cat(weights)  # never the model's own, which stay as they are
    if norm is not None:
        whole *= norm.weight.detach().float()
    kind = plain.weight.dtype
    some = next((bias for bias in biases if bias is not None), None)
    if some is None:
        return whole.to(kind), None
    parts = [torch.zeros(len(w), device=w.device) if b is None else b.detach().float() for w, b in zip(weights, biases)]
    return whole.to(kind), torch.cat(parts).to(kind)
