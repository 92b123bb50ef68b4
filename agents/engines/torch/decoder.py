"""Forward passes written out for the usual architectures, over packed weights and a cache of one tensor.

The weights are a policy's own with its LoRA update added, laid out so that a pass has few products: queries, keys and
values are one matrix, gate and up another, and the norm in front of a matrix is part of it. Rows of queries and keys
are in pairs, as the rotation of a position takes them. The policy's own weights stay as they are, also where head and
embedding are one matrix. On a CPU that has oneDNN a matrix is packed for the processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from .runner import WINDOW, Part, Runner

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
PACKED_ROWS = 64  # for which a packed matrix is laid out
_ROPES = ("default", "linear", "llama3", "yarn")
BLOCK = WINDOW  # positions that a decode reads at a time
GRAIN = 32_767  # numbers that torch never cuts among threads


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
        self.packed = weight.device.type == "cpu" and weight.dtype == torch.float32 and packs()
        self._weight = None  # the former one is freed first
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS) if self.packed else weight
        )
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
            raise ValueError(
                f"the decoder does not compute {found}; it computes {', '.join(FAMILIES)}"
            )
        self.config = config = model.config
        self._model = model
        self.heads = int(config.num_attention_heads)
        self.shared = int(getattr(config, "num_key_value_heads", None) or self.heads)
        self.size = int(getattr(config, "head_dim", None) or config.hidden_size // self.heads)
        self.eps = float(config.rms_norm_eps)
        self.embedding: Tensor = model.get_input_embeddings().weight
        window = getattr(config, "sliding_window", None)
        kinds = (
            getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
        )
        windows = [window if kind == "sliding_attention" else None for kind in kinds]
        self.layers = [
            Layer(Matrix(), Matrix(), Matrix(), Matrix(), self._norms(layer), own)
            for layer, own in zip(model.model.layers, windows, strict=True)
        ]
        self.head = Matrix()
        self.load()

    @torch.no_grad()
    def load(self) -> None:
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
            layer.rise.load(
                *_merged([inner.gate_proj, inner.up_proj], given.post_attention_layernorm)
            )
            layer.fall.load(*_merged([inner.down_proj]))
        self.head.load(*_merged([self._model.get_output_embeddings()], self._model.model.norm))
        self.packed = self.head.packed

    def rotations(self, positions: int) -> Tensor:
        """Return the rotation of each pair at positions 0 to `positions`, complex64 `[positions, d / 2]`."""
        where = torch.arange(positions, device=self.embedding.device)[None]
        cos, sin = self._model.model.rotary_emb(torch.zeros(1, device=where.device), where)
        return torch.complex(cos[0, :, : self.size // 2], sin[0, :, : self.size // 2])

    def _norms(self, layer: Any) -> Tensor | None:
        if not hasattr(layer.self_attn, "q_norm"):
            return None
        order = torch.arange(self.size).view(2, -1).T.flatten()
        query, key = (
            norm.weight.detach()[order] for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm)
        )
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
    whole = (
        weights[0] if fresh else torch.cat(weights)
    )  # never the model's own, which stay as they are
    if norm is not None:
        whole *= norm.weight.detach().float()
    kind = plain.weight.dtype
    some = next((bias for bias in biases if bias is not None), None)
    if some is None:
        return whole.to(kind), None
    parts = [
        torch.zeros(len(w), device=w.device) if b is None else b.detach().float()
        for w, b in zip(weights, biases)
    ]
    return whole.to(kind), torch.cat(parts).to(kind)


class Decoder(Runner):
    """Runs a policy's `Weights`. Several of them may share the weights; each has a cache of its own.

    On a CPU a fork reads the whole blocks of what it begins with where they are, in the slot that it was forked from;
    it has a copy of its own only from the block in which they differ, or once that slot is written anew.
    """

    def __init__(self, weights: Weights, device: torch.device) -> None:
        super().__init__(device)
        self.weights = weights
        self.rows = 2 if weights.packed else 8
        self._turns = weights.rotations(0)

    def refresh(self) -> None:
        self.weights.load()

    def forget(self) -> None:
        super().forget()
        self._holders: dict[int, list[int]] = {}  # of a fork, the slots that hold its first blocks

    def copy(self, source: int, targets: Sequence[int], length: int, start: int = 0) -> None:
        whole, held = length // BLOCK if self.weights.packed else 0, self._holders.get(source, [])
        if not targets:
            self._holders.pop(source, None)
        self._write_anew(targets)
        self._holders |= {target: [*held, *[source] * whole][:whole] for target in targets if whole}
        super().copy(held[whole] if whole < len(held) else source, targets, length, whole * BLOCK)

    def _begin(self, slots: Sequence[int], starts: Sequence[int], window: int) -> None:
        super()._begin(slots, starts, window)
        if anew := [slot for slot, start in zip(slots, starts) if not start]:
            self._write_anew(anew)

    @torch.inference_mode()
    def _write_anew(self, slots: Sequence[int]) -> None:
        """Let `slots` hold what is in them; forks that read there get copies."""
        for slot in slots:
            self._holders.pop(slot, None)
        forks = ((fork, *held) for fork, own in self._holders.items() for held in enumerate(own))
        if not (lent := [one for one in forks if one[2] in slots]):
            return
        fork, block, holder = self._tensor(np.array(lent).T)
        for keys, values in self._cache:
            for blocks in _blocks(keys, -1), _blocks(values, 2):
                blocks[fork, block] = blocks[holder, block]
        for reader, place, _ in lent:
            self._holders[reader][place] = reader

    def _part(
        self, slots: Sequence[int], starts: Sequence[int], tokens: NDArray[np.int64], window: int
    ) -> Part:
        part, n = super()._part(slots, starts, tokens, window), window // BLOCK
        if self._holders.keys().isdisjoint(slots):
            return part
        return replace(
            part,
            blocks=self._tensor(
                np.array([[*self._holders.get(s, []), *[s] * n][:n] for s in slots])
            ),
        )

    def _forward(self, parts: Sequence[Part], *, logits: bool) -> Tensor:
        weights = self.weights
        if len(self._turns) < self._width:
            self._turns = weights.rotations(self._width)
        x = weights.embedding.index_select(0, torch.cat([part.tokens.flatten() for part in parts]))
        turns = self._turns[torch.cat([part.positions.flatten() for part in parts])][:, None]
        attentions = [self._attention(part, single=weights.packed and logits) for part in parts]
        sizes = [part.tokens.numel() for part in parts]
        for number, layer in enumerate(weights.layers):
            heads = self._heads(layer, x, turns)
            cached = self._layer(number, weights.shared, weights.size, x.dtype)
            queries = []
            for part, attention, own in zip(parts, attentions, torch.split(heads, sizes)):
                shaped = own.view(*part.positions.shape, -1, weights.size)
                query, *new = torch.split(
                    shaped, [weights.heads, weights.shared, weights.shared], 2
                )
                attention.write(*cached, *new)
                queries.append(query)
            if not logits and layer is weights.layers[-1]:
                return x  # the rest would only go into logits
            read = [
                attention.read(query, *cached, layer.window)
                for attention, query in zip(attentions, queries)
            ]
            x = layer.output(torch.cat(read), x)
            x = layer.fall(_gated(layer.rise(self._norm(x))), x)
        return weights.head(self._norm(x.view(*parts[0].positions.shape, -1)[:, -1]))

    def _attention(self, part: Part, single: bool) -> "Several | Single":
        at, kind = part.positions[:, None, None], self.weights.embedding.dtype
        masks = {
            size: self._mask(at, part.window, kind, size)
            for size in {one.window for one in self.weights.layers}
        }
        return Single(self.weights, part, masks, self._width) if single else Several(part, masks)

    def _heads(self, layer: Layer, x: Tensor, turns: Tensor) -> Tensor:
        """Return queries, keys and values `[n, heads, d]` of tokens `x` `[n, width]`, each turned by its position."""
        w = self.weights
        heads = layer.attend(self._norm(x)).view(len(x), -1, w.size)
        turned = heads[:, : w.heads + w.shared]
        if layer.norms is not None:
            torch.mul(self._norm(turned), layer.norms, out=turned)
        rows = _uncut(turned)
        pairs = turned.view(*turned.shape[:2], -1, 2)
        for part, by in zip(torch.split(pairs, rows), torch.split(turns, rows)):
            if part.dtype == torch.float32:
                torch.view_as_complex(part).mul_(by)
            else:
                part.copy_(torch.view_as_real(torch.view_as_complex(part.float()) * by))
        return heads

    def _norm(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], None, self.weights.eps)


def _uncut(x: Tensor) -> int:
    """Return how many rows of `x` to compute at a time: of a row that torch cuts among threads, bits may differ."""
    return (
        max(GRAIN // x[0].numel(), 1)
        if x.device.type == "cpu" and torch.get_num_threads() > 1
        else len(x)
    )


def _gated(both: Tensor) -> Tensor:
    """Return `silu(gate) * up` `[n, inner]` of both `[n, 2 * inner]`."""
    inner = both.shape[1] // 2
    parts = [
        silu(part[:, :inner]).mul_(part[:, inner:])
        for part in torch.split(both, _uncut(both[:, :inner]))
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _blocks(cached: Tensor, positions: int) -> Tensor:
    """Return a view of what is cached `[slots, blocks, …]`, whose dimension `positions` is cut into blocks."""
    return torch.unflatten(cached, positions, (-1, BLOCK)).movedim(positions - (positions < 0), 1)


class Several:
    """Attention of queries `[r, q, heads, d]`: writes keys and values `[r, q, shared, d]`, then reads the window."""

    def __init__(self, part: Part, masks: dict[int | None, Tensor]) -> None:
        self.rows, self.window, self.blocks, self.masks = part.rows, part.window, part.blocks, masks
        self.index, self.positions = part.index[:, None], part.positions

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        keys[self.index, :, :, self.positions] = key
        values[self.index, :, self.positions] = value

    def read(self, query: Tensor, keys: Tensor, values: Tensor, size: int | None) -> Tensor:
        """Return `[r * q, heads * d]`; `size` is the layer's own window."""
        if self.blocks is None:
            keys, values = (
                keys[..., : self.window][self.rows],
                values[:, :, : self.window][self.rows],
            )
        else:
            block = torch.arange(self.blocks.shape[1], device=self.blocks.device)
            keys = _blocks(keys, -1)[self.blocks, block].movedim(1, -2).flatten(-2)
            values = _blocks(values, 2)[self.blocks, block].movedim(1, 2).flatten(2, 3)
        r, q, heads, d = query.shape
        shared = keys.shape[1]
        query = query.view(r, q, shared, -1, d).permute(0, 2, 3, 1, 4).reshape(r, shared, -1, d)
        scores = query @ keys
        scores.view(r, shared, -1, q, self.window).add_(self.masks[size])
        mixed = (scores.softmax(-1) @ values).view(r, shared, -1, q, d)
        return mixed.permute(0, 3, 1, 2, 4).reshape(r * q, heads * d)


