"""What a run folder holds, reduced to what must be equal between a run and the same run after a crash."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from turngym.agents.journal.checkpoint import CheckpointError, steps, verify


@dataclass(frozen=True)
class Fingerprint:
    """Checksums of what a run wrote; the metrics without their times."""

    adapter: str
    optimizer: str
    state: str
    journals: str
    metrics: str

    @classmethod
    def of(cls, folder: Path) -> Fingerprint:
        """Return the fingerprint of a run; its newest checkpoint is the one that counts."""
        newest = next(iter(reversed(steps(folder / "checkpoints"))), folder)
        return cls(
            adapter=_digest(newest / "adapter" / "adapter_model.safetensors"),
            optimizer=_digest(newest / "optimizer.safetensors"),
            state=_digest(newest / "state.json"),
            journals=_digest(*sorted((folder / "trees").glob("*"))),
            metrics=sha256(json.dumps(_timeless(folder / "metrics.jsonl")).encode()).hexdigest(),
        )

    def same(self, other: Fingerprint) -> dict[str, bool]:
        """Return which parts are equal."""
        return {name: value == getattr(other, name) for name, value in vars(self).items()}


def whole(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the checkpoints in `folder` that verify, and those that do not."""
    good: list[Path] = []
    bad: list[Path] = []
    for path in steps(folder):
        try:
            good.append(verify(path))
        except CheckpointError:
            bad.append(path)
    return good, bad


def step_of_metrics(folder: Path) -> int:
    """Return the last step that has a whole line of metrics; -1 where there is none."""
    path = folder / "metrics.jsonl"
    return (path.read_bytes().count(b"\n") if path.exists() else 0) - 1


def saved_at(folder: Path, step: int) -> float:
    """Return when the newest checkpoint was written (`time.time()`); infinity where it is older than `step`."""
    good, _ = whole(folder / "checkpoints")
    if not good or int(good[-1].name[5:11]) < step:
        return float("inf")
    return (good[-1] / "manifest.json").stat().st_mtime


def _timeless(path: Path) -> list[dict[str, object]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [
        {name: value for name, value in json.loads(line).items() if "seconds" not in name}
        for line in lines
    ]


def _digest(*paths: Path) -> str:
    total = sha256()
    for path in paths:
        total.update(f"{path.name} {path.stat().st_size if path.exists() else None}\n".encode())
        total.update(path.read_bytes() if path.exists() else b"")
    return total.hexdigest()
