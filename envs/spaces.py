"""The text space: all strings up to a number of bytes.

Below the class, the space is registered with Gymnasium's functions for vectors and shared memory,
so that `make_vec(..., vectorization_mode="async")` works with its default arguments.
"""

import copy
import ctypes
import multiprocessing
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Tuple
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from gymnasium.wrappers.utils import create_zero_array

# The phrases of which a sampled text is made.
_SAMPLE_PHRASES = (
    "look",
    "1 + 1 = 2",
    "\\boxed{7}",
    "naïve café",
    "θ ≤ π/2",
    "两个苹果",
    "🍎🍏",
    "line one\nline two",
    "",
)
MAX_BYTES = 65_536  # the default size of the longest text
# In shared memory each text has a slot of fixed size: this many bytes for its length (little
# endian), then `max_bytes` bytes for the text in UTF-8.
_LENGTH_BYTES = 8


class TextSpace(Space[str]):
    """All strings of at most `max_bytes` bytes of UTF-8.

    Gymnasium's own `Text` takes only strings over a fixed character set, so it rejects most of what
    agents write.

    Args:
        max_bytes: The size of the longest text, at least 1.
        seed: Seeds `sample`, as in every space.
    """

    is_np_flattenable = False  # strings have no fixed-size array form

    def __init__(
        self, max_bytes: int = MAX_BYTES, seed: int | np.random.Generator | None = None
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; a text space needs at least 1 byte")
        self.max_bytes = max_bytes
        super().__init__(dtype=np.str_, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short string, which may have characters outside ASCII.

        Raises:
            ValueError: There is a mask or a probability.
        """
        if mask is not None or probability is not None:
            raise ValueError(
                "TextSpace.sample takes no mask or probability: it has no finite alphabet"
            )
        phrase_count = int(self.np_random.integers(1, 4))
        phrase_numbers = self.np_random.choice(len(_SAMPLE_PHRASES), size=phrase_count)
        text = " ".join(_SAMPLE_PHRASES[number] for number in phrase_numbers)
        encoded = text.encode()[: self.max_bytes]
        return encoded.decode("utf-8", "ignore")  # drops a character that the limit has cut in two

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that UTF-8 encodes in at most `max_bytes` bytes."""
        try:
            return isinstance(x, str) and len(x.encode()) <= self.max_bytes
        except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and self.max_bytes == other.max_bytes

    def __hash__(self) -> int:
        return hash((TextSpace, self.max_bytes))

    def __repr__(self) -> str:
        return f"TextSpace(max_bytes={self.max_bytes})"


# Gymnasium dispatches on the first space of the sequence, which its annotation does not say.
batch_differing_spaces.register(
    TextSpace, lambda spaces: Tuple([copy.deepcopy(space) for space in spaces])
)


@create_zero_array.register(TextSpace)
def _zero_text(space: TextSpace) -> str:  # type: ignore[misc]  # its type variable takes no subtype
    """Return the text that stands for no observation, for wrappers such as `DelayObservation`."""
    return ""


@create_shared_memory.register(TextSpace)
def _create_slots(space: TextSpace, n: int = 1, ctx: Any = None) -> Any:
    """Return shared memory for the texts of `n` environments, made in the process context `ctx`."""
    return (ctx or multiprocessing).Array(ctypes.c_char, n * _slot_size(space))


@write_to_shared_memory.register(TextSpace)
def _write_text(space: TextSpace, index: int, value: str, shared_memory: Any) -> None:
    """Write the text of environment `index` into its slot of the shared memory.

    A slot begins with the size of the text (`_LENGTH_BYTES` bytes, little endian), and the text in
    UTF-8 follows.
    """
    encoded = value.encode()
    if len(encoded) > space.max_bytes:
        raise ValueError(f"an observation of {len(encoded)} bytes does not fit in {space}")
    view = memoryview(shared_memory.get_obj()).cast("B")
    slot_start = index * _slot_size(space)
    text_start = slot_start + _LENGTH_BYTES
    view[slot_start:text_start] = len(encoded).to_bytes(_LENGTH_BYTES, "little")
    view[text_start : text_start + len(encoded)] = encoded


@read_from_shared_memory.register(TextSpace)
def _read_texts(space: TextSpace, shared_memory: Any, n: int = 1) -> Sequence[str]:
    """Return the texts of `n` environments as a sequence that follows the shared memory."""
    view = memoryview(shared_memory.get_obj()).cast("B")
    return _SharedTexts(view, slot_size=_slot_size(space), text_count=n)


def _slot_size(space: TextSpace) -> int:
    """Return the number of bytes that one text has in shared memory."""
    return _LENGTH_BYTES + space.max_bytes


class _SharedTexts(Sequence[str]):
    """The texts that are in shared memory at the moment; a deep copy is the tuple of them.

    `AsyncVectorEnv` calls `read_from_shared_memory` only once, when it is made, and returns a deep
    copy of the result after every step.
    """

    def __init__(self, view: memoryview, slot_size: int, text_count: int) -> None:
        self.view = view
        self.slot_size = slot_size
        self.text_count = text_count

    def __len__(self) -> int:
        return self.text_count

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[str]:
        for number in range(self.text_count):
            slot_start = number * self.slot_size
            text_start = slot_start + _LENGTH_BYTES
            size = int.from_bytes(self.view[slot_start:text_start], "little")
            yield bytes(self.view[text_start : text_start + size]).decode()

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)
