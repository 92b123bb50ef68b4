"""Questions of fact with a search tool: an invented world's, from files or from known data sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from ...tools import Retriever, Search, SearchFailure, Tool
from ...tools.search.core import SERVERS, embedded, served
from ..question import TOOL_TIMEOUT
from ..sources import SourceOptions
from ..tasks import Tasks
from .expert import SearchExpert
from .grade import QAGrade, QAGrader
from .search import SYSTEM, SearchEnv
from .sources import load
from .task import QATask
from .world import HOPS, World, WorldTasks

__all__ = ["QAGrade", "QAGrader", "QATask", "SearchEnv", "World", "make_search"]


def make_search(
    tasks: str | Path | None = None,
    split: str = "train",
    corpus: str | Path | None = None,
    url: str | None = None,
    backend: str | None = None,
    index: str | None = None,
    visit: bool = False,
    k: int = 3,
    passage_chars: int = 1000,
    max_query: int = 512,
    max_turns: int = 6,
    format: str = "tags",
    hops: int | Sequence[int] | None = None,
    size: str | None = None,
    seed: int | None = None,
    holdout: float | None = None,
    config: str | None = None,
    problem_field: str | None = None,
    answer_field: str | None = None,
    bad_rows: int = 0,
    system: str = SYSTEM,
    timeout: float = 10.0,
) -> SearchEnv:
    """Make `turngym/Search-v0`: a question of fact, and a search tool.

    Args:
        tasks: A JSONL file of questions (`.gz` too); a data set: `hotpotqa`, `nq`, `2wiki`, `musique`, `bamboogle`,
            `triviaqa`, `popqa`, `search-r1`, `flashrag` or `owner/name` on the hub; questions about an invented world
            when left out.
        split: `train`, `valid` or `test`.
        corpus: A JSONL file of passages (`.gz` too) to search; the invented world's when tasks are left out.
        url: A server to search instead.
        backend: What the server speaks: `search-r1` (when left out) or `elastic` (Elasticsearch, OpenSearch).
        index: The index to search, where the server has several.
        visit: Whether the agent may also read pages of the internet by their URL.
        k: How many passages a search shows.
        passage_chars: Characters of a passage that are shown.
        max_query: Characters of a query that are searched.
        max_turns: Turn limit, the answer included.
        format: How calls are written (`turngym.tools.FORMATS`).
        hops: How many facts a question of the world joins, 1 to 4, one number or several; all when left out.
        size: The world's: `tiny`, `small` (when left out), `medium` or `large`.
        seed: Chooses the world; 0 when left out.
        holdout: The share of questions kept for `valid`; of a file none when left out, of a data set without a split
            of its own for `valid` 0.05 of `train`.
        config: The part of a data set that has several.
        problem_field: The field of the question, where it is not `question`.
        answer_field: The field of the answers, to be named with `problem_field`.
        bad_rows: How many rows without a usable question and gold may be left out.
        system: The system prompt.
        timeout: Seconds that a server may take for a search, retries included.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: An option cannot be, or does not go with the others; a file cannot be used; a package is missing;
            the server does not answer.
    """
    options = SourceOptions(split, holdout, config, problem_field, answer_field, bad_rows)
    expert = None
    retriever: Retriever
    if tasks is None:
        what = "the questions are about the invented world"
        _refuse(what, corpus=corpus, url=url, backend=backend, index=index)
        options.refuse(what, "holdout", "config", "problem_field", "bad_rows")
        world = seed or 0, size or "small"
        retriever, expert = _world(*world)[1], partial(SearchExpert, format)
        questions: Tasks = _about(
            *world, split, HOPS if hops is None else hops if isinstance(hops, int) else tuple(hops)
        )
    else:
        _refuse(f"the questions come from {tasks}", hops=hops, size=size, seed=seed)
        retriever = _searched(tasks, corpus, url, backend, index, timeout)
        questions = load(tasks, options)
    tools: list[Tool] = [Search(retriever, k, passage_chars, max_query)]
    if visit:
        tools.append(_visit(timeout))
    return SearchEnv(questions, tools, format, system, max_turns, timeout + TOOL_TIMEOUT, expert)


@lru_cache(maxsize=2)  # to make it takes a while, nothing changes it, and its back end has nothing to close
def _world(seed: int, size: str) -> tuple[World, Retriever]:
    world = World(seed, size)
    return world, embedded(world.passages)


@lru_cache(maxsize=6)
def _about(seed: int, size: str, split: str, hops: int | tuple[int, ...]) -> WorldTasks:
    return _world(seed, size)[0].tasks(split, hops)


def _searched(
    tasks: str | Path,
    corpus: str | Path | None,
    url: str | None,
    backend: str | None,
    index: str | None,
    timeout: float,
) -> Retriever:
    if (corpus is None) == (url is None):
        raise ValueError(
            f"the questions come from {tasks}, corpus is {corpus!r} and url is {url!r}; name one of the two to search"
        )
    if corpus is not None:
        _refuse(f"the file {corpus} is searched", backend=backend, index=index)
        return embedded(corpus)
    assert url is not None
    try:
        return served(url, backend or SERVERS[0], index, timeout)
    except SearchFailure as failure:
        raise ValueError(str(failure)) from failure


def _visit(timeout: float) -> Tool:
    from ...tools.search.visit import Visit  # it brings along what few need

    return Visit(timeout)


def _refuse(what: str, **options: object) -> None:
    """Raise ValueError if one of `options` is options, which would be ignored."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r}, but {what}; leave it out")
