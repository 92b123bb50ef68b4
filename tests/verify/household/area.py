"""Area `household`: what the household world promises, beside recorded episodes, games and the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turngym.tests.verify.rows import Row

if TYPE_CHECKING:
    from turngym.tests.verify.household.catalogue import Catalogue

Part = Literal[
    "all",
    "episodes",
    "demos",
    "walks",
    "real",
    "contract",
    "forks",
    "fuzz",
    "answers",
    "expert",
    "shortcuts",
]


@dataclass(frozen=True)
class Household:
    """The household world: recorded episodes, walkthroughs, the real engine, copies, fuzzed commands, the expert."""

    seed: int = 0
    """Keys all randomness."""
    only: Part = "all"
    """Which part to count."""
    games: tuple[Path, ...] = ()
    """Files of games (rows or game.tw-pddl) or folders of them; those of `data` when left out."""
    episodes: tuple[Path, ...] = ()
    """Files of recorded episodes of these games; those of `data` when both are left out."""
    data: Path = Path("../shared/data/household")
    """Folder of games and recorded episodes."""
    corpus: Path = Path("../shared/corpora/adversarial_answers.jsonl")
    """Hostile completions, a JSONL file; its rows of env `household` are played."""
    real: Path | None = None
    """A Python that has alfworld and textworld[pddl]; this one when left out, if it has them."""
    real_games: int = 200
    """Games that the real engine plays."""
    real_steps: int = 30
    """Commands in each."""
    fuzz_games: int = 20
    """Games that get fuzzed commands."""
    strings: int = 10_000
    """Fuzzed commands in each."""
    forked: int = 40
    """Episodes that are forked at every turn."""
    tasks: int = 200
    """Generated tasks of each size."""
    houses: int = 600
    """Generated houses in which shortcuts are searched."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of every part that has something to count."""
        from turngym.tests.verify.household.catalogue import Catalogue
        from turngym.tests.verify.household.walkthroughs import walk_rows

        catalogue = Catalogue(self.games or self._shipped("games_*.jsonl*"))
        yield from self._recorded_rows(catalogue)
        if self._counts("walks"):
            yield from walk_rows(catalogue)
        if self._counts("real"):
            yield from self._real_rows(catalogue)
        yield from self._played_rows(catalogue)

    def _recorded_rows(self, catalogue: Catalogue) -> Iterator[Row]:
        from turngym.tests.verify.household.demos import demo_row
        from turngym.tests.verify.household.episodes import blank_row, read_episodes, replay_rows

        files = self.episodes or (() if self.games else self._shipped("*episodes*.jsonl*"))
        found = read_episodes(files)
        with_games = [episode for episode in found if episode.game]
        demos = [episode for episode in found if not episode.game]
        if with_games and self._counts("episodes"):
            yield from replay_rows(catalogue, with_games, "recorded")
        if self._counts("episodes"):
            yield blank_row(catalogue)
        if demos and self._counts("demos"):
            yield demo_row(catalogue, demos)

    def _real_rows(self, catalogue: Catalogue) -> Iterator[Row]:
        """Count the differential test; where there is no real engine there is no row, unless it was asked for."""
        from turngym.tests.verify.household.real_engine import MISSING, interpreter, real_rows

        python = interpreter(self.real)
        if python is not None:
            yield from real_rows(catalogue, python, self.seed, self.real_games, self.real_steps)
        elif self.only == "real":
            raise ValueError(MISSING)

    def _played_rows(self, catalogue: Catalogue) -> Iterator[Row]:
        from turngym.tests.verify.household.contract import contract_rows
        from turngym.tests.verify.household.expert import generated_rows, official_rows
        from turngym.tests.verify.household.forks import fork_row
        from turngym.tests.verify.household.fuzz import fuzz_row
        from turngym.tests.verify.household.hostile import answer_row
        from turngym.tests.verify.household.shortcuts import shortcut_rows

        if self._counts("contract"):
            yield from contract_rows(self.games or self._shipped("games_*.jsonl*"), self.seed)
        if self._counts("forks"):
            yield fork_row(catalogue, self.seed, self.forked)
        if self._counts("fuzz"):
            yield fuzz_row(catalogue, self.seed, self.fuzz_games, self.strings)
        if self._counts("answers"):
            yield answer_row(self.corpus, catalogue)
        if self._counts("expert"):
            yield from official_rows(catalogue)
            yield from generated_rows(self.seed, self.tasks)
        if self._counts("shortcuts"):
            yield from shortcut_rows(catalogue, self.seed, self.houses)

    def _counts(self, *parts: Part) -> bool:
        return self.only in ("all", *parts)

    def _shipped(self, pattern: str) -> tuple[Path, ...]:
        """Return the files of `data`."""
        files = tuple(sorted(self.data.glob(pattern)))
        if not files:
            raise FileNotFoundError(
                f"{self.data} has no {pattern}; name files with --games and --episodes"
            )
        return files
