"""What a run writes down as it goes: `metrics.jsonl`, `incidents.jsonl` and a journal a step in `trees/`.

Invariant: the metrics hold one line a step, in order. Incidents are what happened, also in steps that were taken again,
and are never dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..agents.durable import append, write
from ..agents.incidents import Incident
from ..agents.journal import Origin, read_trees, write_trees
from ..agents.trajectory import Tree

METRICS = "metrics.jsonl"

_JOURNAL = re.compile(r"step-(\d+)\.jsonl(\.tmp)?")


class Logbook:
    """The written record of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.metrics, self.incidents, self.trees = (folder / name for name in (METRICS, "incidents.jsonl", "trees"))

    def add_metrics(self, line: str) -> None:
        """Add the line of a step."""
        append(self.metrics, line)

    def lines(self) -> list[dict[str, Any]]:
        """Return the metrics, line by line."""
        text = self.metrics.read_text("utf-8") if self.metrics.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def add_incident(self, step: int, incident: Incident) -> None:
        """Add an incident of the step that is being taken, or that was taken last."""
        append(self.incidents, json.dumps({"step": step, **incident.to_json()}))

    def add_trees(self, step: int, trees: Iterable[Tree], origin: Origin) -> None:
        """Write the journal of a step."""
        self.trees.mkdir(parents=True, exist_ok=True)
        write_trees(self._journal(step), trees, origin)

    def read_paths(self, keys: Iterable[tuple[int, ...]]) -> list[Tree]:
        """Return the trees of these paths (seed, step, task, branch), each with these of its paths alone.

        Raises:
            ValueError, OSError: a journal is damaged or missing.
        """
        wanted: dict[tuple[int, ...], set[int]] = {}
        for *tree_key, branch in keys:
            wanted.setdefault(tuple(tree_key), set()).add(branch)
        return [
            replace(tree, leaves=[leaf for leaf in tree.leaves if leaf.branch in wanted[tree.key]])
            for step in sorted({key[1] for key in wanted})
            for tree in read_trees(self._journal(step + 1))
            if tree.key in wanted
        ]

    def _journal(self, step: int) -> Path:
        return self.trees / f"step-{step:06d}.jsonl"

    def drop_after(self, step: int) -> bool:
        """Drop journals and metrics of later steps, and return whether `step` itself has its line of metrics.

        Raises:
            ValueError: a line of an earlier step is missing or is no JSON.
        """
        text = self.metrics.read_text("utf-8", "replace") if self.metrics.exists() else ""
        kept: list[str] = []
        for line in text.splitlines(keepends=True)[: step + 1]:
            if not line.endswith("\n") or _step(line) != len(kept):
                break
            kept.append(line)
        if len(kept) < step:
            raise ValueError(
                f"{self.metrics}, line {len(kept) + 1}: not that of step {len(kept)}; remove the checkpoints of later "
                "steps, and the steps are taken again from there"
            )
        for path in self.trees.glob("step-*"):
            name = _JOURNAL.fullmatch(path.name)
            if name and (name[2] or int(name[1]) > step):
                path.unlink()
        if (whole := "".join(kept)) != text:
            write(self.metrics, whole)
        return len(kept) == step + 1


class Reader(Logbook):
    """The same record for a process that leaves the writing to another."""

    def add_metrics(self, line: str) -> None:
        """Write nothing."""

    def add_incident(self, step: int, incident: Incident) -> None:
        """Write nothing."""

    def add_trees(self, step: int, trees: Iterable[Tree], origin: Origin) -> None:
        """Write nothing."""


def _step(line: str) -> int:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return -1
    step = data.get("step") if isinstance(data, dict) else None
    return step if type(step) is int else -1
