"""Log-probability and entropy of drawn tokens, in chunks: the logits of all tokens never exist at once.

`logp` is at each token's own temperature, untruncated; `entropy` is of the full vocabulary at temperature 1. Both carry
gradient to the hidden states and to the head's own adapter.

A frozen linear head takes one pass, `OnePass`, which leaves the backward pass nothing to compute. With logits
z = W h + b, p = softmax(z), q = softmax(z / T) and y the drawn token,

    d logp / dh = (W_y - sum_v q_v W_v) / T = ((1 - q_y) W_y - sum_{v != y} q_v W_v) / T
    d H / dh = -sum_v p_v (log p_v + H) W_v = -sum_v p_v (z_v - mean) W_v    where mean = sum_v p_v z_v

since log p_v + H = z_v - mean. All sums run over tiles of the vocabulary relative to the largest logit so far, as those
of online softmax do (Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3), also the sum of e^z z: raising the
largest by r turns it into e^(-r) (sum of e^z z - r sum of e^z). Those over W leave the drawn token out: in half
precision the slope of a nearly certain token would otherwise be a difference of nearly equal numbers.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from .lora_linear import one_step_linears

CHUNK_ELEMENTS = 1 << 24  # logits a chunk that is computed again: 64 MiB in float32
# Of logits, drawn tokens, and what it said of them at the start of the update: None where that is now.
Functional = Callable[
    [Float[Tensor, "c v"], Int[Tensor, "c"], Tensor | None], Float[Tensor, "c ..."]
]
ROWS, TILE = 512, 1024  # logits that exist at once: as many as a core's own cache holds
ROWS_CUDA, TILE_CUDA = 2048, 4096  # with more, a GPU has fewer kernels to start
MARGIN = 8.0  # nats; sums relative to what is this much below the largest logit lose nothing, and need no change


def token_stats(
    hidden: Float[Tensor, "s d"],
    head: Callable[[Tensor], Tensor],
    token: Int[Tensor, "s"],
    temperature: Float[Tensor, "s"],
    vocabulary: int,
    functionals: Mapping[str, Functional] = MappingProxyType({}),
    entropy_grad: bool = True,
    before: Mapping[str, Float[Tensor, "s ..."]] = MappingProxyType({}),
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"], dict[str, Float[Tensor, "s ..."]]]:
    """Return `(logp, entropy, extras)` of `token` given the hidden state that predicts it; the first two in nats.

    `extras` are what `functionals` say of the logits at temperature 1, by their names; `before` has what they said at
    the start of the update. Without `entropy_grad` the entropy carries no gradient. A frozen `nn.Linear`, be it below
    an adapter that is switched off, is passed once; of any other head, and where there are functionals, a chunk's
    logits are computed again in the backward pass.
    """
    plain = None if functionals else _plain(head)
    if plain is not None:
        slopes = 1 + entropy_grad if torch.is_grad_enabled() and hidden.requires_grad else 0
        found = OnePass.apply(hidden, plain.weight, plain.bias, token, temperature, slopes)  # type: ignore[no-untyped-call]
        logp, entropy = (value.float() for value in found)
        return logp, entropy, {}
    size = max(CHUNK_ELEMENTS // vocabulary, 1)
    parts = []
    for start in range(0, max(len(token), 1), size):
        part = slice(start, start + size)
        known = [before[name][part] if name in before else None for name in functionals]
        inputs = (
            hidden[part],
            head,
            token[part],
            temperature[part],
            tuple(zip(functionals.values(), known)),
        )
        again = torch.is_grad_enabled() and len(token) > size
        parts.append(checkpoint(_stats, *inputs, use_reentrant=False) if again else _stats(*inputs))
    logp, entropy, *extras = (torch.cat(column) for column in zip(*parts))
    return logp, entropy if entropy_grad else entropy.detach(), dict(zip(functionals, extras))


def _stats(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    token: Tensor,
    temperature: Tensor,
    functionals: tuple[tuple[Functional, Tensor | None], ...],
) -> tuple[Tensor, ...]:
    with (
        one_step_linears(head) if isinstance(head, nn.Module) else nullcontext()
    ):  # also where it is computed again
        logits = head(hidden).float()
    plain = torch.log_softmax(logits, -1)
    entropy = -(plain.exp() * plain).sum(-1)
    tempered = (
        plain
        if bool((temperature == 1).all())
        else torch.log_softmax(logits / temperature[:, None], -1)
    )
    logp = tempered.gather(-1, token[:, None])[:, 0]
    return logp, entropy, *(functional(logits, token, known) for functional, known in functionals)


def _plain(head: Any) -> nn.Linear | None:
    """Return the frozen linear layer that is all `head` computes, if it is that."""
    if not isinstance(head, nn.Module):
        return None
    base = getattr(head, "base_layer", head)  # below peft's wrapper
    if base is not head and (head.merged or not head.disable_adapters):
        return None
    if type(base) is not nn.Linear or any(
        parameter.requires_grad for parameter in base.parameters()
    ):
        return None
    return base


class OnePass(torch.autograd.Function):
    """`(logp, entropy)` as `token_stats` has them, with gradient through none, the first or both (`slopes` 0, 1, 2)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "s d"],
        weight: Float[Tensor, "v d"],
        bias: Float[Tensor, "v"] | None,
        token: Int[Tensor, "s"],
        temperature: Float[Tensor, "s"],
        slopes: int,
    ) -> tuple[Tensor, Tensor]:
        """Compute both in float32 (float64 for float64), and keep `slopes` vectors of `d` numbers a row."""
        temperature = temperature.to(torch.promote_types(hidden.dtype, torch.float32))
        logp, entropy = torch.empty_like(temperature), torch.empty_like(temperature)
        kept = hidden.new_empty(slopes, *hidden.shape)
        most, tile = (ROWS_CUDA, TILE_CUDA) if hidden.is_cuda else (ROWS, TILE)
        size = -(
            -len(token) // max(-(-len(token) // most), 1)
        )  # chunks of one size, not a small one at the end
        tiles = _Tiles(weight, bias, size, tile, slopes, bool((temperature == 1).all()))
        for start in range(0, len(token), size or 1):
            part = slice(start, start + size)
            logp[part], entropy[part], *along = tiles.run(
                hidden[part], token[part], temperature[part, None]
            )
            for into, slope in zip(kept, along, strict=True):
                into[part] = slope
        ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        if slopes < 2:
            ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        parts = [
            (grad[:, None], slope)
            for grad, slope in zip(grads, ctx.saved_tensors)
            if grad is not None
        ]
        if not parts:
            return (None,) * 6
        total = parts[0][0] * parts[0][1]
        for grad, slope in parts[1:]:
            total += grad * slope
        return total.to(parts[0][1].dtype), *(None,) * 5


