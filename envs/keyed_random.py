"""Random draws that depend on a key only, the same on every machine."""

import hashlib
import struct
from collections.abc import Iterable, Sequence

from .tasks import T


class KeyedRandom:
    """Random draws that depend on the key alone, on any machine: block n is the hash of the key and n."""

    def __init__(self, *key: int | str) -> None:
        self._key = repr(key).encode()
        self._block = 0
        self._words: list[int] = []

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        if not self._words:
            digest = hashlib.blake2b(self._key, salt=self._block.to_bytes(16, "little")).digest()
            self._words = list(struct.unpack("<8Q", digest))
            self._block += 1
        return low + self._words.pop() % (high - low + 1)

    def nonzero(self, high: int) -> int:
        """Return an integer from -`high` to `high`, but not 0."""
        return self.choice((-1, 1)) * self.integer(1, high)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """Return `items` in an order that is drawn."""
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.integer(0, i)
            items[i], items[j] = items[j], items[i]
        return items
