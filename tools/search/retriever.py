"""What back ends of a search have in common: passages, failures, and the text of a passage with its title."""

import re
from dataclasses import dataclass
from typing import Protocol

from ..base import ToolFailure
from ..http.failures import Fault

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Passage:
    """A piece of a corpus; `score` says how well it fits a query, in the back end's own unit."""

    id: str
    title: str
    text: str
    score: float = 0.0


class SearchFailure(ToolFailure):
    """A search that could not be run, through no fault of the agent."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Retriever(Protocol):
    """A back end. `search` may be called from any thread, by many at once."""

    @property
    def name(self) -> str:
        """What is searched, for messages."""

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure` when the back end cannot answer."""

    def close(self) -> None:
        """Release what it holds; it may be called twice."""


def split_contents(contents: str) -> tuple[str, str]:
    """Return the title and the text of Search-R1's `"title"\\ntext`; what has no such first line has no title."""
    first, broken, rest = contents.partition("\n")
    if broken and len(first) > 1 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


def join_contents(title: str, text: str) -> str:
    """Return what `split_contents` takes apart."""
    return f'"{title}"\n{text}'


def clean(text: str) -> str:
    """Return `text` in one line, without control characters or what UTF-8 cannot carry."""
    return " ".join(_CONTROL.sub(" ", text.encode("utf-8", "replace").decode()).split())
