"""Checkpoints that are whole or not there: written aside, fsynced, renamed, with a sha256 manifest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


class CheckpointError(ValueError):
    """A checkpoint that cannot be trusted: the message names the file and what is wrong with it."""


def save(folder: Path, step: int, state: Mapping[str, Any], write: Callable[[Path], None], keep: int = 2) -> Path:
    """Write the checkpoint of `step` into `folder` and remove all but the newest `keep`.

    Args:
        folder: Where checkpoints live.
        step: Optimizer steps done.
        state: JSON data (control state, counters).
        write: Writes the tensors (adapter, optimizer) into a folder it is given.
        keep: How many checkpoints stay.

    Raises:
        ValueError: `keep` is below 1.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; a run needs at least its newest checkpoint")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".step-*"):  # by a process that was killed
        shutil.rmtree(left)
    final = folder / f"step-{step:06d}"
    temporary = folder / f".{final.name}.tmp"
    temporary.mkdir()
    write(temporary)
    (temporary / "state.json").write_text(json.dumps({"step": step, **state}, indent=1, allow_nan=False))
    files = sorted(path for path in temporary.rglob("*") if path.is_file())
    manifest = {str(path.relative_to(temporary)): _sha256(path) for path in files}
    (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in (*temporary.rglob("*"), temporary):
        _sync(path)
    if final.exists():
        _remove(final)
    temporary.rename(final)
    _sync(folder)
    for old in steps(folder)[:-keep]:
        _remove(old)
    return final


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted((path for path in folder.glob("step-*") if path.is_dir()), key=lambda path: (len(path.name), path))


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint, verified; None where there is none.

    Raises:
        CheckpointError: the newest one is damaged.
    """
    found = steps(folder)
    return verify(found[-1]) if found else None


def verify(checkpoint: Path) -> Path:
    """Return `checkpoint` if every file is there and is what was written.

    Raises:
        CheckpointError: it is not.
    """
    try:
        manifest: dict[str, str] = dict(json.loads((checkpoint / MANIFEST).read_text()))
    except (OSError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint} has no readable {MANIFEST} ({error}); remove the folder to use the one before"
        ) from error
    for name, digest in manifest.items():
        path = checkpoint / name
        if not path.is_file() or _sha256(path) != digest:
            what = "is not what was written" if path.is_file() else "is missing"
            raise CheckpointError(f"{path} {what}; remove {checkpoint} to use the checkpoint before it")
    return checkpoint


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the JSON data of a checkpoint."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text())
    return state


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint, under another name first: a half removed one must not be taken for one."""
    aside = checkpoint.with_name(f".{checkpoint.name}.old")
    checkpoint.rename(aside)
    shutil.rmtree(aside)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
