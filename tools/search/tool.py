"""The `search` tool: a query of the agent becomes numbered passages, cut to a length."""

from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import Any

from ..base import Status, ToolResult
from ..json_schema import check_arguments, make_schema
from .retriever import Passage, Retriever, clean

TITLE = 200  # characters of a title that are shown
FRAME = 20  # characters around a title and a text, up to `Doc 99(Title: "") `


class Search:
    """Searches a back end; forks share it, and the last of them to be closed closes it.

    `found` holds the ids of the passages that each search of the episode has shown, best first. A call raises
    `SearchFailure` where the back end cannot answer.

    Args:
        retriever: The back end.
        k: How many passages a search shows, at least 1.
        passage_chars: Characters of a passage's text that are shown, at least 16; a longer one is cut at a word.
        max_query: Characters of a query that are searched, at least 1; of a longer one, the head.

    Raises ValueError where a limit is out of range.
    """

    name = "search"

    def __init__(
        self, retriever: Retriever, k: int = 3, passage_chars: int = 1000, max_query: int = 512
    ) -> None:
        for what, value, least in (
            ("k", k, 1),
            ("passage_chars", passage_chars, 16),
            ("max_query", max_query, 1),
        ):
            if type(value) is not int or value < least:
                raise ValueError(f"{what} is {value!r}; it must be an int of at least {least}")
        self.retriever, self.k, self.passage_chars, self.max_query = (
            retriever,
            k,
            passage_chars,
            max_query,
        )
        self.found: list[tuple[str, ...]] = []
        self._users = [self]  # of the back end; all forks share the list

    @property
    def schema(self) -> dict[str, Any]:
        best = "passage that fits" if self.k == 1 else f"{self.k} passages that fit"
        what = f"Search a collection of texts. You see the {best} your query best."
        query = {"type": "string", "description": "what to look for"}
        return make_schema(self.name, what, {"query": query}, ["query"])

    @property
    def longest(self) -> int:  # how many characters a result can have
        return self.k * (self.passage_chars + TITLE + FRAME) + 100

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        query, notice, seen = (
            clean(arguments["query"]),
            "",
            self.found,
        )  # a reset meanwhile begins another list
        if not query:
            return ToolResult(Status.ERROR, "the query is empty; write what to look for")
        if len(query) > self.max_query:
            notice = f"(The query has {len(query)} characters; its first {self.max_query} were searched.)\n"
            query = query[: self.max_query].rstrip()
        passages = self.retriever.search(query, self.k)[: self.k]
        seen.append(tuple(passage.id for passage in passages))
        shown = "\n".join(f"Doc {i}{self._show(passage)}" for i, passage in enumerate(passages, 1))
        return ToolResult(Status.OK, notice + (shown or "No passage was found."))

    def reset(self) -> None:
        self.found = []

    def fork(self) -> "Search":
        """Return a tool on the same back end that has found the same."""
        twin = copy(self)
        twin.found = list(self.found)
        self._users.append(twin)
        return twin

    def close(self) -> None:
        """Close the back end, unless another fork still uses it."""
        with suppress(ValueError):  # it is closed already
            self._users.remove(self)
            if not self._users:
                self.retriever.close()

    def _show(self, passage: Passage) -> str:
        return f'(Title: "{shorten(clean(passage.title), TITLE)}") {shorten(clean(passage.text), self.passage_chars)}'


def shorten(text: str, most: int) -> str:
    """Return at most `most` characters of `text`, cut behind a word and marked with `…` where it is longer."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    if not text[most - 1].isspace() and " " in head:
        head = head.rpartition(" ")[0]
    return f"{head.rstrip()}…"
