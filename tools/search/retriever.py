"""What all search back ends share: the protocol `Retriever`, passages and failures."""

import re
from dataclasses import dataclass
from typing import Protocol

from ..base import ToolFailure
from ..http.failures import Fault

# Control characters, and the line breaks of Unicode.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Passage:
    """A piece of a corpus.

    Args:
        id: Names the passage in its corpus.
        title: The title of the document it is from; may be empty.
        text: The passage itself.
        score: How well it matches a query, in the back end's own unit; 0 outside a search.
    """

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
    """A search back end. Many threads may call `search` at once."""

    @property
    def name(self) -> str:
        """What is searched, for messages."""

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure` if it cannot answer."""

    def close(self) -> None:
        """Release connections and the like; may be called twice."""


def split_contents(contents: str) -> tuple[str, str]:
    r"""Split the `contents` of Search-R1's corpora into title and text.

    `'"Paris"\nThe capital of France'` -> `("Paris", "The capital of France")`. If the first line is
    not in quotes, the title is empty and the text is all of `contents`.
    """
    first_line, line_break, text = contents.partition("\n")
    is_quoted = len(first_line) > 1 and first_line[0] == first_line[-1] == '"'
    if line_break and is_quoted:
        return first_line[1:-1], text
    return "", contents


def join_contents(title: str, text: str) -> str:
    """Return the `contents` that `split_contents` splits into `title` and `text`."""
    return f'"{title}"\n{text}'


def clean(text: str) -> str:
    """Put `text` on one line, without control characters and with `?` in place of lone surrogates.

    Runs of whitespace become one space.
    """
    encodable_text = text.encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", encodable_text).split())
