"""Hostile completions of search agents, each played in fresh processes."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.envs.rows import json_rows
from turngym.tests.verify.grader.answers import full_text
from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.search.predicates import Searched, check_known, holds
from turngym.tools.subprocesses.process import Child, Deadline, Died

ENV = "search"
PATIENCE = 60.0  # seconds after which a process that plays one completion counts as hung


@dataclass(frozen=True)
class Hostile:
    """A completion, the answers that are right, and what must hold for it."""

    id: str
    text: str
    golds: tuple[str, ...]
    must_hold: tuple[str, ...]


def read(path: Path) -> list[Hostile]:
    """Return the completions of env `search` in a JSONL file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has none, or one that is no such row or asks for what nothing here can tell.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; --answers names a JSONL file of hostile completions"
        )
    found = [
        _hostile(f"{path.name}:{number}", row)
        for number, row in json_rows(path)
        if row.get("env") == ENV
    ]
    if not found:
        raise ValueError(
            f"{path} has no row of env {ENV!r}; --answers names a JSONL file of hostile completions"
        )
    if len({one.id for one in found}) < len(found):
        raise ValueError(f"{path} has two rows of env {ENV!r} with one id; each row needs its own")
    return found


def _hostile(where: str, row: Mapping[str, Any]) -> Hostile:
    try:
        golds = (row["gold"],) if isinstance(row["gold"], str) else tuple(row["gold"])
        wanted = tuple(part.strip() for part in row["must_hold"].split(";"))
        made = Hostile(row["id"], full_text(row), golds, wanted)
    except (KeyError, TypeError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise ValueError(f"{where} is no row with id, text, gold and must_hold: {fault}") from None
    for predicate in wanted:
        check_known(where, predicate)
    return made


def answer_row(played: Sequence[Hostile], processes: int, seed: int) -> Row:
    """Count the completions that hold all they must in so many fresh processes, each in another order."""
    seen: dict[str, list[Searched]] = {one.id: [] for one in played}
    for number in range(processes):
        order = random.Random(f"hostile {seed} {number}").sample(played, len(played))
        for one, searched in _played(order):
            seen[one.id].append(searched)
    faults = [f"{one.id}: {fault}" for one in played if (fault := _unheld(one, seen[one.id]))]
    slowest = max(one.seen.seconds for those in seen.values() for one in those)
    what = f"hostile completions hold every predicate in {processes} fresh processes"
    return Row(
        what,
        len(played) - len(faults),
        len(played),
        first(faults, 9) or f"the slowest took {slowest:.2f} s",
    )


def _unheld(one: Hostile, seen: Sequence[Searched]) -> str:
    """Return which predicates do not hold, and what came out of it instead of a result."""
    missed = [predicate for predicate in one.must_hold if not holds(predicate, seen)]
    raised = [each.seen.raised for each in seen if each.seen.raised][:1]
    return "; ".join(missed + raised) if missed else ""


def _played(order: Sequence[Hostile]) -> Iterator[tuple[Hostile, Searched]]:
    """Play all in one process, or in another after one that hung or died."""
    child = _child()
    for one in order:
        try:
            said: dict[str, Any] = child.request({"text": one.text, "golds": one.golds}, PATIENCE)
            yield one, Searched(**{**said, "seen": Seen(**said["seen"])})
        except (Deadline, Died) as error:
            child = _child()
            yield one, Searched(Seen(raised=f"{type(error).__name__}: {error}", seconds=PATIENCE))
    child.close()


def _child() -> Child:
    return Child(
        [sys.executable, "-m", "turngym.tests.verify.search.worker"],
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
