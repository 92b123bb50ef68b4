"""How a search back end is opened, by what it searches."""

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ..http.core import Limits
from .core import Passage, Retriever, SearchFailure

if TYPE_CHECKING:
    from .servers import Elastic, SearchR1

SERVERS = ("search-r1", "elastic")
TOKEN = "TURNGYM_SEARCH_TOKEN"  # what a server of Search-R1's protocol asks for, where it asks for something


def embedded(source: str | Path | Sequence[Passage]) -> Retriever:
    """Return the embedded back end over a corpus file or over passages.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The corpus cannot be used, or the packages that this needs are missing.
    """
    from .index import BM25, open_index  # not at the top: most uses of the package search nothing

    try:
        return open_index(source) if isinstance(source, str | Path) else BM25(source)
    except ImportError as error:
        raise ValueError(str(error)) from error


def served(url: str, kind: str = "search-r1", index: str | None = None, timeout: float = 10.0) -> Retriever:
    """Return the back end that asks a server, once that has shown that it is there.

    Args:
        url: The server's address.
        kind: What it speaks, one of `SERVERS`.
        index: The index to search; `elastic` has several, `search-r1` one.
        timeout: Seconds that a search may take, further tries included.

    Raises:
        ValueError: An argument cannot be.
        SearchFailure: No such server answers within 2 seconds.
    """
    if kind not in SERVERS:
        near = get_close_matches(kind, SERVERS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown back end {kind!r}; {hint}a server speaks {' or '.join(SERVERS)}")
    if (kind == "elastic") == (index is None):
        fix = "name the one to search" if index is None else "leave it out"
        raise ValueError(f"index is {index!r}, and the back end is {kind!r}; {fix}")
    retriever = _client(url, index, timeout)
    try:
        retriever.probe()
    except SearchFailure:
        retriever.close()
        raise
    return retriever


def _client(url: str, index: str | None, timeout: float) -> "SearchR1 | Elastic":
    from .servers import Elastic, SearchR1  # not at the top: the client of HTTP is large, and few need it

    limits = Limits(deadline=timeout)
    if index is None:
        return SearchR1(url, token=os.environ.get(TOKEN, ""), limits=limits)
    return Elastic(url, index, limits=limits)
