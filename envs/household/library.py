"""Where ALFWorld games are found: official folders and JSONL files, indexed once and read when they are played.

Large JSONL files are read once, then kept on disk as an index and rows, each compressed; so is the index of a folder. A
file or folder that changed is read again.
"""

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...tools.search.array_cache import Arrays, Texts, cache_folder, digest, joined, kept
from ..rows import json_rows
from ..tasks import check_index, check_known
from .game import SPLITS, TASK_TYPES, Game, game_of_row, read_game
from .world import World

VERSION = 2  # of what is kept of a source


def indexed(
    key: str, make: Callable[[], tuple[Sequence[Any], Arrays]]
) -> tuple[list[list[Any]], Arrays]:
    """Return the index of a source and the arrays beside it, which `make` makes where they are not kept yet."""

    def made() -> Arrays:
        index, arrays = make()
        return {"index": np.frombuffer(json.dumps(index).encode(), np.uint8), **arrays}

    arrays = kept(cache_folder("household"), digest([VERSION, key]), made)
    return json.loads(bytes(arrays["index"])), arrays


def file_key(path: Path) -> str:
    """Return a text that changes when the file does."""
    found = path.stat()
    return f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"


class Store:
    """The rows of one JSONL file; `head` makes the index entry of a row, given with its file and line.

    Raises ValueError where a line is not JSON, the file not complete, or `head` refuses a row by a ValueError.
    """

    def __init__(self, path: Path, head: Callable[[Any, str], Sequence[Any]]) -> None:

        def packed() -> tuple[Sequence[Any], Arrays]:
            index, rows = [], []
            for number, row in json_rows(path):
                index.append(head(row, f"{path.name}:{number}"))
                rows.append(zlib.compress(json.dumps(row).encode(), 1))
            data, ends = joined(rows)
            return index, {"rows": data, "ends": ends}

        self.index, arrays = indexed(f"rows {file_key(path)}", packed)
        self._rows = Texts(arrays["rows"], arrays["ends"])

    def __getitem__(self, i: int) -> Any:
        return json.loads(zlib.decompress(self._rows[i]))


GET = (
    "get the official games with `pip install alfworld` and `alfworld-download` (it fills $ALFWORLD_DATA or "
    "~/.cache/alfworld), or give JSONL rows with task, pddl_problem and walkthrough as games*.jsonl, .jsonl.gz or "
    ".jsonl.xz"
)
WORLDS = 1024  # houses that a process keeps parsed


class GameEntry(NamedTuple):
    """What the index knows of a game."""

    id: str
    split: str
    task_type: str
    solvable: bool


def _entry(game: Game) -> GameEntry:
    return GameEntry(game.id, game.split, game.task_type, game.solvable)


Listed: TypeAlias = tuple[GameEntry, Callable[[], Game]]
"""What the index knows of a game, and what reads it."""


def game_rows(path: Path) -> tuple[Listed, ...]:
    store = Store(path, lambda row, where: _entry(game_of_row(row, where)))
    entries = enumerate(map(GameEntry._make, store.index))
    return tuple(
        (one, partial(lambda i, id: game_of_row(store[i], id), i, one.id)) for i, one in entries
    )


def game_folder(path: Path) -> tuple[Listed, ...]:
    """Return the games of a split of the official data: `TASK/TRIAL/game.tw-pddl` in a folder that the split names."""

    def scanned() -> tuple[Sequence[Any], Arrays]:
        files = {
            "/".join((path.name, *file.parts[-3:-1])): file
            for file in sorted(path.glob("*/*/game.tw-pddl"))
        }
        games = [
            id for id in files if "movable" not in id and "Sliced" not in id
        ]  # as alfworld leaves them out
        return [_entry(read_game(files[id], id, path.name)) for id in games], {}

    with os.scandir(path) as tasks:
        state = sorted((task.name, task.stat().st_mtime_ns) for task in tasks if task.is_dir())
    index, _ = indexed(f"folder {path.resolve()} {state}", scanned)
    entries = map(GameEntry._make, index)
    file = "game.tw-pddl"
    return tuple(
        (one, partial(read_game, path.parent / one.id / file, one.id, one.split)) for one in entries
    )


def game_file(path: Path) -> tuple[Listed, ...]:
    game = read_game(path)
    return ((_entry(game)._replace(split=""), lambda: game),)


class Games(Sequence[Game]):
    """Games of one split and of some task types, in the order of their ids; each is read when it is asked for."""

    def __init__(self, name: str, split: str, chosen: Sequence[Listed]) -> None:
        self.name, self.split = name, split
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, i: Any) -> Any:
        check_index(i, self, "game")
        return self._chosen[i][1]()

    def open(self, i: int, text: str | None = None) -> tuple[Game, World]:
        """Return game `i` and its house; those that were opened last are kept.

        Raises IndexError where it is out of range; ValueError where the game does not parse.
        """
        check_index(i, self, "game")
        return _opened(self._chosen[i][1], text)


