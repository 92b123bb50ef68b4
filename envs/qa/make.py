"""The search environment, made from its options, and the data sets of questions of fact.

`make_search` is the environment; `load_questions` reads questions from a file or a data set, and
`data_sets` lists the data sets that have short names.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

# For `system=true`: what a stock model, which was not trained here, needs to be told.
_STOCK_MODEL_PROMPT = (
    f"Answer the question with facts that you look up. {CALLS}"
    "Write the final answer between <answer> and </answer>: "
    "a name, a number or a few words, no sentence."
)


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

    The arguments that are not listed are those of `turngym.envs.math.make_math`.

    Args:
        tasks: Where the questions come from; by default they are about an invented world. Or:
            - a JSONL file (`.gz` too)
            - a data set: `hotpotqa`, `nq`, `2wiki`, `musique`, `bamboogle`, `triviaqa`, `popqa`,
              `search-r1`, `flashrag`, or `owner/name` on the hub
        split: `train`, `valid` or `test`.
        corpus: A JSONL file of passages (`.gz` too) to search. The questions about the invented
            world have its passages.
        url: The address of a server to search instead of a corpus.
        backend: What the server speaks: `search-r1`, the default, or `elastic` (Elasticsearch,
            OpenSearch).
        index: The index to search, if the server has several.
        visit: Whether the agent may also read pages of the internet by their URL.
        k: How many passages a search shows.
        passage_chars: Characters of a passage that are shown.
        max_query: Characters of a query that are searched.
        max_turns: Turn limit, the answer included.
        format: How calls are written (`turngym.tools.FORMATS`).
        hops: How many facts a question about the world joins: 1 to 4, one number or several. The
            default is all of them, mixed evenly.
        size: The size of the world: `tiny`, `small` (the default), `medium` or `large`.
        seed: Chooses the world; the default is 0.
        answers: Which answers are read: those in `<answer>` or in a box (`strict`), or also those
            in a sentence or on a bare last line (`lenient`).
        timeout: Seconds that a server may take for a search, retries included.
        tools: Further tools, as in `make_math`; the format `tags` has no words for them.

    Raises:
        ValueError: An option has a value that it cannot have, or excludes another one; a file
            cannot be used, a package is missing, or the server does not answer.
        FileNotFoundError: A file does not exist.
    """
    reading = SourceOptions(
        split=split,
        holdout=holdout,
        config=config,
        problem_field=problem_field,
        answer_field=answer_field,
        bad_rows=bad_rows,
    )
    if tasks is None:
        reason = "the questions are about the invented world"
        refuse(reason, corpus=corpus, url=url, backend=backend, index=index)
        reading.refuse(reason, "holdout", "config", "problem_field", "bad_rows")
        source = _open_world(split, hops=hops, size=size, seed=seed, format=format)
    else:
        refuse(f"the questions come from {tasks}", hops=hops, size=size, seed=seed)
        retriever = _open_retriever(
            tasks, corpus=corpus, url=url, backend=backend, index=index, timeout=timeout
        )
        source = _QuestionSource(load_questions(tasks, reading), retriever)

    search = Search(source.retriever, k=k, passage_chars=passage_chars, max_query=max_query)
    all_tools: list[AnyTool] = [search]
    if visit:
        # Imported only here: it needs packages that a search does not.
        from ...tools.search.visit import Visit

        all_tools.append(Visit(timeout))
    all_tools += load_tools(tools)
    return SearchEnv(
        source.questions,
        all_tools,
        format=format,
        system=prompt_of(system, SYSTEM, _STOCK_MODEL_PROMPT),
        max_turns=max_turns,
        # A server that is too slow ends a search after `timeout`; this is for tools that hang.
        tool_timeout=timeout + TOOL_TIMEOUT,
        expert=source.make_expert,
        lenient=is_lenient(answers),
    )


@dataclass(frozen=True)
class _QuestionSource:
    """Questions, what is searched for their answers, and what makes an expert, if there is one."""

    questions: Tasks
    retriever: Retriever
    make_expert: Callable[[], SearchExpert] | None = None


def _open_world(
    split: str,
    *,
    hops: int | Sequence[int] | None,
    size: str | None,
    seed: int | None,
    format: str,
) -> _QuestionSource:
    """Return the questions about the invented world; the arguments are those of `make_search`.

    Raises:
        ValueError: An argument has a value that it cannot have, or bm25s is not installed.
    """
    seed = seed or 0
    size = size or "small"
    _, retriever = _make_world(seed, size)
    if hops is None:
        hops = HOPS
    elif not isinstance(hops, int):
        hops = tuple(hops)  # hashable, for the cache
    questions = _make_world_questions(seed, size, split, hops)
    return _QuestionSource(questions, retriever, make_expert=partial(SearchExpert, format))


