"""Where ALFWorld games are found: official folders and JSONL files, read when played.

`open_games` returns the `Games` of a split. It lists them with `list_rows_file`,
`list_split_folder` or `list_game_file`, which depends on the kind of source.

A large JSONL file is read once. Its index and its rows, each compressed, are then cached on disk,
and so is the index of a folder. A file or folder that changed is read again.
"""

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...tools.search.array_cache import (
    Arrays,
    Texts,
    cache_folder,
    digest_values,
    join_texts,
    load_or_make_arrays,
)
from ..rows import json_rows
from ..tasks import check_index, check_known
from .game import SPLITS, TASK_TYPES, Game, game_of_row, read_game
from .world import World

VERSION = 2  # of the format of the cached index and rows; part of the cache key
WORLDS = 1024  # the number of parsed games that a process caches
HOW_TO_GET_GAMES = (
    "get the official games with `pip install alfworld` and `alfworld-download` "
    "(it fills $ALFWORLD_DATA or ~/.cache/alfworld), or give JSONL rows with task, pddl_problem "
    "and walkthrough as games*.jsonl, .jsonl.gz or .jsonl.xz"
)
_GAME_FILE = "game.tw-pddl"


class GameEntry(NamedTuple):
    """What the index says of a game."""

    id: str
    split: str  # empty if the game's file does not say
    task_type: str  # empty if the game's file does not say
    solvable: bool


class ListedGame(NamedTuple):
    """A game of a source: what its index says, and a function that reads it."""

    entry: GameEntry
    read: Callable[[], Game]


ListGames: TypeAlias = Callable[[Path], tuple[ListedGame, ...]]


class Games(Sequence[Game]):
    """Games of one split, in the order of their ids; each is read when it is needed."""

    def __init__(self, name: str, split: str, listed_games: Sequence[ListedGame]) -> None:
        self.name = name
        self.split = split
        self._listed_games = listed_games

    def __len__(self) -> int:
        return len(self._listed_games)

    def __getitem__(self, i: Any) -> Any:
        check_index(i, self, "game")
        return self._listed_games[i].read()

    def open(self, i: int, text: str | None = None) -> tuple[Game, World]:
        """Return game `i` and its house, cached for the most recent ones.

        Args:
            i: The index of the game.
            text: The form of the text, `current` or `old`; that of the game's file if left out.

        Raises:
            IndexError: `i` is out of range.
            ValueError: The game does not parse.
        """
        check_index(i, self, "game")
        return _open_game(self._listed_games[i].read, text)


@lru_cache(WORLDS)
def _open_game(read: Callable[[], Game], text: str | None) -> tuple[Game, World]:
    game = read()
    return game, game.world(text)


def open_games(
    games: str | Path | None = None,
    split: str = "train",
    task_types: str | Sequence[str] | None = None,
) -> Games:
    """Return the solvable games of a split.

    Args:
        games: A folder of the official data (with or without `json_2.1.1`), a folder of
            `games*.jsonl` files, one such file or one `game.tw-pddl`; `$ALFWORLD_DATA`, then
            `~/.cache/alfworld`, if left out.
        split: `train`, `valid_train`, `valid_seen` or `valid_unseen`. `valid` is another name of
            `valid_seen` and `test` of `valid_unseen`. Games whose file names no split are in each.
        task_types: Some of `TASK_TYPES`, a sequence or a text with commas; all if left out.

    Raises:
        FileNotFoundError: There are no games. The message says where they were looked for and how
            to get them.
        ValueError: A file is not one of games, no game is of the split and the task types, or the
            split or a task type is unknown.
    """
    # Training and evaluation call the splits of every environment `train`, `valid` and `test`.
    official_names = {"valid": "valid_seen", "test": "valid_unseen"}
    split = official_names.get(split, split)
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; the splits of ALFWorld are {', '.join(SPLITS)}")
    chosen_types = parse_task_types(task_types)
    path = _find_games(games)
    sources = tuple(_list_sources(path, split))
    return _select_games(sources, path, split, chosen_types)


