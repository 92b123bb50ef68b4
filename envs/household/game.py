"""One ALFWorld game: read from an official `game.tw-pddl` file or from a row of a JSONL file."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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

_PUT_COMMAND = re.compile(r"(?:move|put) (.+) (?:to|in/on) (.+)")
# The rule of a grammar that differs from game to game: `"task": [{"rhs": "Your task is to: ..."`.
_TASK_RULE = re.compile(
    r"""
    (?P<before> "task" \s*:\s* \[ \s* \{ \s* "rhs" \s*:\s* )
    (?P<sentence> " (?: [^"\\] | \\. )* " )   # a JSON string
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r";[^\n]*")
# Digests (see `_digest`) of the rules that `play` was written from: those of the official games,
# those that alfworld 0.4.2 ships for making new ones, and those of the official games before
# alfworld's own patch to version 2.1.2, which added `help` and renamed `put`.
_DOMAIN_DIGESTS = ("abd977daed3ce87d", "9f953aecdc35af60", "4c70787d391c88d2")
_TEXT_BY_GRAMMAR_DIGEST = {
    "a1b429d0132e6637": "current",
    "d1588fc1bc2859ce": "current",
    "f8435e3d06cdb224": "old",
}
"""The form of the text of each grammar."""


@dataclass(frozen=True)
class Game:
    """A game as its file has it.

    Args:
        id: Names the game; official games are called `split/task folder/trial`.
        split: One of `SPLITS`; empty if the file does not say.
        task_type: One of `TASK_TYPES`; empty if the file does not say.
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
        """Return the house of this game.

        Args:
            text: The form of its text; that of the game's file if left out.

        Raises:
            ValueError: The game does not parse, or any command would win it; the message names it.
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
        if world.is_won(world.start):
            raise ValueError(
                f"game {self.id}: its goal holds before a command is given, "
                "so any command would be paid"
            )
        return world

    def walk(self, text: str | None = None) -> list[str]:
        """Return the walkthrough in the words of a form of text; that of the file if left out."""
        dialect = get_dialect(text or self.text)
        put_command = rf"{dialect.put} \1 {dialect.into} \2"
        return [_PUT_COMMAND.sub(put_command, command) for command in self.walkthrough]


def game_of_row(row: Any, where: str) -> Game:
    """Return the game of one JSON row.

    Args:
        row: An object with `task`, `pddl_problem` and maybe `id`, `split`, `task_type`,
            `walkthrough`, `solvable`.
        where: The file and line of the row, for messages; also the game's id if the row has none.

    Raises:
        ValueError: A field is missing or has another type; the message begins with `where`.
    """
    if not isinstance(row, dict):
        raise ValueError(
            f"{where} is a {type(row).__name__}; a game is a JSON object with task and pddl_problem"
        )
    task_type = _get_text(row, "task_type", where, default="")
    if task_type not in ("", *TASK_TYPES):
        raise ValueError(
            f"{where} has task_type {task_type!r}; the task types are {', '.join(TASK_TYPES)}"
        )
    return Game(
        id=_get_text(row, "id", where, default=where),
        split=_get_text(row, "split", where, default=""),
        task_type=task_type,
        task=_get_text(row, "task", where),
        problem=_get_text(row, "pddl_problem", where),
        walkthrough=_get_walkthrough(row, where),
        solvable=row.get("solvable", True) is not False,
    )


def read_game(path: Path, id: str = "", split: str = "") -> Game:
    """Read an official `game.tw-pddl` file.

    The names of its folders give the task type and maybe the split, as in
    `valid_seen/pick_heat_then_place_in_recep-Egg-None-Fridge-1/trial_1/game.tw-pddl`.

    Args:
        path: The file.
        id: The id of the game; the last three folders of the path if left out.
        split: The split of the game; the one that a folder is named after if left out.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no game, or has other rules than ALFWorld's.
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
            f"{where} is a {type(data).__name__}; "
            "a game is a JSON object with grammar and pddl_problem"
        )
    rules = _read_rules(data, where)

    folders = path.resolve().parent.parts
    possible_task_types = [folder.partition("-")[0] for folder in folders]
    task_type = _find_innermost(possible_task_types, TASK_TYPES)
    if not split:
        split = _find_innermost(folders, SPLITS)
    return Game(
        id=id or "/".join(folders[-3:]),
        split=split,
        task_type=task_type,
        task=rules.task,
        problem=_get_text(data, "pddl_problem", where),
        walkthrough=_get_walkthrough(data, where),
        solvable=data.get("solvable", True) is not False,
        text=rules.text,
    )


def _find_innermost(folder_names: Sequence[str], wanted_names: Sequence[str]) -> str:
    """Return the last folder name of a path that is a wanted one, empty if there is none."""
    for name in reversed(folder_names):
        if name in wanted_names:
            return name
    return ""


class _Rules(NamedTuple):
    """The parts of an official file's grammar that differ between games."""

    task: str  # the sentence that states the task
    text: str  # the form of the text, `current` or `old`


def _read_rules(data: Mapping[str, Any], where: str) -> _Rules:
    """Check that the grammar and the domain of an official file are ALFWorld's, and read them.

    The module `play` has these rules built in, so a file with others would be played wrongly.

    Args:
        data: The JSON object of the file, with `grammar` and `pddl_domain`.
        where: The path of the file, for messages.

    Raises:
        ValueError: The grammar or the domain is not ALFWorld's.
    """
    grammar = _get_text(data, "grammar", where)
    task_rule = _TASK_RULE.search(grammar)
    if task_rule is None:
        raise ValueError(f'{where}: its grammar has no rule "task"')
    # The sentence of the task is the only part of a grammar that differs from game to game.
    grammar_without_task = _TASK_RULE.sub(r'\g<before>""', grammar)
    text = _TEXT_BY_GRAMMAR_DIGEST.get(_digest(grammar_without_task))
    if text is None:
        raise ValueError(
            f"{where}: its grammar is not ALFWorld's, "
            "whose sentences are the only ones that turngym plays"
        )
    domain = _COMMENT.sub("", _get_text(data, "pddl_domain", where)).lower()
    if _digest(domain) not in _DOMAIN_DIGESTS:
        raise ValueError(
            f"{where}: its pddl_domain differs from ALFWorld's, "
            "whose rules are the only ones supported"
        )
    # Official sentences have line breaks, which strict JSON does not allow in a string.
    task = str(json.loads(task_rule["sentence"], strict=False))
    return _Rules(task, text)


def _get_text(row: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    """Return a text field of a game.

    Args:
        row: The JSON object of the game.
        name: The name of the field.
        where: The origin of the object, for messages.
        default: The value of a missing field; None if it must not be missing.

    Raises:
        ValueError: The field is not a text, or is missing.
    """
    value = row.get(name, default)
    if not isinstance(value, str):
        fault = "is missing" if value is None else f"is a {type(value).__name__}"
        raise ValueError(f"{where}: field {name!r} {fault}; a game needs it as text")
    return value


def _get_walkthrough(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the commands of a game's walkthrough; raise ValueError if it is no list."""
    walkthrough = row.get("walkthrough") or []
    is_list = isinstance(walkthrough, Sequence)
    if not is_list or not all(isinstance(command, str) for command in walkthrough):
        raise ValueError(
            f"{where}: field 'walkthrough' is {walkthrough!r}; it is a list of commands"
        )
    return tuple(walkthrough)


def _digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of the sha256 of a text without its white space."""
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:16]