def open_games(
    games: str | Path | None = None,
    split: str = "train",
    task_types: str | Sequence[str] | None = None,
) -> Games:
    """Return the solvable games of a split.

    Args:
        games: A folder of the official data (with or without `json_2.1.1`), a folder of `games*.jsonl` files, one such
            file or one `game.tw-pddl`; `$ALFWORLD_DATA`, then `~/.cache/alfworld`, when left out.
        split: `train`, `valid_train`, `valid_seen` or `valid_unseen`; training and evaluation ask for `valid`, which is
            `valid_seen`, and `test`, which is `valid_unseen`. Games whose file names no split are in each.
        task_types: Some of `TASK_TYPES`, a sequence or a text with commas; all when left out.

    Raises FileNotFoundError where there are no games; the message says where they were looked for and how to get them;
    ValueError where a file holds no games, or none is left, or split or task type is unknown.
    """
    split = {"valid": "valid_seen", "test": "valid_unseen"}.get(split, split)
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; the splits of ALFWorld are {', '.join(SPLITS)}")
    kinds = task_types_of(task_types)
    path = _path(games)
    return _selected(tuple(_sources(path, split)), path, split, kinds)


@lru_cache(64)  # the environments of a process share their games
def _selected(
    sources: tuple[tuple[Listed, ...], ...], path: Path, split: str, kinds: tuple[str, ...]
) -> Games:
    solvable = [found for source in sources for found in source if found[0].solvable]
    chosen = [
        found
        for found in solvable
        if found[0].split in ("", split) and found[0].task_type in ("", *kinds)
    ]
    if not chosen:
        there = Counter((entry.split, entry.task_type) for entry, _ in solvable)
        have = ", ".join(
            f"{number} {kind} in {name}" for (name, kind), number in sorted(there.items())
        )
        wanted = f"split {split} and task types {', '.join(kinds)}"
        raise ValueError(f"{path} has no solvable game of {wanted}; it has {have or 'no game'}")
    return Games(str(path), split, sorted(chosen, key=lambda found: found[0].id))


def task_types_of(option: str | Sequence[str] | None) -> tuple[str, ...]:
    if option is None:
        return TASK_TYPES
    names = option.split(",") if isinstance(option, str) else option
    names = tuple(name.strip() if isinstance(name, str) else name for name in names)
    for name in names:
        check_known(name, TASK_TYPES, f"unknown task type {name!r}", "the six are")
    if not names:
        raise ValueError(f"task_types is empty; choose from {', '.join(TASK_TYPES)}")
    return names


def _path(games: str | Path | None) -> Path:
    if games is not None:
        path = Path(games).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"games is {str(path)!r}, which does not exist; {GET}")
        return path
    named = os.environ.get("ALFWORLD_DATA", "")
    path = Path(named).expanduser() if named else Path.home() / ".cache" / "alfworld"
    if path.is_dir():
        return path
    places = (
        f"$ALFWORLD_DATA is {named!r}, which is no folder"
        if named
        else f"$ALFWORLD_DATA is not set, no {path}"
    )
    raise FileNotFoundError(f"there are no ALFWorld games: no `games` given, {places}; {GET}")


def _sources(path: Path, split: str) -> list[tuple[Listed, ...]]:
    if path.is_file():
        return [
            _shared(
                game_file if path.suffix in (".tw-pddl", ".json") else game_rows,
                path,
                file_key(path),
            )
        ]
    files = [
        file
        for file in sorted(path.glob("games*.jsonl*"))
        if file.name.endswith((".jsonl", ".gz", ".xz"))
    ]
    if files:
        return [_shared(game_rows, file, file_key(file)) for file in files]
    inside = [
        folder / name for folder in (path, *sorted(path.glob("json_2.1.*"))) for name in SPLITS
    ]
    folders = [path] if path.name in SPLITS else [folder for folder in inside if folder.is_dir()]
    if found := [folder for folder in folders if folder.name == split]:
        return [_shared(game_folder, found[0], file_key(found[0]))]
    there = ", ".join(folder.name for folder in folders)
    what = (
        f"the splits {there} but not {split}"
        if there
        else "no games*.jsonl file and no folder of a split"
    )
    raise FileNotFoundError(f"{path} has {what}; {GET}")


@lru_cache(32)  # while `key`, that of the file, stays as it is
def _shared(kind: Callable[[Path], tuple[Listed, ...]], path: Path, key: str) -> tuple[Listed, ...]:
    return kind(path)


@lru_cache(WORLDS)
def _opened(read: Callable[[], Game], text: str | None) -> tuple[Game, World]:
    game = read()
    return game, game.world(text)
