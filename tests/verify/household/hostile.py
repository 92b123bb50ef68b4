"""Hostile completions of household agents, each played in several games."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.household.pddl import State
from turngym.envs.household.play import step
from turngym.envs.rows import json_rows
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.rows import Row, first

GAMES = 5
PLAIN = ("help", "inventory", "look")  # commands that tell nothing of the walkthrough
DEADLINE = 5.0  # seconds
LONGEST = 256 * 1024  # bytes of an observation


@dataclass(frozen=True)
class Answered:
    """One completion in one game: the environment after it, the state before it, what was seen, and seconds."""

    env: ALFWorldEnv
    text: str
    before: State
    gold: list[str]
    seen: tuple[Any, ...]
    seconds: float

    @property
    def command(self) -> str | None:
        """The one command that the environment took from the text."""
        said: str | None = self.seen[4]["command"]
        return said

    @property
    def ran_at_most_one(self) -> bool:
        """Whether the state is that before, or that after the one command."""
        if self.env.world is None or self.env.turn != len(self.env.actions):
            return False
        after = (
            self.before
            if self.command is None
            else step(self.env.world, self.before, self.command)[0]
        )
        return self.env.state == after

    @property
    def first_tagged(self) -> str:
        """What is in the first tags of the text."""
        return self.text.partition("<action>")[2].partition("</action>")[0].strip()

    @property
    def shows_gold(self) -> bool:
        """Whether a command of the walkthrough is in what was seen."""
        return any(command in self.seen[0] for command in self.gold if command not in PLAIN)


MUST: Mapping[str, Callable[[Answered], bool]] = {
    "no_crash": lambda got: bool(got.seen[0]),
    "deadline": lambda got: got.seconds <= DEADLINE,
    "obs_cap": lambda got: len(got.seen[0].encode()) <= LONGEST,
    "reward=0": lambda got: got.seen[1] == 0 and not got.seen[2],
    "actions_run=1": lambda got: got.ran_at_most_one and got.command == got.first_tagged,
    "actions_run<=1": lambda got: got.ran_at_most_one,
    "cut_after_first_call": lambda got: (
        got.command == got.first_tagged and "You win" not in got.seen[0]
    ),
    "episode_not_reset": lambda got: got.env.live and got.env.turn == len(got.env.actions) > 1,
    "state_ok": lambda got: got.ran_at_most_one,
    "no_gold_in_obs": lambda got: not got.shows_gold,
    "error_observed": lambda got: got.seen[0].startswith("Error: "),
}
TWICE = ("stable", "step_after_done_raises_or_noop")  # those that take another episode


def answer_row(path: Path, catalogue: Catalogue) -> Row:
    """Count the hostile completions that hold what they must in each of some games.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has no row of env `household`, or one with an unknown predicate.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; --corpus names the file of hostile completions"
        )
    hostile = [
        (f"{path.name}:{number}", row)
        for number, row in json_rows(path)
        if row.get("env") == "household"
    ]
    if not hostile:
        raise ValueError(f"{path} has no row of env 'household'")
    solvable = [i for i, entry in enumerate(catalogue.entries) if entry.solvable]
    chosen = solvable[:: max(len(solvable) // GAMES, 1)][:GAMES]
    bad = []
    for where, row in hostile:
        faults = [fault for i in chosen for fault in faults_of(row, where, catalogue, i)]
        if faults:
            bad.append(f"{row['id']} {first(faults, 2)}")
    note = first(bad, 3) or f"each in {len(chosen)} games"
    return Row(
        "hostile completions hold what they must", len(hostile) - len(bad), len(hostile), note
    )


def faults_of(row: Mapping[str, Any], where: str, catalogue: Catalogue, i: int) -> list[str]:
    """Return which of the promises of a row are not kept in game `i`."""
    text = (
        row["text"] if "parts" not in row else "".join(part * times for part, times in row["parts"])
    )
    wanted = [part.strip() for part in row["must_hold"].split(";")]
    if unknown := [name for name in wanted if name not in (*MUST, *TWICE)]:
        raise ValueError(
            f"{where}: must_hold has {unknown[0]!r}; known are {', '.join((*MUST, *TWICE))}"
        )
    try:
        got = _answered(catalogue.env([i]), text)
        faults = [name for name in wanted if name in MUST and not MUST[name](got)]
        if "stable" in wanted and any(
            _answered(catalogue.env([i]), text).seen != got.seen for _ in range(2)
        ):
            faults.append("stable")
        if TWICE[1] in wanted and not _stops(catalogue.env([i]), text):
            faults.append(TWICE[1])
    except Exception as error:  # whatever it is, it counts
        return [f"raises {type(error).__name__}: {error}"]
    return [f"{name} in {catalogue.entries[i].id}" for name in faults]


def _answered(env: ALFWorldEnv, text: str) -> Answered:
    env.reset(seed=0, options={"task": 0})
    env.step(env.gold()[0])
    gold, before = env.gold(), env.state
    if before is None:
        raise RuntimeError("an episode has no state")
    began = time.perf_counter()
    seen = env.step(text)
    return Answered(env, text, before, gold, seen, time.perf_counter() - began)


def _stops(env: ALFWorldEnv, text: str) -> bool:
    """Return whether an episode that is won takes no further action."""
    env.reset(seed=0, options={"task": 0})
    play: Sequence[str] = env.gold()
    for command in play:
        env.step(command)
    won, state = not env.live, env.state
    try:
        env.step(text)
    except gymnasium.error.ResetNeeded:
        return won and env.state == state
    return False
