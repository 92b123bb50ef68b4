"""A key-value cache of slots: one row a conversation, the token at position p lies at index p of its row.

What lies beyond a row's length is garbage that no mask shows and the next write replaces; so padding and idle rows may
write there, and decoding needs no gathered copy of the cache.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache


def ceil_to(n: int, multiple: int) -> int:
    """`n` rounded up to a multiple."""
    return -(-n // multiple) * multiple


class SlotCache(Cache):
    """Keys and values [slots, kv_heads, width, head_dim] per layer, taken as layers first write and grown on demand."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.store: list[list[Tensor]] = []  # per layer: keys, values
        self._slots = self._width = 0

    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` rows of `width` positions, at least doubling so that growth costs linear time."""
        if slots > self._slots:
            self._slots = max(ceil_to(slots, 8), 2 * self._slots)
        if width > self._width:
            self._width = max(ceil_to(width, 64), 2 * self._width)
        for layer in self.store:
            self._grow(layer)

    def aim(self, rows: slice | Tensor, index: Tensor, positions: Tensor, window: int) -> None:
        """Set where the next forward pass writes and what it sees.

        Row i of the batch is slot `index[i]` (int64 [r]; `rows` selects the same slots, as a slice where that spares a
        copy), writes at `positions[i]` (int64 [r, q]) and sees positions below `window`.
        """
        self._rows, self._index, self._positions, self._window = rows, index[:, None], positions, window

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [r, kv_heads, q, head_dim] where `aim` set; return what is seen, [r, kv_heads, window, head_dim]."""
        while len(self.store) <= layer_idx:
            self.store.append([new.new_zeros(0, new.shape[1], 0, new.shape[3]) for new in (keys, values)])
            self._grow(self.store[-1])
        layer = self.store[layer_idx]
        for tensor, new in zip(layer, (keys, values)):
            tensor[self._index, :, self._positions] = new.transpose(1, 2)
        seen = [tensor[:, :, : self._window][self._rows] for tensor in layer]
        return seen[0], seen[1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.reserve(target + 1, 0)
        for layer in self.store:
            for tensor in layer:
                tensor[target, :, :length] = tensor[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Rows differ in length, so there is none for all; positions and masks are always given to the model."""
        return 0

    def _grow(self, layer: list[Tensor]) -> None:
        for i, old in enumerate(layer):
            if old.shape[0] < self._slots or old.shape[2] < self._width:
                layer[i] = old.new_zeros(self._slots, old.shape[1], self._width, old.shape[3])
                layer[i][: old.shape[0], :, : old.shape[2]] = old