class _Sums:
    """What has been summed over the tiles so far of some rows, relative to `top`: about each row's largest logit.

    `total` of e^z, `tilted` of e^z z, `tempered` of e^(z/T), each [rows, 1]; `along` of W weighed, [kinds, rows, d].
    """

    def __init__(self, hidden: Tensor, temperature: Tensor, kinds: int) -> None:
        self.temperature = temperature
        self.top = torch.full_like(
            temperature, torch.finfo(temperature.dtype).min
        )  # finite: below, it is multiplied
        self.drawn, self.total, self.tilted, self.tempered = (
            torch.zeros_like(temperature) for _ in range(4)
        )
        self.along = temperature.new_zeros(kinds, *hidden.shape)

    def raise_top(self, top: Tensor) -> None:
        """Make everything relative to `top` where that is well above what it is relative to."""
        top = torch.where(top > self.top + MARGIN, top, self.top)
        if not top.is_cuda and torch.equal(
            top, self.top
        ):  # as after most tiles; a GPU does not wait for the answer
            return
        fall = self.top - top
        shrink, shrink_tempered = fall.exp(), (fall / self.temperature).exp()
        self.top = top
        self.tilted = shrink * (self.tilted + fall * self.total)
        self.total, self.tempered = shrink * self.total, shrink_tempered * self.tempered
        if len(self.along) > 1:
            self.along[1].addcmul_(fall, self.along[0])
        if len(self.along):
            self.along *= torch.stack([shrink, shrink, shrink_tempered])[-len(self.along) :]

    def done(self, weight: Tensor, token: Tensor, slopes: int) -> tuple[Tensor, ...]:
        """Return logp and entropy, [rows], and as many of their slopes, [rows, d]."""
        drawn, mean = self.drawn - self.top, self.tilted / self.total
        logp = drawn / self.temperature - self.tempered.log()
        values = (logp[:, 0], (self.total.log() - mean)[:, 0])
        if not slopes:
            return values
        own = weight[token].to(logp.dtype)
        others = self.along[2 if len(self.along) > 2 else 0] / self.tempered
        slope = (-logp.expm1() * own - others) / self.temperature
        if slopes == 1:
            return *values, slope
        others = (self.along[1] - mean * self.along[0]) / self.total
        return *values, slope, -(others + drawn.exp() / self.total * (drawn - mean) * own)