class Single:
    """The same for one query in each of r slots, on a CPU: sums of bags of rows, at the memory's speed.

    Positions are in blocks, and no block behind a slot's own positions is read. A block's scores are the sum of rows of
    keys `[BLOCK]`, weighted by the query; the result is one of values `[d]`, weighted by all scores of the slot.
    """

    def __init__(
        self, weights: Weights, part: Part, masks: dict[int | None, Tensor], wide: int
    ) -> None:
        at, shared, d = part.positions[:, 0], weights.shared, weights.size
        slot_heads = part.index[:, None] * shared + torch.arange(shared)
        self.key_at = (
            (slot_heads[:, :, None] * d + torch.arange(d)) * wide + at[:, None, None]
        ).flatten()
        self.value_at = (slot_heads * wide + at[:, None]).flatten()
        # Blocks by row, head and place
        counts = (at // BLOCK + 1).repeat_interleave(weights.heads)
        self.owner = torch.arange(len(counts)).repeat_interleave(counts)
        first = counts.cumsum(0) - counts
        block = torch.arange(len(self.owner)) - first[self.owner]
        row = self.owner // weights.heads
        holders = part.index[row] if part.blocks is None else part.blocks[row, block]
        table = (holders * shared + self.owner % weights.heads // (weights.heads // shared))[
            :, None
        ]
        self.key_rows = ((table * d + torch.arange(d)) * (wide // BLOCK) + block[:, None]).flatten()
        self.key_starts = torch.arange(len(self.owner)) * d
        inside = (block[:, None] * BLOCK + torch.arange(BLOCK)).minimum(at[row, None])
        self.value_rows, self.value_starts = (table * wide + inside).flatten(), first * BLOCK
        blocks = part.window // BLOCK
        self.place = self.owner * blocks + block
        place = row * blocks + block
        self.masks = {size: mask.view(-1, BLOCK)[place] for size, mask in masks.items()}
        self.scores = torch.full((len(counts) * blocks, BLOCK), torch.finfo(torch.float32).min)

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        keys.view(-1).scatter_(
            0, self.key_at, key.flatten()
        )  # half to two thirds of the time of brackets, as below
        values.view(-1, values.shape[-1]).index_copy_(
            0, self.value_at, value.reshape(-1, values.shape[-1])
        )

    def read(self, query: Tensor, keys: Tensor, values: Tensor, size: int | None) -> Tensor:
        """Return `[r, heads * d]`."""
        d = query.shape[-1]
        queries = query.reshape(-1, d).index_select(0, self.owner)
        bags = self._bags(keys.view(-1, BLOCK), self.key_rows, self.key_starts, queries)
        self.scores.index_copy_(0, self.place, bags.add_(self.masks[size]))
        mixed = self.scores.view(query.shape[0] * query.shape[2], -1).softmax(-1)
        weights = mixed.view(-1, BLOCK).index_select(
            0, self.place
        )  # a quarter of the time of brackets
        return self._bags(values.view(-1, d), self.value_rows, self.value_starts, weights).view(
            len(query), -1
        )

    @staticmethod
    def _bags(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        return torch.embedding_bag(table, rows, starts, per_sample_weights=weights.view(-1))[0]
