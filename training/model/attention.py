"""Attention over a `Layout`, in which paths share tokens, without a [tokens, tokens] mask.

Attention goes segment by segment. It is registered with transformers and used only inside `hidden_states`. On CUDA one
fused call takes its place: FlexAttention (Dong et al. 2024, arXiv 2412.05496). Segments are numbered depth first, so
that those behind a segment are an interval of numbers: what a token sees takes two numbers a token, and blocks of 128
by 128 in which none is seen are never computed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from ...agents.policy import Policy
from ..data.layout import BLOCK, ROWS, Layout, layout_of, padding
from .lora_linear import one_step_linears

NAME = "turngym-segments"
UNSUPPORTED = ("softcap", "s_aux", "position_bias")  # arguments of other than plain attention


def hidden_states(
    model: Any,
    layout: Layout,
    device: torch.device,
    *,
    checkpointing: bool = False,
    compiled: bool = False,
    fused: bool | None = None,
) -> Float[Tensor, "u d"]:
    """Return the last hidden states of a causal LM of `transformers` on the tokens of `layout`.

    With `checkpointing` of each layer its input alone is kept, and the layer computed again in the backward pass;
    `compiled` runs the layers through `torch.compile`; `fused` attends by FlexAttention, as a rule on CUDA. Raises
    ValueError where the model's attention has a window, soft caps, sinks or biases.
    """
    tokens, positions = layout.tokens, layout.positions
    fused = device.type == "cuda" if fused is None else fused
    given: dict[str, Any]
    if fused:
        tokens, positions = (pad(part, (0, padding(layout))) for part in (tokens, positions))
        given = {"blocks": block_mask(layout, device)}
    else:
        given = {"layout": layout, "band": _band(layout, model.dtype, device)}
    attend = _by_blocks if fused else _untraced() if compiled else _by_segments
    inside = partial(_attending, model, attend, compiled)
    with inside(), _checkpointing(model, inside) if checkpointing else nullcontext():
        hidden: Tensor = model.base_model(
            input_ids=tokens[None].to(device),
            position_ids=positions[None].to(device),
            use_cache=False,
            **given,
        ).last_hidden_state
    return hidden[0, : len(layout.tokens)]


@torch.no_grad()
def distance_from_model(policy: Policy) -> float:
    """Return how far the learner's logits are from those of the model's own forward pass.

    Two paths share their beginning. The unit is the change of the logits by another beginning.
    """
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(0, policy.vocabulary, (3, 24)))
    first, second, other = (
        ids[0],
        torch.cat([ids[0, :12], ids[1, :12]]),
        torch.cat([ids[2, :12], ids[1, :12]]),
    )
    names = [torch.arange(24), torch.cat([torch.arange(12), torch.arange(24, 36)])]
    layout = layout_of([first, second], names)
    hidden = hidden_states(policy.base, layout, policy.device)[layout.places[1][-1]]
    logits = policy.base.get_output_embeddings()(hidden).float()
    expected, elsewhere = (
        policy.base(input_ids=path[None].to(policy.device), use_cache=False).logits[0, -1].float()
        for path in (second, other)
    )
    return float((logits - expected).abs().max() / (elsewhere - expected).abs().max())


@contextmanager
def _attending(model: Any, attend: Callable[..., Any], compiled: bool) -> Iterator[None]:
    """Inside, `model` attends by `attend`, and its layers are compiled ones if that is asked for."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    before, layers = model.config._attn_implementation, _layers(model) if compiled else []
    model.config._attn_implementation = NAME
    for layer in layers:
        layer.compile()
    try:
        with nullcontext() if compiled else one_step_linears(model):
            yield
    finally:
        model.config._attn_implementation = before
        for layer in layers:
            layer._compiled_call_impl = None


