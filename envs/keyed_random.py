"""Random draws that depend only on a key, the same on every machine."""

import hashlib
import struct
from collections.abc import Iterable, Sequence

from .tasks import T


class KeyedRandom:
    """A random generator whose draws depend only on its key and are the same on any machine.

    Its stream of 64-bit words is cut into blocks of eight; block n is the BLAKE2b hash of the key
    with n as the salt.
    """

    def __init__(self, *key: int | str) -> None:
        self._key = repr(key).encode()
        self._block = 0  # the number of the next block
        self._words: list[int] = []  # of the present block, not yet used

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included."""
        if not self._words:  # all eight words of the block are used: hash the next one
            digest = hashlib.blake2b(self._key, salt=self._block.to_bytes(16, "little")).digest()
            self._words = list(struct.unpack("<8Q", digest))
            self._block += 1
        # The remainder is slightly biased: by less than the size of the range times 2**-64.
        return low + self._words.pop() % (high - low + 1)

    def nonzero(self, high: int) -> int:
        """Draw an integer from -`high` to `high`, but not 0."""
        sign = self.choice((-1, 1))
        return sign * self.integer(1, high)

    def choice(self, items: Sequence[T]) -> T:
        """Draw one of `items`."""
        return items[self.integer(0, len(items) - 1)]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """Return a list of `items` in a random order (Fisher and Yates)."""
        items = list(items)
        for last in range(len(items) - 1, 0, -1):
            drawn = self.integer(0, last)
            items[last], items[drawn] = items[drawn], items[last]
        return items
