"""Fuzzed commands: whatever is written, nothing crashes, and an episode ends only when its task is done, and pays 1."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field

import gymnasium

from turngym.envs.household.env import ALFWorldEnv
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.episodes import ENDLESS
from turngym.tests.verify.household.goals import Aim, aim_of
from turngym.tests.verify.rows import Row, first

VERBS = (
    *(
        "go to",
        "open",
        "close",
        "take",
        "move",
        "put",
        "use",
        "heat",
        "clean",
        "cool",
        "slice",
        "examine",
        "look",
    ),
    *(
        "inventory",
        "help",
        "undo",
        "restart",
        "quit",
        "save",
        "think:",
        "done",
        "LOOK",
        "walkthrough",
    ),
)
JOINS = ("from", "to", "with", "in/on", "and", ",", "")
ODD = (
    "\x00",
    "\n",
    "\ud800",
    "é",
    "🏠",
    "<action>",
    "</action>",
    "  ",
    "\t",
    "\u2028",
    "{}",
    "%s",
    "1" * 40,
    "loc 1",
)
GOLD = 0.05  # share of commands that are an expert's, so that episodes do end


@dataclass
class Fuzzed:
    """What was seen: strings, episodes that ended, and what went wrong."""

    strings: int = 0
    ended: int = 0
    bad: list[str] = field(default_factory=list)


def fuzz_row(catalogue: Catalogue, seed: int, games: int, strings: int) -> Row:
    """Count the strings that are answered without harm, in games that are drawn."""
    drawn, total, ended, bad = random.Random(f"fuzz {seed}"), 0, 0, list[str]()
    solvable = [i for i, entry in enumerate(catalogue.entries) if entry.solvable]
    chosen = drawn.sample(solvable, min(games, len(solvable)))
    for i in chosen:
        found = fuzz(
            catalogue.env([i], max_turns=ENDLESS), aim_of(catalogue.read(i)), f"{seed} {i}", strings
        )
        total, ended = total + found.strings, ended + found.ended
        bad += [f"{catalogue.entries[i].id} {fault}" for fault in found.bad]
    what = "fuzzed commands neither crash, nor end an episode wrongly, nor earn more than 1"
    note = first(bad, 3) or f"{len(chosen)} games, {ended} episodes were won between them"
    return Row(what, total - len(bad), total, note)


def fuzz(env: ALFWorldEnv, aim: Aim | None, key: str, strings: int) -> Fuzzed:
    """Write many commands in one game, beginning it again whenever it is won."""
    drawn, found = random.Random(f"commands {key}"), Fuzzed()
    env.reset(seed=0, options={"task": 0})
    for text in _texts(env, drawn, strings):
        found.strings += 1
        try:
            fault = _fault(env, aim, text)
        except Exception as error:  # whatever it is, it counts
            fault = f"raises {type(error).__name__}: {error}"
        found.bad += [f"{text[:60]!r} {fault}"] if fault else []
        if not env.live:
            found.ended += 1
            env.reset(seed=0, options={"task": 0})
    return found


def _fault(env: ALFWorldEnv, aim: Aim | None, text: str) -> str:
    before = env.state
    answer, reward, ended, cut, info = env.step(text)
    done = env.world is not None and env.state is not None and env.world.is_won(env.state)
    if aim is not None and env.world is not None and env.state is not None:
        done = done and aim.reached(env.world, env.state)
    if (ended, reward) != (done, float(done)) or cut:
        return f"ended {ended}, cut {cut}, reward {reward} with the task {'done' if done else 'not done'}"
    if sum(env.turn_rewards) > 1:
        return f"brings the reward to {sum(env.turn_rewards)}"
    if not answer or not (info.get("allowed") or env.state == before):
        return "is not allowed and changes something, or is not answered"
    return _after_end(env) if ended else ""


def _after_end(env: ALFWorldEnv) -> str:
    try:
        env.step("look")
    except gymnasium.error.ResetNeeded:
        return ""
    return "goes on after the end"


def _texts(env: ALFWorldEnv, drawn: random.Random, count: int) -> Iterator[str]:
    """Yield commands that are allowed, nearly so, of other games, or no commands at all."""
    if env.world is None:
        raise RuntimeError("there is no game: call reset() first")
    names = [*env.world.thing_names, *env.world.receptacle_names, "fridge 9", "nowhere 1"]
    for _ in range(count):
        kind = drawn.random()
        if kind < GOLD:
            yield env.gold()[0]
        elif kind < 0.35:
            yield drawn.choice(env.admissible_commands())
        elif kind < 0.55:
            yield _bent(drawn, drawn.choice(env.admissible_commands()))
        elif kind < 0.85:
            words = (
                drawn.choice(VERBS),
                drawn.choice(names),
                drawn.choice(JOINS),
                drawn.choice(names),
            )
            yield " ".join(words[: drawn.randrange(1, 5)])
        else:
            yield "".join(
                drawn.choice((*ODD, *string.printable, *names)) for _ in range(drawn.randrange(12))
            )


def _bent(drawn: random.Random, command: str) -> str:
    """Return a command with something cut, doubled, or put in somewhere."""
    at = drawn.randrange(len(command) + 1)
    ways = (
        command[:at],
        command[at:],
        command[:at] + drawn.choice(ODD) + command[at:],
        command.upper(),
        command * 2,
    )
    return drawn.choice(
        (*ways, f"{command}\n{command}", f"<action>{command}</action> {command}", f" {command} ")
    )
