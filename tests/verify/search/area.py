"""Area `search`: retrieval beside other rankings, the invented world's players, servers that fail, hostile answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turngym.tests.verify.rows import Row

if TYPE_CHECKING:
    from turngym.tests.verify.search.corpus import Benchmark

Part = Literal[
    "all",
    "retrieval",
    "players",
    "guesses",
    "skimming",
    "server",
    "faults",
    "answers",
    "mistakes",
    "contract",
    "canary",
]
ENV = "turngym/Search-v0"


@dataclass(frozen=True)
class Search:
    """Searching: what the index finds beside rank-bm25 and Lucene's BM25, players, servers, hostile answers."""

    corpus: Path | None = None
    """Passages, a JSONL file; those of the invented world when left out."""
    questions: Path | None = None
    """Questions about them with `gold_passages`, a JSONL file; to be named with `corpus`."""
    answers: Path = Path("../shared/corpora/adversarial_answers.jsonl")
    """Hostile completions, a JSONL file; its rows of env `search` are played."""
    seed: int = 0
    """Keys all randomness."""
    only: Part = "all"
    """Which part to count."""
    tasks: int = 1000
    """Questions of the world's test split that players and guesses answer."""
    learned: int = 8000
    """Questions of its train split that guesses learn from."""
    processes: int = 3
    """Fresh processes in which each hostile completion is played."""
    episodes: int = 1000
    """Episodes in which a canary is looked for."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of every part, having read all files first."""
        from turngym.tests.verify.search import hostile
        from turngym.tests.verify.search.corpus import read, write_world

        if (self.corpus is None) != (self.questions is None):
            raise ValueError(
                f"corpus is {self.corpus} and questions is {self.questions}; name both files or none"
            )
        hostiles = hostile.read(self.answers) if self._counts("answers") else []
        with tempfile.TemporaryDirectory() as folder:
            if self.corpus is None or self.questions is None:
                data = read(*write_world(Path(folder), self.seed))
            else:
                data = read(self.corpus, self.questions)
            yield from self._found_rows(data)
            yield from self._played_rows()
            if self._counts("answers"):
                yield hostile.answer_row(hostiles, self.processes, self.seed)
            yield from self._kept_rows(data, Path(folder))

    def _found_rows(self, data: Benchmark) -> Iterator[Row]:
        from turngym.tests.verify.search.control_tokens import shown_row
        from turngym.tests.verify.search.faults import alone_row, crowd_row
        from turngym.tests.verify.search.retrieval import retrieval_rows
        from turngym.tests.verify.search.serving import serving_rows

        if self._counts("retrieval"):
            yield from retrieval_rows(data)
        if self._counts("server"):
            yield from serving_rows(data)
        if self._counts("faults"):
            yield alone_row()
            yield crowd_row()
            yield shown_row()

    def _played_rows(self) -> Iterator[Row]:
        from turngym.envs.qa import InventedWorld, make_search
        from turngym.tests.verify.search.guesses import guess_rows, guesses
        from turngym.tests.verify.search.players import player_rows
        from turngym.tests.verify.search.skimming import skim_rows

        env = make_search(split="test", seed=self.seed)
        tasks = range(min(self.tasks, len(env.tasks)))
        if self._counts("players"):
            yield from player_rows(env, tasks)
        if self._counts("skimming"):
            yield from skim_rows(env, range(min(max(self.tasks, 200), len(env.tasks))))
        if self._counts("guesses"):
            world = InventedWorld(self.seed)
            train, titles = world.tasks("train"), [passage.title for passage in world.passages]
            learned = [train[i] for i in range(min(self.learned, len(train)))]
            test = [env.tasks[i] for i in range(len(env.tasks))]
            yield from guess_rows(
                env.grader, test[: len(tasks)], guesses(learned, test, titles, self.seed)
            )
        env.close()

    def _kept_rows(self, data: Benchmark, folder: Path) -> Iterator[Row]:
        from turngym.agents.check.episodes import Subject
        from turngym.tests.verify.contracts import hunted, kept
        from turngym.tests.verify.search.bad_input import gold_row, mistake_row
        from turngym.tests.verify.search.serving import server

        if self._counts("mistakes"):
            yield mistake_row(folder)
            yield gold_row(folder)
        if self._counts("contract"):
            yield kept(Subject(ENV, {}, self.seed), f"{ENV} over its world")
            options = {"tasks": str(data.file), "bad_rows": data.total}
            yield kept(
                Subject(ENV, {**options, "corpus": str(data.corpus)}, self.seed),
                f"{ENV} over files",
            )
            with server(data.corpus) as (url, _):
                yield kept(Subject(ENV, {**options, "url": url}, self.seed), f"{ENV} over a server")
        if self._counts("canary"):
            yield hunted(Subject(ENV, {}, self.seed), self.episodes)

    def _counts(self, part: Part) -> bool:
        return self.only in ("all", part)
