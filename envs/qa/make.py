"""The search environment, made from its options, and the data sets of questions of fact that it
knows by name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from ...tools import AnyTool, Retriever, Search, SearchFailure
from ...tools.plugins import load_tools
from ...tools.search.bm25 import BM25, open_index
from ..question.env import CALLS, is_lenient, prompt_of
from ..question.toolbox import TOOL_TIMEOUT
from ..rows import Fields, SourceOptions, as_text, as_texts
from ..sources import DataSet, load_tasks, read_data_sets
from ..tasks import Tasks, refuse, strict
from .env import SYSTEM, QATask, SearchEnv
from .expert import SearchExpert
from .grader import QAGrader
from .world import HOPS, InventedTasks, InventedWorld


@strict
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
    system: bool | str = False,
    answers: str = "strict",
    timeout: float = 10.0,
    tools: str | Sequence[str | AnyTool] = (),
) -> SearchEnv:
    """Make `turngym/Search-v0`: a question of fact, and a search tool.

    Args: tasks: A JSONL file of questions (`.gz` too); a data set: `hotpotqa`, `nq`, `2wiki`,
        `musique`, `bamboogle`,
            `triviaqa`, `popqa`, `search-r1`, `flashrag` or `owner/name` on the hub; questions about
            an invented world when left out.
        split: `train`, `valid` or `test`.
        corpus: A JSONL file of passages (`.gz` too) to search; the invented world's when tasks are
            left out.
        url: A server to search instead.
        backend: What the server speaks: `search-r1` (when left out) or `elastic` (Elasticsearch,
            OpenSearch).
        index: The index to search, where the server has several.
        visit: Whether the agent may also read pages of the internet by their URL.
        k: How many passages a search shows.
        passage_chars: Characters of a passage that are shown.
        max_query: Characters of a query that are searched.
        max_turns: Turn limit, the answer included.
        format: How calls are written (`turngym.tools.FORMATS`).
        hops: How many facts a question of the world joins, 1 to 4, one number or several; all when
            left out.
        size: The world's: `tiny`, `small` (when left out), `medium` or `large`.
        seed: Chooses the world; 0 when left out.
        answers: Which answers are read: those in `<answer>` or a box (`strict`), or also those that
            a sentence or a bare last line gives (`lenient`).
        timeout: Seconds that a server may take for a search, retries included.
        tools: Further tools, as in `turngym.envs.math.make_math`; the format `tags` has no words
            for them.

    The other arguments are those of `turngym.envs.math.make_math`.

    Raises FileNotFoundError where a file is not there; ValueError where an option cannot be, or
    does not go with the others, a file cannot be used, a package is missing, or the server does not
    answer.
    """
    options = SourceOptions(split, holdout, config, problem_field, answer_field, bad_rows)
    expert = None
    retriever: Retriever
    if tasks is None:
        what = "the questions are about the invented world"
        refuse(what, corpus=corpus, url=url, backend=backend, index=index)
        options.refuse(what, "holdout", "config", "problem_field", "bad_rows")
        world = seed or 0, size or "small"
        retriever, expert = _world(*world)[1], partial(SearchExpert, format)
        chosen = HOPS if hops is None else hops if isinstance(hops, int) else tuple(hops)
        questions: Tasks = _about(*world, split, chosen)
    else:
        refuse(f"the questions come from {tasks}", hops=hops, size=size, seed=seed)
        retriever = _searched(tasks, corpus, url, backend, index, timeout)
        questions = load(tasks, options)
    held: list[AnyTool] = [Search(retriever, k, passage_chars, max_query)]
    if visit:
        from ...tools.search.visit import Visit

        held.append(Visit(timeout))
    held += load_tools(tools)
    prompt = prompt_of(system, SYSTEM, FULL)
    lenient = is_lenient(answers)
    return SearchEnv(
        questions, held, format, prompt, max_turns, timeout + TOOL_TIMEOUT, expert, lenient
    )


FULL = (  # what a stock model has to be told
    f"Answer the question with facts that you look up. {CALLS}Write the final answer between <answer> and </answer>: "
    "a name, a number or a few words, no sentence."
)


@lru_cache(
    maxsize=2
)  # to make it takes a while, nothing changes it, and its back end has nothing to close
def _world(seed: int, size: str) -> tuple[InventedWorld, Retriever]:
    world = InventedWorld(seed, size)
    return world, BM25(world.passages)


@lru_cache(maxsize=6)
def _about(seed: int, size: str, split: str, hops: int | tuple[int, ...]) -> InventedTasks:
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
        given = f"the questions come from {tasks}, corpus is {corpus!r} and url is {url!r}"
        raise ValueError(f"{given}; name one of the two to search")
    if corpus is not None:
        refuse(f"the file {corpus} is searched", backend=backend, index=index)
        return open_index(corpus)
    assert url is not None
    from ...tools.search.remote import SERVERS, served

    try:
        return served(url, backend or SERVERS[0], index, timeout)
    except SearchFailure as failure:
        raise ValueError(str(failure)) from failure


SHAPES = (
    Fields("question", "answers", gold=as_texts),
    Fields("question", "golden_answers", gold=as_texts),
    Fields("question", "answer", gold=as_texts, aliases="answer_aliases"),
)
"""The fields that need no naming; answers are one text or several."""


def entity(value: Any) -> tuple[str, ...]:
    """Return the name of an entity and its aliases, as TriviaQA has them."""
    if not isinstance(value, Mapping):
        raise ValueError("it needs a `value` and `aliases`")
    return as_texts([value.get("value"), *(value.get("aliases") or ())])


def listed(value: Any) -> tuple[str, ...]:
    """Return the texts of a list that is written as JSON, as PopQA has them."""
    try:
        return as_texts(json.loads(as_text(value)))
    except json.JSONDecodeError:
        raise ValueError("it needs a list in JSON") from None


@cache
def data_sets() -> dict[str, DataSet]:
    """Return the data sets that have a short name, by that."""
    return read_data_sets(
        Path(__file__).with_name("data_sets.toml"), SHAPES, as_texts, entity, listed
    )


def load(source: str | Path, options: SourceOptions) -> Tasks:
    """Return the tasks that `source` names, as `load_tasks` does, all `QATask`.

    Rows of a file may hold `gold_passages` or `passages`, the ids of the gold passages, and
    `queries`, which find them.
    """
    options = replace(options, check_gold=QAGrader.check_gold, shapes=SHAPES, make=_task)
    return load_tasks(source, options, data_sets())


def _task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> QATask:
    passages = _texts(row, "gold_passages") or _texts(row, "passages")
    return QATask(
        name, prompt, golds[0], aliases=golds[1:], passages=passages, queries=_texts(row, "queries")
    )


def _texts(row: Mapping[str, Any], field: str) -> tuple[str, ...]:
    try:
        return as_texts(value) if (value := row.get(field)) else ()
    except ValueError:
        raise ValueError(f": field {field!r} is {value!r}; it needs a list of texts") from None
