"""The text space: all strings up to a number of bytes, in vectors and shared memory too."""

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

_SAMPLES = (
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
_LENGTH = 8  # bytes in front of each string in shared memory
MAX_BYTES = 65_536  # of a text, unless a space says otherwise


class TextSpace(Space[str]):
    """All strings of at most `max_bytes` bytes of UTF-8.

    Gymnasium's own `Text` takes only strings over a fixed character set, so it rejects most of what agents write. The
    functions for shared memory, below, let `make_vec(..., vectorization_mode="async")` work with default arguments.

    Raises ValueError where `max_bytes` is below 1.
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
        """Draw a short string, also of characters outside ASCII."""
        if mask is not None or probability is not None:
            raise ValueError(
                "TextSpace.sample takes no mask or probability: it has no finite alphabet"
            )
        words = self.np_random.choice(len(_SAMPLES), size=int(self.np_random.integers(1, 4)))
        return (
            " ".join(_SAMPLES[int(i)] for i in words)
            .encode()[: self.max_bytes]
            .decode("utf-8", "ignore")
        )

    def contains(self, x: Any) -> bool:
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
def _zero(space: TextSpace) -> str:  # type: ignore[misc]  # its type variable takes no subtype
    """Return the text that stands for no observation, as in `FrameStackObservation` and `DelayObservation`."""
    return ""


@create_shared_memory.register(TextSpace)
def _create(space: TextSpace, n: int = 1, ctx: Any = None) -> Any:
    return (ctx or multiprocessing).Array(ctypes.c_char, n * (_LENGTH + space.max_bytes))


@write_to_shared_memory.register(TextSpace)
def _write(space: TextSpace, index: int, value: str, shared_memory: Any) -> None:
    data = value.encode()
    if len(data) > space.max_bytes:
        raise ValueError(f"an observation of {len(data)} bytes does not fit in {space}")
    start = index * (_LENGTH + space.max_bytes)
    view = memoryview(shared_memory.get_obj()).cast("B")
    view[start : start + _LENGTH] = len(data).to_bytes(_LENGTH, "little")
    view[start + _LENGTH : start + _LENGTH + len(data)] = data


class _Live(Sequence[str]):
    """The texts that shared memory holds at the moment; a deep copy is the tuple of them.

    `AsyncVectorEnv` reads once, when it is made, and returns a deep copy of what it read after every step.
    """

    def __init__(self, space: TextSpace, view: memoryview, n: int) -> None:
        self.stride, self.view, self.n = _LENGTH + space.max_bytes, view, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self.n * self.stride, self.stride):
            size = int.from_bytes(self.view[start : start + _LENGTH], "little")
            yield bytes(self.view[start + _LENGTH : start + _LENGTH + size]).decode()

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


@read_from_shared_memory.register(TextSpace)
def _read(space: TextSpace, shared_memory: Any, n: int = 1) -> Sequence[str]:
    return _Live(space, memoryview(shared_memory.get_obj()).cast("B"), n)
