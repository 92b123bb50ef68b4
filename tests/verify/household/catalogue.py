"""The games of any files, solvable or not: each is read when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.household.game import Game
from turngym.envs.household.library import (
    GameEntry,
    Games,
    ListedGame,
    list_game_file,
    list_rows_file,
)

GAME = "game.tw-pddl"
COMMON = "game_common.json"


class Catalogue:
    """Games of files: rows (`.jsonl`, `.jsonl.gz`, `.jsonl.xz`), official `game.tw-pddl` files and folders of them.

    Raises:
        FileNotFoundError: a path does not exist, or a folder holds no games.
        ValueError: a file holds none.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._folders = [path if path.is_dir() else path.parent for path in paths]
        self.chosen: list[ListedGame] = [found for path in paths for found in _listed(path)]
        self.entries: list[GameEntry] = [game.entry for game in self.chosen]
        if not self.entries:
            raise ValueError(
                f"there is no game in {', '.join(map(str, paths)) or 'no file'}; --games names files"
            )
        self._number = {entry.id: i for i, entry in enumerate(self.entries)}

    def __len__(self) -> int:
        """Return the number of games."""
        return len(self.entries)

    def __iter__(self) -> Iterator[Game]:
        """Read one game after the other."""
        return (self.read(i) for i in range(len(self)))

    def read(self, i: int) -> Game:
        """Return game `i`."""
        return self.chosen[i].read()

    def find(self, id: str) -> int | None:
        """Return the number of the game of that id."""
        return self._number.get(id)

    def env(
        self, numbers: Sequence[int], text: str | None = None, max_turns: int = 50
    ) -> ALFWorldEnv:
        """Make the environment over some of the games, in this order."""
        return ALFWorldEnv(
            Games("the files", "", [self.chosen[i] for i in numbers]),
            text=text,
            max_turns=max_turns,
        )

    def common(self) -> dict[str, Any]:
        """Return the rules that all games share, from `game_common.json` beside them.

        Raises:
            FileNotFoundError: it is beside none of the files.
        """
        for folder in self._folders:
            if (path := folder / COMMON).is_file():
                shared: dict[str, Any] = json.loads(path.read_text("utf-8"))
                return shared
        raise FileNotFoundError(
            f"{COMMON} is beside none of the games, and the real engine needs its rules"
        )


def _listed(path: Path) -> tuple[ListedGame, ...]:
    if path.is_dir():
        files = sorted(path.glob("games*.jsonl*")) or sorted(path.rglob(GAME))
        if not files:
            raise FileNotFoundError(
                f"{path} holds neither games*.jsonl files nor a {GAME}; --games names files"
            )
        return tuple(found for file in files for found in _listed(file))
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; --games names files of games")
    return (
        list_game_file(path) if path.name.endswith((".tw-pddl", ".json")) else list_rows_file(path)
    )
