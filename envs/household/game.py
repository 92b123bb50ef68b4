"""One ALFWorld game: read from an official `game.tw-pddl` file or from a row of a JSONL file."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .pddl import parse_problem
from .world import World, get_dialect, make_world

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of tasks of ALFWorld."""
SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
"""The splits of the official games."""

_PUT = re.compile(r"(?:move|put) (.+) (?:to|in/on) (.+)")
_TASK_LINE = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("(?:[^"\\]|\\.)*")')
_COMMENT = re.compile(r";[^\n]*")
# sha256 (first 16 digits) of the rules that `play` and `grammar` were written from, blanks and comments aside: those of
# the official games, those that alfworld 0.4.2 ships for making new ones, and those of the official games before
# alfworld's own patch to version 2.1.2, which added `help` and renamed `put`.
_DOMAINS = ("abd977daed3ce87d", "9f953aecdc35af60", "4c70787d391c88d2")
_GRAMMARS = {
    "a1b429d0132e6637": "current",
    "d1588fc1bc2859ce": "current",
    "f8435e3d06cdb224": "old",
}


@dataclass(frozen=True)
class Game:
    """A game as its file holds it.

    Args:
        id: Names the game; official games are called `split/task folder/trial`.
        split: `train`, `valid_train`, `valid_seen`, `valid_unseen`; empty where the file does not say.
        task_type: One of `TASK_TYPES`; empty where the file does not say.
        task: The sentence that states the task.
        problem: The PDDL problem.
        walkthrough: An expert's commands, for grading and demonstrations only.
        solvable: Whether the official generator found it so.
        text: The form of its text, `current` or `old`.
    """

    id: str
    split: str
    task_type: str
    task: str
    problem: str = field(repr=False)
    walkthrough: tuple[str, ...] = field(repr=False)
    solvable: bool = True
    text: str = "current"

    def world(self, text: str | None = None) -> World:
        """Return the house of this game, in the form of text of its file or in another.

        Raises ValueError where the game does not parse, or any command would win it; the message names it.
        """
        dialect = get_dialect(text or self.text)
        try:
            world = make_world(parse_problem(self.problem), self.task, dialect)
        except ValueError as error:
            raise ValueError(f"game {self.id}: its pddl_problem {error}") from None
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"game {self.id}: its pddl_problem is no house of ALFWorld ({error!r})"
            ) from None
        if world.won(world.start):
            raise ValueError(
                f"game {self.id}: its goal holds before a command is given, so any command would be paid"
            )
        return world

    def walk(self, text: str | None = None) -> list[str]:
        """Return the walkthrough in the words of a form of text."""
        dialect = get_dialect(text or self.text)
        return [
            _PUT.sub(rf"{dialect.put} \1 {dialect.into} \2", command)
            for command in self.walkthrough
        ]


def game_of_row(row: Any, where: str) -> Game:
    """Return the game of one JSON row: `task, pddl_problem`, and maybe `id, split, task_type, walkthrough, solvable`.

    Raises ValueError where a field is missing or of another kind; the message begins with `where`.
    """
    if not isinstance(row, dict):
        raise ValueError(
            f"{where} is a {type(row).__name__}; a game is a JSON object with task and pddl_problem"
        )
    task_type = _field(row, "task_type", where, "")
    if task_type and task_type not in TASK_TYPES:
        raise ValueError(
            f"{where} has task_type {task_type!r}; the task types are {', '.join(TASK_TYPES)}"
        )
    return Game(
        _field(row, "id", where, where),
        _field(row, "split", where, ""),
        task_type,
        _field(row, "task", where),
        _field(row, "pddl_problem", where),
        _walkthrough(row, where),
        row.get("solvable", True) is not False,
    )


def read_game(path: Path, id: str = "", split: str = "") -> Game:
    """Read an official `game.tw-pddl` file; task type and, unless given, id and split are taken from its folders.

    Raises FileNotFoundError where there is no such file; ValueError where the file is no game, or has other rules than
    ALFWorld's.
    """
    if not path.is_file():
        raise FileNotFoundError(f"game file {path} does not exist")
    where = str(path)
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{where} is not JSON in UTF-8: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(
            f"{where} is a {type(data).__name__}; a game is a JSON object with grammar and pddl_problem"
        )
    grammar = _field(data, "grammar", where)
    if (task := _TASK_LINE.search(grammar)) is None:
        raise ValueError(f'{where}: its grammar has no rule "task"')
    if (text := _GRAMMARS.get(_digest(_TASK_LINE.sub(r'\1""', grammar)))) is None:
        raise ValueError(
            f"{where}: its grammar is not ALFWorld's, whose sentences are the only ones that turngym plays"
        )
    if _digest(_COMMENT.sub("", _field(data, "pddl_domain", where)).lower()) not in _DOMAINS:
        raise ValueError(
            f"{where}: its pddl_domain differs from ALFWorld's, whose rules are the only ones supported"
        )
    folders = path.resolve().parent.parts
    kind = next(
        (
            part.partition("-")[0]
            for part in reversed(folders)
            if part.partition("-")[0] in TASK_TYPES
        ),
        "",
    )
    split = split or next((part for part in reversed(folders) if part in SPLITS), "")
    sentence, problem = str(json.loads(task[2], strict=False)), _field(data, "pddl_problem", where)
    walk, solvable = _walkthrough(data, where), data.get("solvable", True) is not False
    return Game(id or "/".join(folders[-3:]), split, kind, sentence, problem, walk, solvable, text)


def _field(row: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = row.get(name, default)
    if not isinstance(value, str):
        found = "is missing" if value is None else f"is a {type(value).__name__}"
        raise ValueError(f"{where}: field {name!r} {found}; a game needs it as text")
    return value


def _walkthrough(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    walkthrough = row.get("walkthrough") or []
    if not isinstance(walkthrough, Sequence) or not all(
        isinstance(command, str) for command in walkthrough
    ):
        raise ValueError(
            f"{where}: field 'walkthrough' is {walkthrough!r}; it is a list of commands"
        )
    return tuple(walkthrough)


def _digest(text: str) -> str:
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:16]
