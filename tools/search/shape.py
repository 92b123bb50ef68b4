"""JSON as others send it: strict reading, and a walk through it whose errors name the path of what is wrong."""

import json
import math
from typing import Any


class Misfit(ValueError):
    """A value that is not what a protocol says; the text names its path."""


def unparse(value: Any) -> bytes:
    """UTF-8, with `?` for lone surrogates, which it cannot carry; raises ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def parse(data: bytes) -> Any:
    """Read a JSON text; raises `Misfit` for anything else, and for NaN and infinity, which are not JSON."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise Misfit("its JSON is nested too deeply") from None
    except ValueError as error:
        raise Misfit(f"it is not JSON: {str(error)[:200]} in {data[:60]!r}") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


class Node:
    """A value with its path, such as `result[0][2].score`; every reading raises `Misfit` where it is something else."""

    def __init__(self, value: Any, path: str = "") -> None:
        self.value, self.path = value, path

    def __contains__(self, key: str) -> bool:
        return key in self.members()

    def __getitem__(self, key: str) -> "Node":
        members, path = self.members(), f"{self.path}.{key}".lstrip(".")
        if key not in members:
            raise Misfit(f"{path} is missing")
        return Node(members[key], path)

    def members(self) -> dict[str, Any]:
        """An object."""
        if not isinstance(self.value, dict):
            raise self.misfit("an object")
        return self.value

    def items(self) -> "list[Node]":
        """A list."""
        if not isinstance(self.value, list):
            raise self.misfit("a list")
        return [Node(item, f"{self.path}[{i}]") for i, item in enumerate(self.value)]

    def text(self) -> str:
        """A string, with `?` for lone surrogates."""
        if not isinstance(self.value, str):
            raise self.misfit("a string")
        return self.value.encode("utf-8", "replace").decode()

    def key(self) -> str:
        """A string that is not empty, or a whole number, as a string."""
        if type(self.value) is int:
            return str(self.value)
        if not self.value:
            raise self.misfit("a string or a whole number")
        return self.text()

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.misfit("a number")
        try:
            number = float(self.value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.misfit("a finite number")
        return number

    def whole(self, least: int, most: int) -> int:
        """A whole number between two bounds, both included."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.misfit(f"a whole number from {least} to {most}")
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.misfit("true or false")
        return self.value

    def misfit(self, expected: str) -> Misfit:
        """What to raise where something else is expected."""
        shown = {"dict": "an object", "list": "a list"}.get(type(self.value).__name__) or repr(self.value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return Misfit(f"{self.path or 'the JSON'} is {shown}; expected {expected}")
