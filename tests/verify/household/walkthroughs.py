"""The walkthroughs of games: they win, each command is admissible, and a second reading of the task agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from turngym.envs.household.game import Game
from turngym.envs.household.play import commands, step
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.goals import aim_of
from turngym.tests.verify.rows import Row, first


def walk_rows(catalogue: Catalogue) -> Iterator[Row]:
    """Count walkthroughs that win at their last command, their commands that are admissible, and agreeing readings."""
    lost, refused, steps, apart, states = list[str](), list[str](), 0, list[str](), 0
    unsolvable = [entry.id for entry in catalogue.entries if not entry.solvable]
    for game in catalogue:
        end = walk(game)
        steps, states = steps + len(game.walkthrough), states + end.judged
        lost += [f"{game.id} {end.fault}"] if end.fault else []
        refused += [f"{game.id} {command!r}" for command in end.refused]
        apart += [game.id] * end.apart
    named = f"unsolvable by their files: {first(unsolvable) or 'none'}"
    total = len(catalogue)
    yield Row(
        "walkthroughs of all games win",
        total - len(lost),
        total,
        "; ".join(filter(None, [first(lost), named])),
    )
    yield Row("their commands are admissible", steps - len(refused), steps, first(refused))
    if states:
        yield Row(
            "states in which the goal and the game's name say alike",
            states - len(apart),
            states,
            first(apart),
        )


@dataclass
class Walk:
    """How a walkthrough went."""

    fault: str = ""
    refused: list[str] = field(default_factory=list)
    judged: int = 0
    apart: int = 0


def walk(game: Game) -> Walk:
    """Play the walkthrough of a game to its end."""
    world, found, aim = game.world(), Walk(), aim_of(game)
    state = world.start
    for turn, command in enumerate(game.walk(), start=1):
        if command not in commands(world, state):
            found.refused.append(command)
        state, _ = step(world, state, command)
        won = world.is_won(state)
        if aim is not None:
            found.judged += 1
            found.apart += aim.reached(world, state) != won
        if won and turn < len(game.walkthrough):
            found.fault = found.fault or f"is won at command {turn} of {len(game.walkthrough)}"
    if not game.walkthrough or not world.is_won(state):
        found.fault = "is not won by its walkthrough"
    return found
