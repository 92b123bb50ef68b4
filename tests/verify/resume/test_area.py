"""How the runs of crash safety are counted; the runs are stood in for by copies of a folder."""

import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from turngym.agents.journal import checkpoint
from turngym.tests.verify.resume.area import FULL, PHASES, SIGNALS, Resume, _Runs
from turngym.tests.verify.resume.forking import Ended, Job


def write_run(folder: Path) -> None:
    """A finished run of 4 steps, as small as can be."""

    def tensors(path: Path) -> None:
        (path / "adapter").mkdir()
        (path / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
        (path / "optimizer.safetensors").write_bytes(b"moments")

    for step in (2, 4):
        checkpoint.save(folder / "checkpoints", step, {"cursor": step}, tensors)
    (folder / "trees").mkdir()
    (folder / "trees" / "step-000001.jsonl").write_text("tree\n")
    (folder / "metrics.jsonl").write_text(
        "".join(f'{{"step": {n}, "seconds": {n}.5}}\n' for n in range(5))
    )
    for name in ("config.toml", "summary.json"):
        (folder / name).write_text("")


@dataclass
class Stand:
    """Stands in for the warm process: every job does what the real one should, but for the fault it is given."""

    folder: Path
    fault: str = ""
    jobs: list[Job] = field(default_factory=list)

    def run(self, job: Job) -> Ended:
        self.jobs.append(job)
        if job.argv[0] == "eval":
            return Ended(128 + job.number, 1.0, self.fault == "orphan", "")
        name = job.argv[-1]
        folder, struck = self.folder / name, time.time()
        disturbed = job.kill_after is not None or job.phase != ""
        if not folder.exists():
            write_run(folder)
        self._spoil(folder, disturbed)
        (folder / "summary.json").unlink(missing_ok=True)
        if not disturbed:
            (folder / "summary.json").touch()
        status = (
            -9
            if job.kill_after is not None
            else 2
            if job.room
            else 128 + job.number
            if job.phase
            else 0
        )
        status = 1 if self.fault == "status" and disturbed else status
        output = f"error: full; continue with: turngym train --resume --out {name}"
        return Ended(status, 1.0, self.fault == "orphan", output, struck)

    def _spoil(self, folder: Path, disturbed: bool) -> None:
        newest = folder / "checkpoints" / "step-000004"
        if folder.name in ("undisturbed", "again"):
            return
        if self.fault == "late":
            shutil.rmtree(newest, ignore_errors=True)
        elif self.fault == "adapter" and not disturbed:
            (newest / "adapter" / "adapter_model.safetensors").write_bytes(b"other")
        elif self.fault == "torn" and disturbed:
            (newest / "state.json").write_text("{")
        elif self.fault == "metrics":
            (folder / "metrics.jsonl").write_text('{"step": 0}\n')


def counted(folder: Path, fault: str) -> dict[str, tuple[int, int]]:
    runs: Any = _Runs(Stand(folder, fault), folder)
    rows = [*runs.killed(6, random.Random(0)), *runs.signalled(len(PHASES)), *runs.starved()]
    return {row.what: (row.held, row.of) for row in rows}


def test_cases_that_hold_are_counted_each_with_its_denominator(tmp_path):
    rows = counted(tmp_path, "")
    assert [of for _, of in rows.values()] == [6] * 6 + [2 * len(PHASES)] * 3 + [
        2 * len(PHASES) + 2
    ] + [len(FULL)] * 2
    assert all(held == of for held, of in rows.values())


@pytest.mark.parametrize(
    ("fault", "short"),
    [
        ("adapter", "adapter byte-equal"),
        ("adapter", "… resumed, everything is byte-equal"),
        ("metrics", "metrics byte-equal"),
        ("torn", "every checkpoint is whole"),
        ("torn", "no room for a checkpoint or a journal"),
        ("status", "every checkpoint is whole"),
        ("status", "status 143 or 130"),
        ("late", "a whole checkpoint of the last boundary"),
        ("orphan", "no process is left"),
    ],
)
def test_a_planted_fault_makes_its_row_fall_short(tmp_path, fault, short):
    (row,) = [row for what, row in counted(tmp_path, fault).items() if short in what]
    assert row[0] < row[1]


def test_signals_strike_one_run_again_and_again_until_it_is_over(tmp_path):
    stand = Stand(tmp_path)
    runs: Any = _Runs(stand, tmp_path)
    list(runs.signalled(3))
    jobs = [job for job in stand.jobs if job.argv[-1] == "signals-15"]
    assert [job.phase for job in jobs] == [*(phase for phase, _, _ in PHASES[:3]), ""]
    assert ["--resume" in job.argv for job in jobs] == [False, True, True, True]
    assert SIGNALS == (15, 2)


def test_more_phases_than_there_are_is_a_mistake():
    with pytest.raises(ValueError, match="signals is 99; there are 12 phases"):
        next(Resume(signals=99).rows())
