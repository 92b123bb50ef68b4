"""A run folder: what a run writes, and reads to continue.

`config.toml`, `metrics.jsonl` (a line a step, in order), `incidents.jsonl` (what happened, also in steps that were
taken again; nothing is ever dropped), `trees/` (a journal a step), `checkpoints/` and, at the end, `summary.json`.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...agents.evaluation.scores import Report
from ...agents.journal.checkpoint import CheckpointError, read_state
from ...agents.journal.trees import VOCABULARY, Incident, Origin, read_trees, write_trees
from ...agents.models.folder import TEMPLATE_FILE
from ...agents.trajectory import Tree
from ...tools.files import (
    append_line,
    list_names,
    make_folder,
    name_behind_temporary,
    read_bytes,
    read_text,
    remove,
    remove_temporary_files,
    write_file,
)
from ..metrics.alarms import Alarm, alarms
from .config import Schedule

CONFIG, METRICS, INCIDENTS, SUMMARY = (
    "config.toml",
    "metrics.jsonl",
    "incidents.jsonl",
    "summary.json",
)
MOST_METRICS = 1 << 30  # bytes
_STEP = re.compile(r"step-(\d+)\.(?:jsonl|npz)")
_LEFT = re.compile(r"\.step-\d+\.(?:jsonl|npz)\.tmp")  # by a process of turngym 0.1 that was killed
WRITTEN = (CONFIG, METRICS, SUMMARY, VOCABULARY, TEMPLATE_FILE)  # as a whole, not line by line


@dataclass(frozen=True)
class RunState:
    """How far a run is after `step` steps: one immutable value, replaced as a whole when a step is over.

    With the weights and the optimizer's moments it is all that the next step depends on, so a checkpoint of it can be
    written at any instant, also in the middle of a step.
    """

    control: (
        str  # JSON text of the control state: nothing that a control does to its state reaches it
    )
    step: int = 0
    cursor: int = 0  # tasks used
    version: int = 0  # of the weights
    tokens: int = 0  # drawn for training, those of steps without an update too
    refused: int = 0  # steps without an update, in a row
    stop: bool = False  # a control asked the run to end here
    line: str = "{}"  # JSON text of what the last step measured, without wall-clock times

    def over(self, schedule: Schedule) -> bool:
        return self.stop or schedule.over(self.step, self.tokens)

    def state(self) -> Any:
        return json.loads(self.control)

    def metrics(self) -> dict[str, Any]:
        """Return what the last step measured; NaN where a number was not finite."""
        return {
            name: math.nan if value is None else value
            for name, value in json.loads(self.line).items()
        }

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "control": self.state(), "line": json.loads(self.line)}


def read_boundary(checkpoint: Path) -> RunState:
    """Return the boundary of a checkpoint. Raises CheckpointError where its state is not that of a boundary."""
    data = read_state(checkpoint)
    kinds: dict[str, type] = dict.fromkeys(("step", "cursor", "version", "tokens", "refused"), int)
    kinds |= {"stop": bool, "line": dict}
    if data.keys() != {"control", *kinds}:
        raise CheckpointError(
            f"{checkpoint} holds the state {sorted(data)}; it must be {sorted({'control', *kinds})}"
        )
    for name, kind in kinds.items():
        value = data[name]
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            raise CheckpointError(
                f"{checkpoint}: {name} is {value!r}; it must be of type {kind.__name__}"
            )
    return RunState(
        **{**data, "control": json.dumps(data["control"]), "line": json.dumps(data["line"])}
    )


def to_text(state: Any) -> str:
    """Return a control state as JSON text. Raises ValueError where it is no JSON data or not finite."""
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the state of the controls is {state!r}, which is no JSON data ({error})"
        ) from error


def to_line(values: Mapping[str, Any]) -> str:
    """Return `values` as JSON text, with null for a number that is not finite."""
    bad = [
        name
        for name, value in values.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
    return json.dumps({**values, **dict.fromkeys(bad)}, allow_nan=False)


@dataclass(frozen=True)
class Record:
    """One line of `metrics.jsonl` (null where a number is not finite), and the validation that followed, if one did."""

    step: int
    metrics: dict[str, Any]
    valid: Report | None = None
    begun: tuple[Alarm, ...] = ()  # alarms that no earlier step of the run had raised

    @classmethod
    def after(
        cls, past: Sequence[Mapping[str, Any]], step: int, now: dict[str, Any], valid: Report | None
    ) -> Record:
        """Return the record of a step with the metrics `now` behind the lines `past`, with the alarms of all."""
        found = alarms([*past, {**now, **_validated(valid)}])
        named = {"alarms": [alarm.kind for alarm in found]} if now else {}
        known = {kind for line in past for kind in line.get("alarms", ())}
        return cls(
            step,
            {**now, **named},
            valid,
            tuple(alarm for alarm in found if alarm.kind not in known),
        )

    def line(self) -> str:
        named = (
            {"alarms": [alarm.kind for alarm in self.begun]} if self.begun else {}
        )  # before the first step
        return to_line({"step": self.step, **named, **self.metrics, **_validated(self.valid)})


def _validated(found: Report | None) -> dict[str, Any]:
    if found is None:
        return {}
    about: dict[str, Any] = {
        "success": found.success.value,
        "low": found.success.low,
        "high": found.success.high,
    }
    about |= {"tool_share": found.tool_share, "turns": found.turns, "cut": found.cut}
    return {
        f"valid/{name}": value
        for name, value in (about | {"episodes": found.episodes - found.failed}).items()
    }


class Logbook:
    """The written record of the run in `folder`; a process that leaves the writing to another `writes` no step."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self.metrics, self.incidents = folder / METRICS, folder / INCIDENTS
        self.trees, self.updates = folder / "trees", folder / "updates"

    def add_metrics(self, line: str) -> None:
        if self.writes:
            append_line(self.metrics, line, root=self.folder)

    def lines(self) -> list[dict[str, Any]]:
        text = (
            read_text(self.metrics, MOST_METRICS, self.folder)
            if os.path.lexists(self.metrics)
            else ""
        )
        return [json.loads(line) for line in text.splitlines()]

    def add_incident(self, step: int, incident: Incident) -> None:
        """Add an incident of the step that is being taken, or that was taken last."""
        if self.writes:
            append_line(
                self.incidents, json.dumps({"step": step, **incident.to_json()}), root=self.folder
            )

    def add_trees(self, step: int, trees: Iterable[Tree], origin: Origin) -> None:
        if self.writes:
            make_folder(self.trees, self.folder)
            write_trees(self._journal(step), trees, origin, self.folder)

    def add_slots(
        self,
        step: int,
        keys: Sequence[tuple[int, ...]],
        path: NDArray[np.int64],
        slots: Mapping[str, ArrayLike],
    ) -> None:
        """Write what the first update makes of each drawn token: columns `slots`, and `path`, a place among `keys`."""
        if self.writes and slots:
            count = np.bincount(np.asarray(path), minlength=len(keys))
            columns: dict[str, Any] = {
                name: np.asarray(column, np.float32) for name, column in slots.items()
            }
            np.savez_compressed(packed := io.BytesIO(), key=np.array(keys), count=count, **columns)
            make_folder(self.updates, self.folder)
            # Not synced: no run depends on it, a torn one is seen.
            write_file(
                self.updates / f"step-{step:06d}.npz",
                [packed.getvalue()],
                self.folder,
                synced=False,
            )

    def read_paths(self, keys: Iterable[tuple[int, ...]]) -> list[Tree]:
        """Return the trees of paths (seed, step, task, branch), with these alone. Raises ValueError or OSError."""
        wanted = set(keys)
        trees = (
            tree for step in sorted({key[1] for key in wanted}) for tree in self._read(step + 1)
        )
        left = (
            (tree, [leaf for leaf in tree.leaves if (*tree.key, leaf.branch) in wanted])
            for tree in trees
        )
        return [replace(tree, leaves=leaves) for tree, leaves in left if leaves]

    def _read(self, step: int) -> Iterator[Tree]:
        return read_trees(self._journal(step), self.folder)

    def _journal(self, step: int) -> Path:
        return self.trees / f"step-{step:06d}.jsonl"

    def drop_after(self, step: int) -> bool:
        """Drop what later steps wrote; return whether `step` has its line. Raises ValueError if one is missing."""
        data = (
            read_bytes(self.metrics, MOST_METRICS, self.folder)
            if os.path.lexists(self.metrics)
            else b""
        )
        text = data.decode("utf-8", "replace")
        kept: list[str] = []
        for line in text.splitlines(keepends=True)[: step + 1]:
            if not line.endswith("\n") or _step(line) != len(kept):
                break
            kept.append(line)
        if len(kept) < step:
            fix = "remove the checkpoints of later steps, and the run repeats the steps from there"
            raise ValueError(
                f"{self.metrics}, line {len(kept) + 1}: not that of step {len(kept)}; {fix}"
            )
        for folder in (self.trees, self.updates):
            for name in list_names(folder, self.folder):
                whole = _STEP.fullmatch(name)
                left = _LEFT.fullmatch(name) or _STEP.fullmatch(name_behind_temporary(name) or "")
                if left or (whole and int(whole[1]) > step):
                    remove(folder / name, self.folder)
        remove_temporary_files(self.folder, WRITTEN)
        if (lines := "".join(kept)) != text:
            write_file(self.metrics, lines, self.folder)
        return len(kept) == step + 1


