"""Forward passes written out for the usual architectures, over packed weights and a cache of one tensor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from .runner import WINDOW, Runner, ceil_to
from .weights import Layer, Weights


class Decoder(Runner):
    """Runs a policy's `Weights`. Several of them may share the weights; each has a cache of its own."""

    def __init__(self, weights: Weights, device: torch.device) -> None:
        super().__init__(device)
        self.weights = weights
        self.rows = 2 if weights.packed else 8
        self.forget()

    def refresh(self) -> None:
        """Take the weights as they are now."""
        self.weights.load()

    def forget(self) -> None:
        """Drop what is cached."""
        w = self.weights
        shape = (2, len(w.layers), 0, w.shared, 0, w.size)  # keys and values, layers, slots, heads, positions
        self._cache = torch.zeros(shape, dtype=w.embedding.dtype, device=self.device)
        self._turns = w.rotations(0)

    @torch.inference_mode()
    def reserve(self, slots: int, width: int) -> None:
        """Make room."""
        _, _, have, _, wide, _ = old = self._cache.shape
        if slots <= have and width <= wide:
            return
        slots = max(ceil_to(slots, 8), 2 * have) if slots > have else have
        width = max(ceil_to(width, WINDOW), 2 * wide) if width > wide else wide
        cache = self._cache.new_zeros(*old[:2], slots, old[3], width, old[5])
        cache[:, :, :have, :, :wide] = self._cache
        self._cache, self._turns = cache, self.weights.rotations(width)

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.reserve(target + 1, 0)
        self._cache[:, :, target, :, :length] = self._cache[:, :, source, :, :length]

    @torch.inference_mode()
    def exchange(self, one: int, other: int) -> None:
        """Let two slots change places."""
        self.reserve(max(one, other) + 1, 0)
        self._cache[:, :, [one, other]] = self._cache[:, :, [other, one]]

    def _forward(
        self, tokens: Tensor, positions: Tensor, rows: slice | Tensor, index: Tensor, window: int, *, logits: bool
    ) -> Tensor:
        weights = self.weights
        x = weights.embedding[tokens.flatten()]
        turns = self._turns[positions.flatten()][:, None]
        masks = {size: self._mask(positions, window, size) for size in {layer.window for layer in weights.layers}}
        for number, layer in enumerate(weights.layers):
            heads = self._heads(layer, x, turns).view(*positions.shape, -1, weights.size)
            query, *new = torch.split(heads, [weights.heads, weights.shared, weights.shared], 2)
            for cached, part in zip(self._cache[:, number], new):
                cached[index[:, None], :, positions] = part
            if not logits and layer is weights.layers[-1]:
                return x  # the rest would only go into logits
            keys, values = self._cache[:, number, :, :, :window][:, rows]
            x = layer.output(self._attend(query, keys, values, masks[layer.window]), x)
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

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return `[r * q, heads * d]` of queries `[r, q, heads, d]`, keys and values `[r, shared, window, d]`."""
        r, q, heads, size = query.shape
        shared, window = keys.shape[1:3]
        group = heads // shared
        query = query.view(r, q, shared, group, size).permute(0, 2, 3, 1, 4).reshape(r, shared, group * q, size)
        scores = query @ keys.transpose(-1, -2)
        scores.view(r, shared, group, q, window).add_(mask)
        mixed = (scores.softmax(-1) @ values).view(r, shared, group, q, size)
        return mixed.permute(0, 3, 1, 2, 4).reshape(r * q, heads * size)

    def _norm(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], None, self.weights.eps)

    def _mask(self, positions: Tensor, window: int, size: int | None) -> Tensor:
        """Return what is added to scores, `[r, 1, 1, q, window]`; `size` is the layer's own window (tokens)."""
        at, own = torch.arange(window, device=self.device), positions[:, None, None, :, None]
        unseen = at > own if size is None else (at > own) | (at <= own - size)
        kind = self._cache.dtype
        return torch.zeros(unseen.shape, dtype=kind, device=self.device).masked_fill_(unseen, torch.finfo(kind).min)