@contextmanager
def _checkpointing(
    model: Any, inside: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Inside, the layers of `model` are checkpointed; they are computed again, long after this, `inside` too."""

    how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    again, layers = (
        partial(checkpoint, **how, context_fn=lambda: (nullcontext(), inside())),
        _layers(model),
    )
    for layer in layers:
        # Without `train()`: what is inside the layer goes on without dropout.
        layer.gradient_checkpointing, layer._gradient_checkpointing_func, layer.training = (
            True,
            again,
            True,
        )
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


def _layers(model: Any) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [
        module
        for module in model.base_model.modules()
        if isinstance(module, GradientCheckpointingLayer)
    ]


# Compiled layers call `_by_segments` and do not look into it: no two layouts are alike.
_untraced: Callable[[], Any] = cache(lambda: torch.compiler.disable(_by_segments))  # type: ignore[no-untyped-call]
_compiled: Callable[[], Any] = cache(lambda: torch.compile(flex_attention))


def _band(layout: Layout, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n w"]:
    """Return the mask of which those of all segments are parts: 0 where column <= w - n + row, else -inf."""
    behind = [layout.sizes[chain[-1]] for chain in layout.chains if len(chain) > 1]
    n = max(behind, default=0)
    depth = max(sum(layout.sizes[i] for i in chain) for chain in layout.chains)
    return torch.full((n, depth + n), -inf, dtype=dtype, device=device).triu(depth + 1)


def _by_segments(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    layout: Layout,
    band: Tensor,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return `[1, u, heads, d]` of queries `[1, heads, u, d]` and keys and values `[1, kv_heads, u, d]`."""
    _refuse(module, options)
    queries, keys, values = (
        torch.split(part, list(layout.sizes), 2) for part in (query, key, value)
    )
    parts = []
    for own, chain in zip(queries, layout.chains):
        seen, carried = (torch.cat([part[i] for i in chain], 2) for part in (keys, values))
        part = scaled_dot_product_attention(
            own,
            seen,
            carried,
            attn_mask=_mask(band, own.shape[2], seen.shape[2]) if len(chain) > 1 else None,
            is_causal=len(chain) == 1,
            scale=options.get("scaling"),
            enable_gqa=key.shape[1] != query.shape[1],
        )
        parts.append(part.transpose(1, 2))
    return torch.cat(parts, 1), None


def _by_blocks(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    blocks: BlockMask,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return what `_by_segments` returns, of tokens that are padded to whole blocks; PyTorch has no gradient on CPU."""
    _refuse(module, options)
    # Within a compiled layer it is compiled with the rest; alone it would compute all scores unless compiled.
    fused: Any = flex_attention if torch.compiler.is_compiling() else _compiled()
    shared, scale = key.shape[1] != query.shape[1], options.get("scaling")
    out: Tensor = fused(query, key, value, block_mask=blocks, scale=scale, enable_gqa=shared)
    return out.transpose(1, 2), None


def _refuse(module: Any, options: Mapping[str, Any]) -> None:
    """Raise ValueError if a layer attends in another way: the last line behind `agents.architecture`."""
    unsupported = [name for name in UNSUPPORTED if options.get(name) is not None]
    sliding_window = options.get("sliding_window")
    if sliding_window is not None and sliding_window < module.config.max_position_embeddings:
        unsupported.append("sliding_window")
    if unsupported:
        raise ValueError(
            f"the model's attention has {unsupported[0]}, which the learner does not compute; use another model"
        )


def _mask(band: Tensor, size: int, depth: int) -> Tensor:
    """Return the part of `band` for `size` queries, the last ones of `depth` keys."""
    start = band.shape[1] - band.shape[0] - (depth - size)
    return band[:size, start : start + depth]


def block_mask(layout: Layout, device: torch.device) -> BlockMask:
    """Return what each token of a layout, padded to whole blocks, sees; padding sees and is seen by padding alone."""
    sizes, chains = layout.sizes, layout.chains
    if spare := padding(layout):
        sizes, chains = (*sizes, spare), (*chains, (len(chains),))
    # Of each segment its number, depth first, and the first number behind those of the segments that see it.
    number, within = np.empty(len(chains), np.int32), np.ones(len(chains), np.int32)
    number[sorted(range(len(chains)), key=chains.__getitem__)] = np.arange(len(chains))
    for segment in reversed(range(len(chains))):  # a segment lies behind all that it sees
        if len(chains[segment]) > 1:
            within[chains[segment][-2]] += within[segment]
    ends = (number, number + within)
    enter, leave = (torch.from_numpy(np.repeat(part, sizes)).to(device) for part in ends)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (enter[key] <= enter[query]) & (enter[query] < leave[key])

    place = torch.arange(len(enter), device=device)
    # Never all pairs at once.
    rows = (sees(place, place, some[:, None], place) for some in torch.split(place, ROWS * BLOCK))
    pairs = torch.cat([row.view(-1, BLOCK, len(place) // BLOCK, BLOCK).sum((1, 3)) for row in rows])
    whole = pairs == BLOCK * BLOCK
    (some, which), (full, which_full) = _ordered((pairs > 0) & ~whole), _ordered(whole)
    return BlockMask.from_kv_blocks(some, which, full, which_full, BLOCK_SIZE=BLOCK, mask_mod=sees)


def _ordered(blocks: Bool[Tensor, "b b"]) -> tuple[Int[Tensor, "1 1 b"], Int[Tensor, "1 1 b b"]]:
    """Return how many blocks of keys each block of queries has, and which, first."""
    which = torch.argsort(blocks.int(), dim=1, descending=True, stable=True)
    return blocks.sum(1, dtype=torch.int32)[None, None], which.int()[None, None]
