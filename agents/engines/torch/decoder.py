"""Forward passes written out for the usual architectures, over packed weights and a cache of one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from .runner import WINDOW, Part, Runner
from .weights import Layer, Weights

BLOCK = WINDOW  # positions that a decode reads at a time
GRAIN = 32_767  # numbers that torch never cuts among threads


class Decoder(Runner):
    """Runs a policy's `Weights`. Several of them may share the weights; each has a cache of its own."""

    def __init__(self, weights: Weights, device: torch.device) -> None:
        super().__init__(device)
        self.weights = weights
        self.rows = 2 if weights.packed else 8
        self._turns = weights.rotations(0)

    def refresh(self) -> None:
        """Take the weights as they are now."""
        self.weights.load()

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
                query, *new = torch.split(shaped, [weights.heads, weights.shared, weights.shared], 2)
                attention.write(*cached, *new)
                queries.append(query)
            if not logits and layer is weights.layers[-1]:
                return x  # the rest would only go into logits
            read = [attention.read(query, *cached, layer.window) for attention, query in zip(attentions, queries)]
            x = layer.output(torch.cat(read), x)
            x = layer.fall(_gated(layer.rise(self._norm(x))), x)
        return weights.head(self._norm(x.view(*parts[0].positions.shape, -1)[:, -1]))

    def _attention(self, part: Part, single: bool) -> Several | Single:
        at, kind = part.positions[:, None, None], self.weights.embedding.dtype
        masks = {size: self._mask(at, part.window, kind, size) for size in {one.window for one in self.weights.layers}}
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
    return max(GRAIN // x[0].numel(), 1) if x.device.type == "cpu" and torch.get_num_threads() > 1 else len(x)


def _gated(both: Tensor) -> Tensor:
    """Return `silu(gate) * up` `[n, inner]` of both `[n, 2 * inner]`."""
    inner = both.shape[1] // 2
    parts = [silu(part[:, :inner]).mul_(part[:, inner:]) for part in torch.split(both, _uncut(both[:, :inner]))]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Several:
    """Attention of queries `[r, q, heads, d]`: writes keys and values `[r, q, shared, d]`, then reads the window."""

    def __init__(self, part: Part, masks: dict[int | None, Tensor]) -> None:
        self.rows, self.window, self.masks = part.rows, part.window, masks
        self.index, self.positions = part.index[:, None], part.positions

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        """Put what is new where it belongs."""
        keys[self.index, :, :, self.positions] = key
        values[self.index, :, self.positions] = value

    def read(self, query: Tensor, keys: Tensor, values: Tensor, size: int | None) -> Tensor:
        """Return `[r * q, heads * d]`; `size` is the layer's own window."""
        keys, values = keys[..., : self.window][self.rows], values[:, :, : self.window][self.rows]
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

    def __init__(self, weights: Weights, part: Part, masks: dict[int | None, Tensor], wide: int) -> None:
        at, shared, d = part.positions[:, 0], weights.shared, weights.size
        slot_heads = part.index[:, None] * shared + torch.arange(shared)
        self.key_at = ((slot_heads[:, :, None] * d + torch.arange(d)) * wide + at[:, None, None]).flatten()
        self.value_at = (slot_heads * wide + at[:, None]).flatten()
        # Blocks by row, head and place
        counts = (at // BLOCK + 1).repeat_interleave(weights.heads)
        self.owner = torch.arange(len(counts)).repeat_interleave(counts)
        first = counts.cumsum(0) - counts
        block = torch.arange(len(self.owner)) - first[self.owner]
        table = slot_heads.repeat_interleave(weights.heads // shared, 1).flatten()[self.owner, None]
        self.key_rows = ((table * d + torch.arange(d)) * (wide // BLOCK) + block[:, None]).flatten()
        self.key_starts = torch.arange(len(self.owner)) * d
        inside = (block[:, None] * BLOCK + torch.arange(BLOCK)).minimum(at[self.owner // weights.heads, None])
        self.value_rows, self.value_starts = (table * wide + inside).flatten(), first * BLOCK
        blocks = part.window // BLOCK
        self.place = self.owner * blocks + block
        row = self.owner // weights.heads * blocks + block
        self.masks = {size: mask.view(-1, BLOCK)[row] for size, mask in masks.items()}
        self.scores = torch.full((len(counts) * blocks, BLOCK), torch.finfo(torch.float32).min)

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        """Put what is new where it belongs."""
        keys.view(-1).scatter_(0, self.key_at, key.flatten())  # half to two thirds of the time of brackets, as below
        values.view(-1, values.shape[-1]).index_copy_(0, self.value_at, value.reshape(-1, values.shape[-1]))

    def read(self, query: Tensor, keys: Tensor, values: Tensor, size: int | None) -> Tensor:
        """Return `[r, heads * d]`."""
        d = query.shape[-1]
        bags = self._bags(
            keys.view(-1, BLOCK), self.key_rows, self.key_starts, query.reshape(-1, d).index_select(0, self.owner)
        )
        self.scores.index_copy_(0, self.place, bags.add_(self.masks[size]))
        mixed = self.scores.view(query.shape[0] * query.shape[2], -1).softmax(-1)
        weights = mixed.view(-1, BLOCK).index_select(0, self.place)  # a quarter of the time of brackets
        return self._bags(values.view(-1, d), self.value_rows, self.value_starts, weights).view(len(query), -1)

    @staticmethod
    def _bags(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        return torch.embedding_bag(table, rows, starts, per_sample_weights=weights.view(-1))[0]
