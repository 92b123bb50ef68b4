"""The contract of environments, kept by the household ones over given games."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....agents.check import CLAUSES, run
from ....agents.contract.episodes import Case
from ....envs.registry import ENVS
from .. import Row, first
from .catalogue import Catalogue

NAMES = ("turngym/ALFWorld-v0", "turngym/Household-v0")


def contract_rows(paths: Sequence[Path], seed: int) -> Iterator[Row]:
    """Count the clauses that each household environment keeps; ALFWorld's plays the smallest of the files."""
    for name in NAMES:
        if name in {entry.id for entry in ENVS}:
            yield _kept(name, _options(paths) if name == NAMES[0] else {}, seed)


def _options(paths: Sequence[Path]) -> dict[str, Any]:
    path = min(paths, key=lambda path: path.stat().st_size)
    split = next((entry.split for entry in Catalogue([path]).entries if entry.solvable), "")
    return {"games": str(path), **({"split": split} if split else {})}


def _kept(name: str, options: Mapping[str, Any], seed: int) -> Row:
    case = Case(name, options, seed)
    results = [run(clause, case) for clause in CLAUSES]
    broken = [f"{result.name}: {result.problem}" for result in results if not result.ok]
    unchecked = [f"{result.name}: {result.note}" for result in results if result.note.startswith("not checked")]
    note = "; ".join(filter(None, [first(broken), *unchecked]))
    return Row(f"clauses of the contract that {name} keeps", len(results) - len(broken), len(results), note)