class _Tiles:
    """A head, and room for the logits of some rows of hidden states in one tile of its vocabulary.

    `kinds` of factors weigh the rows of W: e^z (of T where that is all), e^z z, and e^(z/T) unless all T are 1.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, rows: int, tile: int, slopes: int, plain: bool
    ) -> None:
        self.weight, self.bias, self.tile, self.slopes, self.plain = (
            weight,
            bias,
            tile,
            slopes,
            plain,
        )
        self.kinds = slopes if plain or slopes < 2 else 3
        exact, room = (
            torch.promote_types(weight.dtype, torch.float32),
            rows * min(tile, len(weight)),
        )
        self.logits = weight.new_empty(room, dtype=exact)
        self.factors = weight.new_empty(max(self.kinds, 1) * room, dtype=exact)
        self.half = None if exact == weight.dtype else weight.new_empty(len(self.factors))

    def run(self, hidden: Tensor, token: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        sums = _Sums(hidden, temperature, self.kinds)
        for start in range(0, len(self.weight), self.tile):
            tile = slice(start, min(start + self.tile, len(self.weight)))
            weight = self.weight[tile]
            size = len(hidden) * len(weight)
            logits = self.logits[:size].view(len(hidden), -1)
            if self.half is None:
                torch.mm(hidden, weight.t(), out=logits)
            else:  # rounded as the head itself rounds them
                logits.copy_(
                    torch.mm(hidden, weight.t(), out=self.half[:size].view(len(hidden), -1))
                )
            if self.bias is not None:
                logits.add_(self.bias[tile])
            self._add(sums, logits, token[:, None] - start, weight)
        return sums.done(self.weight, token, self.slopes)

    def _add(self, sums: _Sums, logits: Tensor, local: Tensor, weight: Tensor) -> None:
        """Add a tile; the drawn tokens are at `local`, unless that is outside."""
        inside, local = (local >= 0) & (local < len(weight)), local.clamp(0, len(weight) - 1)
        sums.drawn = torch.where(inside, logits.gather(1, local), sums.drawn)
        sums.raise_top(logits.amax(1, keepdim=True))
        logits -= sums.top
        count = max(self.kinds, 1)
        factors = self.factors[: count * logits.numel()].view(count, *logits.shape)
        total = torch.exp(logits, out=factors[0]).sum(1, keepdim=True)
        tilted = factors[1] if self.kinds > 1 else logits if self.plain else factors[0]
        sums.tilted += torch.mul(factors[0], logits, out=tilted).sum(1, keepdim=True)
        sums.total += total
        if not self.plain:
            total = torch.div(logits, sums.temperature, out=factors[-1]).exp_().sum(1, keepdim=True)
        sums.tempered += total
        if self.kinds:
            drawn = local.expand(count, *local.shape)
            factors.scatter_(2, drawn, torch.where(inside, 0, factors.gather(2, drawn)))
            along, factors = sums.along.view(-1, weight.shape[1]), factors.view(-1, len(weight))
            # The rows of W weighed by `factors` are added in float32 also where W is in half precision.
            half = (
                None
                if self.half is None
                else self.half[: factors.numel()].view(factors.shape).copy_(factors)
            )
            if half is None:
                along.addmm_(factors, weight)
            elif along.is_cuda:
                torch.addmm(along, half, weight, out_dtype=along.dtype, out=along)
            else:
                along += half @ weight
