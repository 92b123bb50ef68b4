"""The passages and questions that retrieval is measured on: given as files, or written from the invented world."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.envs.qa.world import InventedWorld
from turngym.envs.rows import json_rows
from turngym.tools.search.corpus import read_corpus
from turngym.tools.search.retriever import Passage

WORLD_TASKS = 500


@dataclass(frozen=True)
class Question:
    """What is asked, and the ids of the passages that answer it."""

    text: str
    golds: tuple[str, ...]


@dataclass(frozen=True)
class Benchmark:
    """A corpus, questions about it and the files that they are from; `others` is how many have no gold passages."""

    corpus: Path
    file: Path
    passages: Sequence[Passage]
    questions: Sequence[Question]
    others: int

    @property
    def total(self) -> int:
        """How many questions there are."""
        return len(self.questions) + self.others


def read(corpus: Path, file: Path) -> Benchmark:
    """Return the passages and those questions that name gold passages.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: one of them is not as described; the message names the line.
    """
    passages = read_corpus(corpus)
    known = {passage.id for passage in passages}
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} does not exist; --questions names a JSONL file of questions"
        )
    found, others = [], 0
    for number, row in json_rows(file):
        where = f"{file.name}:{number}"
        question = _question(where, row)
        if unknown := [gold for gold in question.golds if gold not in known]:
            raise ValueError(
                f"{where} names the gold passage {unknown[0]!r}, which is not in {corpus}"
            )
        found += [question] if question.golds else []
        others += not question.golds
    if not found:
        raise ValueError(
            f"{file} has no question with `gold_passages`, the ids of passages of {corpus}"
        )
    return Benchmark(corpus, file, passages, found, others)


def _question(where: str, row: Mapping[str, Any]) -> Question:
    text, golds = row.get("question"), row.get("gold_passages") or []
    if (
        not isinstance(text, str)
        or not isinstance(golds, list)
        or not all(isinstance(gold, str) for gold in golds)
    ):
        raise ValueError(f"{where} needs a text `question`, and `gold_passages`, a list of ids")
    return Question(text, tuple(golds))


def write_world(folder: Path, seed: int) -> tuple[Path, Path]:
    """Write the passages of an invented world, and what its experts search for in it; return both files.

    A question of several hops names none of the passages behind the first, so it is its gold queries that are asked.
    """
    world = InventedWorld(seed)
    tasks = world.tasks("test")
    corpus, file = folder / "corpus.jsonl", folder / "questions.jsonl"
    texts = ({"id": one.id, "title": one.title, "text": one.text} for one in world.passages)
    corpus.write_text("".join(json.dumps(row) + "\n" for row in texts))
    asked: dict[str, dict[str, Any]] = {}
    for task in (tasks[i] for i in range(min(WORLD_TASKS, len(tasks)))):
        for query, passage in zip(task.queries, task.passages, strict=True):
            asked[query] = {"question": query, "answers": task.golds, "gold_passages": [passage]}
    file.write_text("".join(json.dumps(row) + "\n" for row in asked.values()))
    return corpus, file
