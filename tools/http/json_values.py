"""JSON from servers that may be hostile: parsed within limits, and read with the path of what has another shape."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar, overload

from ..checks import brief
from .failures import ShapeError

T = TypeVar("T")
MAX_NESTING = 100  # objects and lists within each other in an answer


def serialize(value: Any) -> bytes:
    """Return UTF-8, with `?` for lone surrogates, which it cannot carry; raises ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; raises `ShapeError` for anything else, NaN and infinity included.

    Values may be nested only so deep that whoever copies, prints or writes one stays far from Python's own limit.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ShapeError(f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ShapeError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ShapeError(f"it is not JSON: {str(error)[:200]} in {data[:60]!r}") from None
    if _is_nested_deeper(value, MAX_NESTING):
        raise ShapeError("its JSON is nested too deeply")
    return value


def _is_nested_deeper(value: Any, most: int) -> bool:
    """Return whether a JSON value has more than `most` objects and lists within each other."""
    level = [value]
    for _ in range(most + 1):
        containers = [member for member in level if isinstance(member, dict | list)]
        if not containers:
            return False
        members = (one.values() if isinstance(one, dict) else one for one in containers)
        level = list(chain.from_iterable(members))
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


class Node:
    """A value with its path, such as `result[0][2].score`; a reading of another type raises `ShapeError`."""

    def __init__(self, value: Any, path: str = "") -> None:
        self.value, self.path = value, path

    def __contains__(self, key: str) -> bool:
        return key in self.object()

    def __getitem__(self, key: str) -> "Node":
        members, path = self.object(), f"{self.path}.{key}".lstrip(".")
        if key not in members:
            raise ShapeError(f"{path} is missing")
        return Node(members[key], path)

    def object(self) -> dict[str, Any]:
        return self._of(dict, "an object")

    def array(self) -> "Nodes":
        """Return the items of a list; each becomes a node when it is read, as a hostile list may have millions."""
        return Nodes(self._of(list, "a list"), self.path)

    def string(self) -> str:
        """Return a string, with `?` for lone surrogates."""
        return self._of(str, "a string").encode("utf-8", "replace").decode()

    def identifier(self) -> str:
        """Return a string that is not empty, or a whole number, as a string."""
        if type(self.value) is int:
            return str(self.value)
        if not self.value:
            raise self.error("a string or a whole number")
        return self.string()

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error("a number")
        with suppress(OverflowError):
            if math.isfinite(number := float(self.value)):
                return number
        raise self.error("a finite number")

    def integer(self, least: int, most: int) -> int:
        """Return a whole number between two bounds, both included."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.error(f"a whole number from {least} to {most}")
        return self.value

    def boolean(self) -> bool:
        return self._of(bool, "true or false")

    def _of(self, kind: type[T], expected: str) -> T:
        if not isinstance(self.value, kind):
            raise self.error(expected)
        return self.value

    def error(self, expected: str) -> ShapeError:
        shown = {"dict": "an object", "list": "a list"}.get(type(self.value).__name__) or repr(
            self.value
        )
        return ShapeError(f"{self.path or 'the JSON'} is {brief(shown)}; expected {expected}")


class Nodes(Sequence[Node]):
    """The items of a list as nodes."""

    def __init__(self, items: list[Any], path: str) -> None:
        self._items, self._path = items, path

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Node: ...
    @overload
    def __getitem__(self, place: slice) -> list[Node]: ...
    def __getitem__(self, place: int | slice) -> Node | list[Node]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        return Node(self._items[at], f"{self._path}[{at}]")
