"""Reads JSON that may be hostile: `parse` limits it, and `Node` checks the type of each value."""

import json
import math
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from ..checks import shorten
from .failures import ShapeError

T = TypeVar("T")
MAX_NESTING = 100  # levels of objects and lists


def serialize(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, with `?` for lone surrogates.

    Raises ValueError for NaN and infinity.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def parse(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ShapeError: It is not JSON, has a NaN or infinity, or is nested more deeply than
            `MAX_NESTING`. Code that copies or prints the value recurses, and must stay far from
            Python's recursion limit.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ShapeError(f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ShapeError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise ShapeError(f"it is not JSON: {str(error)[:200]} in {data[:60]!r}") from None
    if _is_nested_deeper(value, MAX_NESTING):
        raise ShapeError("its JSON is nested too deeply")
    return value


def _is_nested_deeper(value: Any, max_depth: int) -> bool:
    """Return whether a JSON value has more than `max_depth` levels of objects and lists."""
    # One level at a time in a loop: recursion could overflow the stack.
    values = [value]
    for _ in range(max_depth + 1):
        values_of_next_level: list[Any] = []
        has_containers = False
        for member in values:
            if isinstance(member, dict):
                has_containers = True
                values_of_next_level.extend(member.values())
            elif isinstance(member, list):
                has_containers = True
                values_of_next_level.extend(member)
        if not has_containers:
            return False
        values = values_of_next_level
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


class Node:
    """A JSON value and its path in the document, such as `result[0][2].score`.

    Each method returns the value as the type that it is named after, and raises `ShapeError` if the
    value has another type.
    """

    def __init__(self, value: Any, path: str = "") -> None:
        self.value = value
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self.object()

    def __getitem__(self, key: str) -> "Node":
        members = self.object()
        path = f"{self.path}.{key}".lstrip(".")
        if key not in members:
            raise ShapeError(f"{path} is missing")
        return Node(members[key], path)

    def object(self) -> dict[str, Any]:
        return self._of_type(dict, "an object")

    def array(self) -> "Nodes":
        """Return the items of a list.

        Their nodes are only made when they are read, as a hostile list may have millions of items.
        """
        return Nodes(self._of_type(list, "a list"), self.path)

    def string(self) -> str:
        """Return a string, with `?` for lone surrogates."""
        return self._of_type(str, "a string").encode("utf-8", "replace").decode()

    def identifier(self) -> str:
        """Return a string that is not empty, or a whole number, as a string."""
        if type(self.value) is int:  # `type`, as True is an instance of int
            return str(self.value)
        if not self.value:
            raise self.error("a string or a whole number")
        return self.string()

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error("a number")
        try:
            number = float(self.value)
        except OverflowError:  # an integer above the largest float
            raise self.error("a finite number") from None
        if not math.isfinite(number):
            raise self.error("a finite number")
        return number

    def integer(self, minimum: int, maximum: int) -> int:
        """Return a whole number; `minimum` and `maximum` are allowed, too."""
        if type(self.value) is not int or not minimum <= self.value <= maximum:
            raise self.error(f"a whole number from {minimum} to {maximum}")
        return self.value

    def boolean(self) -> bool:
        return self._of_type(bool, "true or false")

    def _of_type(self, expected_type: type[T], type_name: str) -> T:
        if not isinstance(self.value, expected_type):
            raise self.error(type_name)
        return self.value

    def error(self, expected: str) -> ShapeError:
        """Return the error that the value is not as expected.

        Args:
            expected: The type that was expected, such as "a number".
        """
        if isinstance(self.value, dict):
            actual = "an object"
        elif isinstance(self.value, list):
            actual = "a list"
        else:
            actual = repr(self.value)
        return ShapeError(f"{self.path or 'the JSON'} is {shorten(actual)}; expected {expected}")


class Nodes(Sequence[Node]):
    """The items of a list as nodes.

    Args:
        items: The values.
        path: The path of the list.
    """

    def __init__(self, items: list[Any], path: str) -> None:
        self._items = items
        self._path = path

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        if isinstance(index, slice):
            return [self[item_index] for item_index in range(*index.indices(len(self)))]
        # A negative index, such as -1, becomes the real one, which the path shows.
        item_index = range(len(self))[index]
        return Node(self._items[item_index], f"{self._path}[{item_index}]")
