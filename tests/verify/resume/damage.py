"""Damaged checkpoints: none may be loaded, the one before must be, and nothing planted may be opened."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from turngym.agents.journal.checkpoint import CheckpointError, latest, steps
from turngym.agents.journal.trees import Incident
from turngym.tests.verify.resume.corruption import PLANTED, WAYS
from turngym.tests.verify.rows import Row, Tally
from turngym.training.runs.folder import read_boundary

PICKLE = Path("pickle")
_OPENED: list[Path] = []
_WATCHED: list[Path] = []
_HOOKED: list[bool] = []


class Damage:
    """Checkpoints of a finished run, damaged in every way that `WAYS` knows."""

    def __init__(self, run: Path, folder: Path, seed: int) -> None:
        *_, self.older, self.newest = steps(run / "checkpoints")
        self.folder, self.rng = folder, random.Random(seed)
        shutil.copytree(self.older, folder / self.older.name)

    def rows(self, count: int) -> Iterator[Row]:
        """Yield what `count` damaged checkpoints, kind by kind in turn, come to."""
        _watch(self.folder)
        log = logging.getLogger(latest.__module__)
        level = log.level
        log.setLevel(logging.ERROR)  # a warning for each would hide the rows
        used = Tally("damaged checkpoints: passed over for the one before")
        told = Tally("… and named in one incident")
        shut = Tally("… and what was planted is not opened, let alone unpickled")
        for number, (name, damage) in zip(range(count), cycle(WAYS.items())):
            victim, case = self._fresh(), f"{number} {name}"
            damage(victim, self.rng)
            _OPENED.clear()
            incidents: list[Incident] = []
            try:
                found = latest(self.folder, incidents.append, read_boundary)
            except CheckpointError as error:
                used.add(case, str(error))
            else:
                used.add(case, found != self.folder / self.older.name)
            whats = [incident.what for incident in incidents if incident.kind == "checkpoint"]
            told.add(case, len(whats) != 1 or victim.name not in whats[0])
            shut.add(
                case,
                any(_is_planted(path, victim) for path in _OPENED) or Path("unpickled").exists(),
            )
        _WATCHED.clear()
        log.setLevel(level)
        yield from (used.row(), told.row(), shut.row(), self._all_damaged(max(count // 10, 1)))

    def _all_damaged(self, count: int) -> Row:
        """Damage both checkpoints: that is an error that names both."""
        tally = Tally("all checkpoints damaged: an error names each")
        older = self.folder / self.older.name
        for number in range(count):
            _remove(older)
            shutil.copytree(self.older, older)
            names = [self.rng.choice(list(WAYS)) for _ in range(2)]
            for name, path in zip(names, (self._fresh(), older)):
                WAYS[name](path, self.rng)
            case = f"{number} {' and '.join(names)}"
            try:
                tally.add(case, f"{latest(self.folder, check=read_boundary)} was loaded")
            except CheckpointError as error:
                unnamed = self.newest.name not in str(error) or older.name not in str(error)
                tally.add(case, str(error) if unnamed else "")
        return tally.row()

    def _fresh(self) -> Path:
        victim = self.folder / self.newest.name
        _remove(victim)
        shutil.copytree(self.newest, victim)
        return victim


# --- what is opened


def _watch(folder: Path) -> None:
    """Note from now on what is opened below `folder`. A hook cannot be removed, so one is added and left idle."""
    if not _HOOKED:
        sys.addaudithook(_on_event)
        _HOOKED.append(True)
    _WATCHED.append(folder)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and _WATCHED:
        _OPENED.append(PICKLE)
    if event == "open" and _WATCHED and isinstance(arguments[0], str | os.PathLike):
        path = Path(arguments[0])
        if _WATCHED[-1] in path.parents:
            _OPENED.append(path)


def _is_planted(path: Path, checkpoint: Path) -> bool:
    inside = checkpoint in path.parents
    return (
        path == PICKLE
        or path.name == "outside"
        or (inside and path.relative_to(checkpoint).as_posix() in PLANTED)
    )


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