def parse_task_types(option: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the task types that an option names.

    Args:
        option: A sequence of names, or names with commas between them; all task types if None.

    Raises:
        ValueError: A name is unknown, or there is none.
    """
    if option is None:
        return TASK_TYPES
    raw_names = option.split(",") if isinstance(option, str) else option
    # An item that is no string is left for `check_known` to report.
    names = tuple(name.strip() if isinstance(name, str) else name for name in raw_names)
    for name in names:
        check_known(name, TASK_TYPES, f"unknown task type {name!r}", "the six are")
    if not names:
        raise ValueError(f"task_types is empty; choose from {', '.join(TASK_TYPES)}")
    return names


def _find_games(games: str | Path | None) -> Path:
    """Return the path of the games.

    Args:
        games: The path; if None, `$ALFWORLD_DATA` or else `~/.cache/alfworld`, where
            `alfworld-download` puts them.

    Raises:
        FileNotFoundError: The path does not exist.
    """
    if games is not None:
        path = Path(games).expanduser()
        if not path.exists():
            raise FileNotFoundError(
                f"games is {str(path)!r}, which does not exist; {HOW_TO_GET_GAMES}"
            )
        return path
    alfworld_data = os.environ.get("ALFWORLD_DATA", "")
    if alfworld_data:
        path = Path(alfworld_data).expanduser()
        if not path.is_dir():
            raise FileNotFoundError(
                "there are no ALFWorld games: no `games` given, "
                f"$ALFWORLD_DATA is {alfworld_data!r}, which is no folder; {HOW_TO_GET_GAMES}"
            )
        return path
    path = Path.home() / ".cache" / "alfworld"
    if not path.is_dir():
        raise FileNotFoundError(
            "there are no ALFWorld games: no `games` given, "
            f"$ALFWORLD_DATA is not set, no {path}; {HOW_TO_GET_GAMES}"
        )
    return path


def _list_sources(path: Path, split: str) -> list[tuple[ListedGame, ...]]:
    """Return the games of each source in a file or folder.

    A source is a file or the official folder of a split. A file may have games of other splits,
    which are returned as well.

    Args:
        path: A file, a folder of `games*.jsonl` files, or an official folder at any level: a split,
            the folder of the splits, or the folder that has `json_2.1.1`.
        split: The split to look for among official folders.

    Raises:
        FileNotFoundError: The folder has no games, or not those of the split.
    """
    if path.is_file():
        is_game_file = path.suffix in (".tw-pddl", ".json")
        list_games = list_game_file if is_game_file else list_rows_file
        return [_list_games_cached(list_games, path, file_key(path))]

    rows_files = [
        file
        for file in sorted(path.glob("games*.jsonl*"))
        if file.name.endswith((".jsonl", ".gz", ".xz"))
    ]
    if rows_files:
        return [_list_games_cached(list_rows_file, file, file_key(file)) for file in rows_files]

    split_folders = _find_split_folders(path)
    for folder in split_folders:
        if folder.name == split:
            return [_list_games_cached(list_split_folder, folder, file_key(folder))]
    if split_folders:
        names = ", ".join(folder.name for folder in split_folders)
        raise FileNotFoundError(
            f"{path} has the splits {names} but not {split}; {HOW_TO_GET_GAMES}"
        )
    raise FileNotFoundError(
        f"{path} has no games*.jsonl file and no folder of a split; {HOW_TO_GET_GAMES}"
    )


def _find_split_folders(path: Path) -> list[Path]:
    """Return the folders of splits in an official folder, or the folder itself if it is one."""
    if path.name in SPLITS:
        return [path]
    split_folders = []
    for parent in (path, *sorted(path.glob("json_2.1.*"))):
        for name in SPLITS:
            if (parent / name).is_dir():
                split_folders.append(parent / name)
    return split_folders


@lru_cache(64)  # the environments of a process share their games
def _select_games(
    sources: tuple[tuple[ListedGame, ...], ...],
    path: Path,
    split: str,
    task_types: tuple[str, ...],
) -> Games:
    """Return the solvable games of a split and of some task types, sorted by id.

    A game whose file names no split belongs to every split, and likewise for the task type.

    Args:
        sources: The games of each source.
        path: Where the sources were found, for the name of the games and for messages.
        split: One of `SPLITS`.
        task_types: Some of `TASK_TYPES`.

    Raises:
        ValueError: There is no such game.
    """
    selected_games = []
    available: Counter[tuple[str, str]] = Counter()  # by split and task type, for the error
    for game in chain.from_iterable(sources):
        entry = game.entry
        if not entry.solvable:
            continue
        available[entry.split, entry.task_type] += 1
        if entry.split in ("", split) and entry.task_type in ("", *task_types):
            selected_games.append(game)
    if not selected_games:
        available_texts = [
            f"{number} {task_type} in {split_name}"
            for (split_name, task_type), number in sorted(available.items())
        ]
        raise ValueError(
            f"{path} has no solvable game of split {split} and task types {', '.join(task_types)}; "
            f"it has {', '.join(available_texts) or 'no game'}"
        )
    selected_games.sort(key=lambda game: game.entry.id)
    return Games(str(path), split, selected_games)


@lru_cache(32)
def _list_games_cached(list_games: ListGames, path: Path, key: str) -> tuple[ListedGame, ...]:
    """Return the games of a source, with a cache.

    Args:
        list_games: Lists the games of a source of this sort.
        path: The source.
        key: The source's `file_key`, so that a source that changed is listed again.
    """
    return list_games(path)


# -- kinds of sources -----------------------------------------------------------------------------


def list_game_file(path: Path) -> tuple[ListedGame, ...]:
    """Return the game of an official `game.tw-pddl` file; it belongs to every split."""
    game = read_game(path)
    entry = _make_entry(game)._replace(split="")
    return (ListedGame(entry, lambda: game),)


def list_rows_file(path: Path) -> tuple[ListedGame, ...]:
    """Return the games of a JSONL file, one a line."""

    def make_entry_of_row(row: Any, location: str) -> GameEntry:
        return _make_entry(game_of_row(row, location))

    store = RowStore(path, make_entry_of_row)

    def read_row(i: int, id: str) -> Game:
        return game_of_row(store[i], where=id)

    listed_games = []
    for i, values in enumerate(store.index):
        entry = GameEntry._make(values)  # the cached index has lists of the fields
        listed_games.append(ListedGame(entry, partial(read_row, i, entry.id)))
    return tuple(listed_games)


def list_split_folder(path: Path) -> tuple[ListedGame, ...]:
    """Return the games of an official folder of a split: `path/TASK/TRIAL/game.tw-pddl`.

    Reading all files takes long, so their index is cached on disk until a task folder changes.
    """

    def index_games() -> tuple[Sequence[Any], Arrays]:
        """Read all games and return their index entries; there are no arrays to cache."""
        entries = []
        for file in sorted(path.glob(f"*/*/{_GAME_FILE}")):
            task_folder, trial_folder = file.parts[-3:-1]
            id = f"{path.name}/{task_folder}/{trial_folder}"
            if "movable" not in id and "Sliced" not in id:  # alfworld leaves them out as well
                entries.append(_make_entry(read_game(file, id, path.name)))
        return entries, {}

    task_folder_times = []
    with os.scandir(path) as folders:
        for folder in folders:
            if folder.is_dir():
                task_folder_times.append((folder.name, folder.stat().st_mtime_ns))
    key = f"folder {path.resolve()} {sorted(task_folder_times)}"
    index, _ = load_index(key, index_games)

    listed_games = []
    for values in index:
        entry = GameEntry._make(values)  # the cached index has lists of the fields
        file = path.parent / entry.id / _GAME_FILE
        listed_games.append(ListedGame(entry, partial(read_game, file, entry.id, entry.split)))
    return tuple(listed_games)


def _make_entry(game: Game) -> GameEntry:
    return GameEntry(game.id, game.split, game.task_type, game.solvable)


# -- the cache on disk ----------------------------------------------------------------------------


class RowStore:
    """The rows of one JSONL file, which are parsed once and then cached on disk.

    Args:
        path: The file.
        make_entry: Returns the index entry of a row. Its arguments are the row and its location,
            such as `games.jsonl:3`.

    Attributes:
        index: The entry of each row, as a list of its fields.

    Raises:
        ValueError: A line is not JSON, the file is not complete, or `make_entry` refuses a row by a
            ValueError.
    """

    def __init__(self, path: Path, make_entry: Callable[[Any, str], Sequence[Any]]) -> None:

        def read_file() -> tuple[Sequence[Any], Arrays]:
            """Return the index and, as arrays, all compressed rows end to end."""
            index = []
            compressed_rows = []
            for line_number, row in json_rows(path):
                index.append(make_entry(row, f"{path.name}:{line_number}"))
                compressed_rows.append(zlib.compress(json.dumps(row).encode(), level=1))
            data, ends = join_texts(compressed_rows)
            return index, {"rows": data, "ends": ends}

        self.index, arrays = load_index(f"rows {file_key(path)}", read_file)
        self._compressed_rows = Texts(arrays["rows"], arrays["ends"])

    def __getitem__(self, i: int) -> Any:
        return json.loads(zlib.decompress(self._compressed_rows[i]))


def load_index(
    key: str, build: Callable[[], tuple[Sequence[Any], Arrays]]
) -> tuple[list[list[Any]], Arrays]:
    """Return the index of a source and further arrays, from the cache on disk if possible.

    Args:
        key: Names the source, and changes when the source does.
        build: Reads the source and returns the index, whose entries are sequences of JSON values,
            and the arrays.

    Returns:
        The index, with entries as lists, and the arrays.
    """

    def build_arrays() -> Arrays:
        index, arrays = build()
        # The cache has only arrays, so the index is stored as the bytes of its JSON.
        index_bytes = np.frombuffer(json.dumps(index).encode(), np.uint8)
        return {"index": index_bytes, **arrays}

    cache_key = digest_values([VERSION, key])
    arrays = load_or_make_arrays(cache_folder("household"), cache_key, build_arrays)
    return json.loads(bytes(arrays["index"])), arrays


def file_key(path: Path) -> str:
    """Return a text that changes when the file does: its path, size in bytes and time of change."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
