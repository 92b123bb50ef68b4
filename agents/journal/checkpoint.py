"""Checkpoints that are whole or not there: written aside, fsynced, renamed, with a sha256 manifest.

Invariants: once two were saved, two whole ones are there at every instant; a checkpoint is used only if it holds the
files of its manifest and no other, each with its checksum, and nothing of it is parsed before that is known.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...tools.checks import refuse_constant
from ...tools.files import LinkRefused, list_names, remove_folder, sync_to_disk
from ..models.folder import read_bytes, sha256_of, unique
from .trees import Incident, OnIncident

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
STATE = "state.json"
KEPT = 2  # checkpoints of a run
_NAME = re.compile(
    r"step-(\d{6,})(\.old)?"
)  # `.old`: the same step is being saved again, and this one still counts


class CheckpointError(ValueError):
    """A checkpoint that cannot be trusted, or cannot be written: the message names the file and what is wrong."""


def save(folder: Path, step: int, state: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Write the checkpoint of `step` into `folder`, and then remove all but the newest `KEPT` up to that step.

    folder: Where checkpoints live.
    step: Training steps done. Checkpoints of later steps are removed: they were passed over, or the run would have gone
        on from them.
    state: JSON data (control state, counters).
    write: Writes the tensors (adapter, optimizer) into a folder it is given.

    Raises ValueError where `state` is not JSON data; CheckpointError where it cannot be written, for want of space,
    say. Those before it are untouched.
    """
    final = folder / f"step-{step:06d}"
    temporary = folder / f".{final.name}.tmp"
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            sync_to_disk(folder.parent)
        for left in list_names(folder):  # by a process that was killed
            if left.startswith(".step-"):
                remove_folder(folder / left)
        temporary.mkdir()  # which fails where anything has that name
        write(temporary)
        (temporary / STATE).write_text(
            json.dumps({"step": step, **state}, indent=1, allow_nan=False)
        )
        manifest = {name: sha256_of(temporary / name) for name in sorted(_files(temporary))}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        for path in (*temporary.rglob("*"), temporary):
            sync_to_disk(path)
        if os.path.lexists(final):  # it stays a checkpoint until the other one has its name
            aside = final.with_name(f"{final.name}.old")
            if os.path.lexists(aside):
                _remove(aside)
            final.rename(aside)
        temporary.rename(final)
        sync_to_disk(folder)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError | LinkRefused):
            raise
        what = f"the checkpoint {final} cannot be written ({error})"
        raise CheckpointError(
            f"{what}; earlier ones are intact: free disk space and resume"
        ) from error
    past = [path for path in steps(folder) if path == final or _number(path) < step]
    for path in steps(folder):
        if path not in past[-KEPT:]:
            _remove(path)
    return final


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first. Raises CheckpointError where their folder is a link."""
    try:
        found = [folder / name for name in list_names(folder) if _NAME.fullmatch(name)]
    except NotADirectoryError:
        return []
    except LinkRefused as error:
        raise CheckpointError(f"{folder} is no folder of checkpoints ({error})") from error
    return sorted(found, key=lambda path: (_number(path), not path.name.endswith(".old")))


def latest(
    folder: Path,
    on_incident: OnIncident = lambda incident: None,
    check: Callable[[Path], object] | None = None,
) -> Path | None:
    """Return the newest checkpoint that can be trusted; None where there is none at all.

    For each damaged one that is passed over a warning is logged, and `on_incident` called. `check` raises
    CheckpointError for what is wrong with a checkpoint of which each file is what was written.

    Raises CheckpointError where there are checkpoints, and all are damaged; the message names what is wrong with each.
    """
    faults: list[str] = []
    for path in reversed(steps(folder)):
        try:
            (check or read_state)(verify(path))
        except CheckpointError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            log.warning("a damaged checkpoint is passed over, %s is used: %s", path, fault)
            on_incident(Incident("checkpoint", fault))
        return path
    if faults:
        what = f"all {len(faults)} checkpoints in {folder} are damaged: {'; '.join(faults)}"
        raise CheckpointError(f"{what}; restore a copy, or remove them to start again")
    return None


def verify(checkpoint: Path) -> Path:
    """Return `checkpoint` if its files are exactly those that were written.

    Raises CheckpointError where they are not, or they cannot be read.
    """
    try:
        if checkpoint.is_symlink():
            raise CheckpointError(f"{checkpoint} is a link; a checkpoint is a folder")
        found = _files(checkpoint)
        if MANIFEST not in found:
            raise CheckpointError(f"{checkpoint} has no {MANIFEST}")
        manifest = _read(checkpoint / MANIFEST)
        if not isinstance(manifest, dict) or STATE not in manifest:
            raise CheckpointError(f"{checkpoint / MANIFEST} is no manifest of a checkpoint")
        for name in sorted(manifest.keys() ^ (found - {MANIFEST})):
            what = "is not in its manifest" if name in found else "is missing"
            raise CheckpointError(f"{checkpoint}: the file {name!r} {what}")
        for name, digest in manifest.items():
            if sha256_of(checkpoint / name) != digest:
                raise CheckpointError(f"{checkpoint}: the file {name!r} is not what was written")
    except (OSError, RecursionError) as error:
        raise CheckpointError(f"{checkpoint} cannot be read ({error})") from error
    return checkpoint


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the JSON data of a checkpoint that `verify` has passed.

    Raises CheckpointError where it is no JSON object, or not that of this step.
    """
    state = _read(checkpoint / STATE)
    if (
        not isinstance(state, dict)
        or type(state.get("step")) is not int
        or state["step"] != _number(checkpoint)
    ):
        raise CheckpointError(
            f"{checkpoint / STATE} is not the state of step {_number(checkpoint)}"
        )
    return state


def _files(folder: Path) -> set[str]:
    names = set()
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            names |= {f"{entry.name}/{name}" for name in _files(folder / entry.name)}
        elif entry.is_file(follow_symlinks=False):
            names.add(entry.name)
        else:
            raise CheckpointError(
                f"{entry.path!r} is a link or no plain file; a checkpoint holds plain files"
            )
    return names


def _read(path: Path) -> Any:
    try:
        return json.loads(
            read_bytes(path), object_pairs_hook=unique, parse_constant=refuse_constant
        )
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read ({error})") from error


def _number(checkpoint: Path) -> int:
    named = _NAME.fullmatch(checkpoint.name)
    return int(named[1]) if named else -1


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint, under another name first: a half removed one must not be taken for one."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        checkpoint.unlink()
        return
    aside = checkpoint.with_name(f".{checkpoint.name}.old")
    checkpoint.rename(aside)
    shutil.rmtree(aside)
