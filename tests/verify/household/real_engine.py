"""The real engine, where it is installed: it plays random policies, and its episodes are replayed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turngym.envs.household.game import Game
from turngym.tests.verify.household import player
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.episodes import episode_of_row, replay_rows
from turngym.tests.verify.rows import Row

MISSING = (
    "the real engine is not installed: `pip install alfworld 'textworld[pddl]'` here, or name the Python of an "
    "environment that has them with --real"
)


def interpreter(named: Path | None) -> Path | None:
    """Return the Python that has the real engine: the named one, or this one if it has it."""
    if named is not None:
        return named
    return Path(sys.executable) if find_spec("textworld") and find_spec("alfworld") else None


def real_rows(
    catalogue: Catalogue, python: Path, seed: int, games: int, steps: int
) -> Iterator[Row]:
    """Count the episodes and steps of the real engine that are replayed without a difference."""
    drawn = random.Random(f"real {seed}").sample(range(len(catalogue)), min(games, len(catalogue)))
    played = recorded(catalogue, python, drawn, seed, steps)
    found = (episode_of_row(row, f"the real engine's episode {i}") for i, row in enumerate(played))
    rows = list(replay_rows(catalogue, found, "the real engine"))
    if rows[0].of != len(drawn):
        yield Row(
            "the real engine: games played",
            rows[0].of,
            len(drawn),
            "it stopped; see what it wrote to stderr",
        )
    yield from rows


def recorded(
    catalogue: Catalogue, python: Path, numbers: list[int], seed: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield the episodes that the real engine plays in these games, as soon as each is played.

    Raises:
        OSError: that Python does not run.
        ValueError: it has no real engine.
    """
    command = [str(python), "-c", "import textworld, alfworld"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise ValueError(
            f"{python} cannot import alfworld and textworld: {asked.stderr.strip().splitlines()[-1]}"
        )
    common = catalogue.common()
    with tempfile.TemporaryFile("w+") as games:
        for i in numbers:
            game = catalogue.read(i)
            games.write(json.dumps({"id": game.id, "game": official(game, common)}) + "\n")
        games.seek(0)
        script = [str(python), str(Path(player.__file__)), str(seed), str(steps)]
        with subprocess.Popen(script, stdin=games, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                yield json.loads(line)


def official(game: Game, common: dict[str, Any]) -> dict[str, Any]:
    """Return what the official file of a game holds, as far as the engine reads it."""
    grammar = common["grammar_template"].replace("@@TASK@@", game.task)
    walkthrough, solvable = list(game.walkthrough), game.solvable
    rules = {"pddl_domain": common["pddl_domain"], "grammar": grammar, "pddl_problem": game.problem}
    return {**rules, "walkthrough": walkthrough, "solvable": solvable}