def _step(line: str) -> int:
    with suppress(ValueError, RecursionError):
        if isinstance(data := json.loads(line), dict) and type(step := data.get("step")) is int:
            return step
    return -1


def write_summary(folder: Path, seconds: float) -> None:
    """Write `summary.json`: held-out success before and after, with 95 % intervals, of the run from its first step."""
    lines = [json.loads(line) for line in read_text(folder / METRICS, MOST_METRICS).splitlines()]
    valid = [line for line in lines if "valid/success" in line]
    measured = ("success", "low", "high", "tool_share", "turns", "cut", "episodes")
    ends = {"before": valid[0], "after": valid[-1]}
    summary: dict[str, Any] = {
        **{
            end: {name: line.get(f"valid/{name}") for name in measured}
            for end, line in ends.items()
        },
        "steps": valid[-1]["step"],
        "tokens": sum(line.get("tokens", 0) for line in lines),
        "refused_steps": sum(bool(line.get("refused")) for line in lines),
        "seconds": round(seconds, 1),
    }
    write_file(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")


def summarized(folder: Path) -> int | None:
    """Return the last step of the run that `summary.json` is about; None where there is none."""
    with suppress(
        FileNotFoundError, ValueError, LookupError, TypeError
    ):  # a damaged one is written again
        if isinstance(step := json.loads(read_text(folder / SUMMARY))["steps"], int):
            return step
    return None
