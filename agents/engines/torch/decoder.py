"""Forward passes written out for the usual architectures, over packed weights and a cache of one tensor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from .runner import Runner
from .weights import Layer, Weights


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

    def _forward(
        self, tokens: Tensor, positions: Tensor, rows: slice | Tensor, index: Tensor, window: int, *, logits: bool
    ) -> Tensor:
        weights = self.weights
        if len(self._turns) < self._width:
            self._turns = weights.rotations(self._width)
        single = weights.packed and logits
        if single and self._width <= 2 * window:
            window = self._width  # bags copy a table that is not whole
        x = weights.embedding[tokens.flatten()]
        turns = self._turns[positions.flatten()][:, None]
        masks = {size: self._mask(positions, window, size) for size in {layer.window for layer in weights.layers}}
        attention = (
            Single(weights, positions, window, self._width) if single else Several(positions, rows, index, window)
        )
        for number, layer in enumerate(weights.layers):
            heads = self._heads(layer, x, turns).view(*positions.shape, -1, weights.size)
            query, *new = torch.split(heads, [weights.heads, weights.shared, weights.shared], 2)
            cached = self._layer(number, weights.shared, weights.size, x.dtype)
            attention.write(*cached, *new)
            if not logits and layer is weights.layers[-1]:
                return x  # the rest would only go into logits
            x = layer.output(attention.read(query, *cached, masks[layer.window]), x)
            both = layer.rise(self._norm(x))
            inner = both.shape[1] // 2
            x = layer.fall(silu(both[:, :inner]).mul_(both[:, inner:]), x)
        return weights.head(self._norm(x.view(*positions.shape, -1)[:, -1]))

    def _heads(self, layer: Layer, x: Tensor, turns: Tensor) -> Tensor:
        """Return queries, keys and values `[n, heads, d]` of tokens `x` `[n, width]`, each turned by its position."""
        w = self.weights
        heads = layer.attend(self._norm(x)).view(len(x), -1, w.size)
        turned = heads[:, : w.heads + w.shared]
        pairs = (len(x), -1, w.size // 2, 2)
        if layer.norms is not None:
            torch.mul(self._norm(turned), layer.norms, out=turned)
        if turned.dtype == torch.float32:
            torch.view_as_complex(turned.view(pairs)).mul_(turns)
        else:
            turned.view(pairs).copy_(torch.view_as_real(torch.view_as_complex(turned.float().view(pairs)) * turns))
        return heads

    def _norm(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], None, self.weights.eps)

    def _mask(self, positions: Tensor, window: int, size: int | None) -> Tensor:
        """Return what is added to scores, `[r, 1, 1, q, window]`; `size` is the layer's own window (tokens)."""
        at, own = torch.arange(window, device=self.device), positions[:, None, None, :, None]
        unseen = at > own if size is None else (at > own) | (at <= own - size)
        kind = self.weights.embedding.dtype
        return torch.zeros(unseen.shape, dtype=kind, device=self.device).masked_fill_(unseen, torch.finfo(kind).min)


class Several:
    """Attention of queries `[r, q, heads, d]`: writes keys and values `[r, q, shared, d]`, then reads the window."""

    def __init__(self, positions: Tensor, rows: slice | Tensor, index: Tensor, window: int) -> None:
        self.positions, self.rows, self.index, self.window = positions, rows, index[:, None], window

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        """Put what is new where it belongs."""
        keys[self.index, :, :, self.positions] = key
        values[self.index, :, self.positions] = value

    def read(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return `[r * q, heads * d]`; `mask` `[r, 1, 1, q, window]` is added to scores."""
        keys, values = keys[..., : self.window][self.rows], values[:, :, : self.window][self.rows]
        r, q, heads, size = query.shape
        shared = keys.shape[1]
        query = query.view(r, q, shared, -1, size).permute(0, 2, 3, 1, 4).reshape(r, shared, -1, size)
        scores = query @ keys
        scores.view(r, shared, -1, q, self.window).add_(mask)
        mixed = (scores.softmax(-1) @ values).view(r, shared, -1, q, size)
        return mixed.permute(0, 3, 1, 2, 4).reshape(r * q, heads * size)


class Single:
    """The same for one query in each of the slots 0 to r, on a CPU: sums of bags of rows, at the memory's speed.

    A row's scores are the sum of rows of keys `[window]`, weighted by its query; the result is one of values `[d]`.
    """

    def __init__(self, weights: Weights, positions: Tensor, window: int, wide: int) -> None:
        r, shared, size = len(positions), weights.shared, weights.size
        self.window = window
        heads = torch.arange(r * weights.heads)[:, None]
        own = heads // (weights.heads // shared)  # key heads
        self.starts = heads[:, 0] * size, heads[:, 0] * window  # of bags
        self.key_rows = (own * size + torch.arange(size)).flatten()
        seen = torch.arange(window).minimum(positions).repeat_interleave(weights.heads, 0)
        self.value_rows = (own * wide + seen).flatten()
        self.key_at = positions.repeat_interleave(shared * size, 0)
        self.value_at = torch.arange(r * shared) * wide + positions.flatten().repeat_interleave(shared)

    def write(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> None:
        """Put what is new where it belongs."""
        keys.view(-1, keys.shape[-1]).scatter_(1, self.key_at, key.reshape(-1, 1))
        values.view(-1, values.shape[-1])[self.value_at] = value.reshape(-1, values.shape[-1])

    def read(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return `[r, heads * d]`."""
        scores = self._bag(keys.view(-1, keys.shape[-1])[:, : self.window], self.key_rows, self.starts[0], query)
        scores.view(len(query), -1, self.window).add_(mask.view(len(query), 1, -1))
        mixed = self._bag(values.view(-1, values.shape[-1]), self.value_rows, self.starts[1], scores.softmax(-1))
        return mixed.view(len(query), -1)

    @staticmethod
    def _bag(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        return torch.embedding_bag(table, rows, starts, per_sample_weights=weights.reshape(-1))[0]
