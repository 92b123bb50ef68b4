"""The contract of environments, kept by the household ones over given games."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turngym.agents.check.episodes import Subject
from turngym.envs.registry import ENVS
from turngym.tests.verify.contracts import kept
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.rows import Row

NAMES = ("turngym/ALFWorld-v0", "turngym/Household-v0")


def contract_rows(paths: Sequence[Path], seed: int) -> Iterator[Row]:
    """Count the clauses that each household environment keeps; ALFWorld's plays the smallest of the files."""
    for name in NAMES:
        if name in {entry.id for entry in ENVS}:
            yield kept(Subject(name, _options(paths) if name == NAMES[0] else {}, seed), name)


def _options(paths: Sequence[Path]) -> dict[str, Any]:
    path = min(paths, key=lambda path: path.stat().st_size)
    split = next((entry.split for entry in Catalogue([path]).entries if entry.solvable), "")
    return {"games": str(path), **({"split": split} if split else {})}
