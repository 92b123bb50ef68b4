"""The `search` tool: the agent's query becomes a numbered list of passages."""

from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import Any

from ..base import Status, ToolResult
from ..json_schema import check_arguments, make_schema
from .retriever import Passage, Retriever, clean

MAX_TITLE_CHARS = 200  # of a title that is shown
MAX_FRAME_CHARS = 20  # around the title and text of a passage: `Doc 99(Title: "") `
MAX_NOTICE_CHARS = 100  # of the notice that a query was cut


class Search:
    """A tool that searches a back end. Forks share it; the last of them to be closed closes it.

    `found` has, for each search of the episode, the ids of the passages it showed, best first. A
    call raises `SearchFailure` if the back end cannot answer.

    Args:
        retriever: The back end.
        k: How many passages a search shows, at least 1.
        passage_chars: Characters of a passage's text that are shown, at least 16; a longer one is
            cut at a word.
        max_query: Characters of a query that are searched, at least 1; of a longer one, the first.

    Raises:
        ValueError: A limit is out of range.
    """

    name = "search"

    def __init__(
        self, retriever: Retriever, k: int = 3, passage_chars: int = 1000, max_query: int = 512
    ) -> None:
        _check_at_least("k", k, 1)
        _check_at_least("passage_chars", passage_chars, 16)
        _check_at_least("max_query", max_query, 1)
        self.retriever = retriever
        self.k = k
        self.passage_chars = passage_chars
        self.max_query = max_query
        self.found: list[tuple[str, ...]] = []
        self._open_forks = [self]  # all forks share this list

    @property
    def schema(self) -> dict[str, Any]:
        best = "passage that fits" if self.k == 1 else f"{self.k} passages that fit"
        description = f"Search a collection of texts. You see the {best} your query best."
        query = {"type": "string", "description": "what to look for"}
        return make_schema(self.name, description, {"query": query}, ["query"])

    @property
    def longest(self) -> int:
        """The most characters that a result can have."""
        passage_line_chars = self.passage_chars + MAX_TITLE_CHARS + MAX_FRAME_CHARS
        return self.k * passage_line_chars + MAX_NOTICE_CHARS

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Search `arguments["query"]` and show the passages, a line each.

        Wrong arguments give a result with `Status.ERROR`, which the agent reads.

        Raises:
            SearchFailure: The back end cannot answer.
        """
        problem = check_arguments(self.schema, arguments)
        if problem:
            return ToolResult(Status.ERROR, problem)
        # `reset` may be called while the back end searches. It begins another list, and this search
        # belongs to the old one.
        found_in_episode = self.found
        query = clean(arguments["query"])
        if not query:
            return ToolResult(Status.ERROR, "the query is empty; write what to look for")
        notice = ""
        if len(query) > self.max_query:
            notice = (
                f"(The query has {len(query)} characters; "
                f"its first {self.max_query} were searched.)\n"
            )
            query = query[: self.max_query].rstrip()
        passages = self.retriever.search(query, self.k)[: self.k]
        found_in_episode.append(tuple(passage.id for passage in passages))
        if not passages:
            return ToolResult(Status.OK, f"{notice}No passage was found.")
        lines = [self._show(number, passage) for number, passage in enumerate(passages, start=1)]
        return ToolResult(Status.OK, notice + "\n".join(lines))

    def reset(self) -> None:
        self.found = []

    def fork(self) -> "Search":
        """Return a tool on the same back end, with a copy of the searches in `found`."""
        twin = copy(self)
        twin.found = list(self.found)
        self._open_forks.append(twin)
        return twin

    def close(self) -> None:
        """Close this fork, and the back end if no other fork uses it; may be called twice."""
        with suppress(ValueError):  # this fork is not in the list any more: it is closed already
            self._open_forks.remove(self)
            if not self._open_forks:
                self.retriever.close()

    def _show(self, number: int, passage: Passage) -> str:
        """Return the line of a passage, in the format of Search-R1."""
        title = shorten(clean(passage.title), MAX_TITLE_CHARS)
        text = shorten(clean(passage.text), self.passage_chars)
        return f'Doc {number}(Title: "{title}") {text}'


def shorten(text: str, max_chars: int) -> str:
    """Return a text if it has at most `max_chars` characters, else its beginning with `…`.

    It is cut at the end of a word if it has a space there: ("one two three", 10) -> "one two…".
    """
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    cuts_a_word = not text[max_chars - 1].isspace()
    if cuts_a_word and " " in head:
        head = head.rpartition(" ")[0]
    return f"{head.rstrip()}…"


def _check_at_least(name: str, value: int, minimum: int) -> None:
    if type(value) is not int or value < minimum:  # `type`, as True is an instance of int
        raise ValueError(f"{name} is {value!r}; it must be an int of at least {minimum}")