# A world takes a while to make and nothing changes it, so environments share it. To close its
# retriever does nothing, so that one of them may do so.
@lru_cache(maxsize=2)
def _make_world(seed: int, size: str) -> tuple[InventedWorld, Retriever]:
    world = InventedWorld(seed, size)
    return world, BM25(world.passages)


@lru_cache(maxsize=6)
def _make_world_questions(
    seed: int, size: str, split: str, hops: int | tuple[int, ...]
) -> InventedTasks:
    world, _ = _make_world(seed, size)
    return world.tasks(split, hops)


def _open_retriever(
    tasks: str | Path,
    *,
    corpus: str | Path | None,
    url: str | None,
    backend: str | None,
    index: str | None,
    timeout: float,
) -> Retriever:
    """Return what searches a corpus or a server; the arguments are those of `make_search`.

    Raises:
        ValueError: Not exactly one of `corpus` and `url` is given, an option has a value that it
            cannot have, or the server does not answer.
        FileNotFoundError: The corpus does not exist.
    """
    if (corpus is None) == (url is None):
        raise ValueError(
            f"the questions come from {tasks}, corpus is {corpus!r} and url is {url!r}; "
            "name one of the two to search"
        )
    if corpus is not None:
        refuse(f"the file {corpus} is searched", backend=backend, index=index)
        return open_index(corpus)
    assert url is not None
    # Imported only here: it needs packages that a search of a corpus does not.
    from ...tools.search.remote import SERVERS, open_search_server

    try:
        return open_search_server(url, backend or SERVERS[0], index, timeout)
    except SearchFailure as failure:
        raise ValueError(str(failure)) from failure


# The fields that rows of questions usually have; an answer may be one text or a list of right ones.
SHAPES = (
    Fields("question", "answers", gold=as_texts),
    Fields("question", "golden_answers", gold=as_texts),
    Fields("question", "answer", gold=as_texts, aliases="answer_aliases"),
)


def load_questions(source: str | Path, options: SourceOptions) -> Tasks:
    """Return the tasks that `source` names, as `load_tasks` does, each of them a `QATask`.

    A row of a file may also have these fields:
        - `gold_passages` or `passages`: the ids of the gold passages
        - `queries`: searches that show them, in order

    Args:
        source: A file, a data set of `data_sets`, or `owner/name` on the hub.
        options: How the tasks are read; grader, fields and tasks are those of this environment.

    Raises:
        ValueError: There is no such source, it cannot be read, or a row has no usable gold.
        FileNotFoundError: The file does not exist.
    """
    options = replace(options, check_gold=QAGrader.check_gold, shapes=SHAPES, make=_make_task)
    return load_tasks(source, options, data_sets())


def _make_task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> QATask:
    """Return the task of a row; the arguments are those of `turngym.envs.rows.plain_task`.

    Raises:
        ValueError: A field holds something else than texts.
    """
    gold_passages = _read_texts(row, "gold_passages") or _read_texts(row, "passages")
    return QATask(
        name,
        prompt,
        gold=golds[0],
        aliases=golds[1:],
        passages=gold_passages,
        queries=_read_texts(row, "queries"),
    )


def _read_texts(row: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Return the texts in a field of a row; none if the row lacks the field or it is empty.

    Raises:
        ValueError: The field holds something else than texts; the message is the end of a sentence.
    """
    value = row.get(field)
    if not value:
        return ()
    try:
        return as_texts(value)
    except ValueError:
        raise ValueError(f": field {field!r} is {value!r}; it needs a list of texts") from None


@cache
def data_sets() -> dict[str, DataSet]:
    """Return the data sets that have a short name, by that name."""
    table = Path(__file__).with_name("data_sets.toml")
    return read_data_sets(table, SHAPES, as_texts, read_entity_names, read_json_list)


def read_entity_names(entity: Any) -> tuple[str, ...]:
    """Return the name of an entity and its aliases, as TriviaQA has them.

    Example: `{"value": "Sinclair Lewis", "aliases": ["Harry Lewis"], …}` gives both names.

    Raises:
        ValueError: It is no such mapping, or a name is no text.
    """
    if not isinstance(entity, Mapping):
        raise ValueError("it needs a `value` and `aliases`")
    aliases = entity.get("aliases") or ()
    return as_texts([entity.get("value"), *aliases])


def read_json_list(text: Any) -> tuple[str, ...]:
    """Return the texts of a list that is written as JSON, as PopQA has them: `'["pol", "MP"]'`.

    Raises:
        ValueError: It is no such list.
    """
    try:
        return as_texts(json.loads(as_text(text)))
    except json.JSONDecodeError:
        raise ValueError("it needs a list in JSON") from None
