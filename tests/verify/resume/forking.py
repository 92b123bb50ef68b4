"""A warm process that runs command lines in forks of itself: importing torch costs more than a small run.

It runs as a script in a process of its own. Where torch is not installed, it runs the commands that need none. A job
may be killed after some seconds, or sent a signal when it gets to a named phase. Orphans of a job become children of
this process, which finds them.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import pkgutil
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turngym.tools.subprocesses.messages import serve
from turngym.tools.subprocesses.process import Child

_PR_SET_CHILD_SUBREAPER = 36
_GRACE = 2.0  # seconds that a job's own processes may outlive it
_COMMANDS = "turngym.__main__"
_MODULES = (  # imported before the first job, where torch is installed
    "turngym.agents.engines.torch",
    "turngym.agents.policy",
    "turngym.training.loop.trainer",
    "turngym.training.runs.run",
    "turngym.training.methods.entropy.epo",
    "turngym.training.methods.base_algorithms.grpo",
)
_PHASES = {  # where a phase begins
    "loading": "turngym.agents.policy.load_policy",
    "validation": "turngym.training.loop.rollouts.Rollouts.validate",
    "rollout": "turngym.training.loop.rollouts.Rollouts.train",
    "tool": "turngym.tools.python.tool.PythonTool.call",
    "grading": "turngym.envs.math.grading.grader.MathGrader.grade",
    "gradient": "turngym.training.loop.learner.Learner.propose",
    "weights": "turngym.training.loop.learner.Learner.apply",
    "journal": "turngym.training.runs.folder.Logbook.add_trees",
    "checkpoint": "turngym.agents.policy.Policy.save_adapter",
    "metrics": "turngym.training.runs.folder.Logbook.add_metrics",
}


@dataclass(frozen=True)
class Job:
    """A command line, and what happens to it.

    argv: what follows `turngym`
    kill_after: seconds until it is killed
    phase, call, number, delay: the signal `number` is sent `delay` seconds after the `call`-th beginning of `phase`
    room: from then on no file can grow beyond so many bytes, as on a full disk (in place of a signal)
    """

    argv: tuple[str, ...]
    kill_after: float | None = None
    phase: str = ""
    call: int = 1
    number: int = 0
    delay: float = 0.0
    room: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a job ended: exit status (negative: the signal), seconds, processes left, what it wrote, when it was hit."""

    status: int
    seconds: float
    orphans: int
    output: str
    struck: float | None = None  # `time.time()`


class Warm:
    """The warm process, seen from the one that wants jobs done; `close` ends it."""

    def __init__(self, cwd: Path) -> None:
        env = {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
        self._child = Child(
            [sys.executable, "-m", "turngym.tests.verify.resume.forking", str(cwd)],
            cwd=str(cwd),
            env=env,
        )

    def run(self, job: Job, limit: float = 120.0) -> Ended:
        """Run a job to its end; `Deadline` after `limit` seconds, `Died` where the warm process itself failed."""
        return Ended(**self._child.request(asdict(job), limit))

    def close(self) -> None:
        """End the process, and a job that is under way."""
        self._child.kill()
        self._child.close()


class _Go(BaseException):
    """Leaves the serving loop of a fork, so that its job runs at the top of the program and ends as any other does."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        self.job = job


def _start(job: dict[str, Any], cwd: Path) -> dict[str, Any]:
    struck = cwd / "struck"
    struck.unlink(missing_ok=True)
    reading, writing = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        for stream in (1, 2):
            os.dup2(writing, stream)
        raise _Go(job)
    os.close(writing)
    output = _watch(pid, reading, job["kill_after"])
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seconds = time.monotonic() - began
    when = float(struck.read_text()) if struck.exists() else None
    return asdict(Ended(status, seconds, _end_children(), output.decode(errors="replace"), when))


def _watch(pid: int, reading: int, seconds: float | None) -> bytes:
    """Wait until a job ends, or kill it after `seconds`; return what it wrote."""
    ended = os.pidfd_open(pid)
    until = None if seconds is None else time.monotonic() + seconds
    streams, output = [ended, reading], b""
    while True:
        left = None if until is None else max(until - time.monotonic(), 0.0)
        ready = select.select(streams, [], [], left)[0]
        if not ready:
            os.kill(pid, signal.SIGKILL)
            until = None
        if reading in ready:
            piece = os.read(reading, 2**16)
            output += piece
            if not piece:
                streams.remove(reading)
        elif ended in ready:
            os.close(ended)
            return output


def _end_children() -> int:
    """Wait until all that is left of a job has ended; return how many processes had to be killed."""
    until, killed = time.monotonic() + _GRACE, 0
    while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        late = time.monotonic() > until
        for pid in map(int, left):
            if late:
                killed += 1
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0 if late else os.WNOHANG)
        time.sleep(0.01)
    return killed


def _prepare(job: Job, cwd: Path) -> None:
    """Have the signal sent, or the disk full, when the phase of a job begins for the `call`-th time."""
    owner_name, _, name = _PHASES[job.phase].rpartition(".")
    owner = pkgutil.resolve_name(owner_name)
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def watched(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == job.call:
            if job.room is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (job.room, job.room))
            elif job.delay:
                threading.Timer(job.delay, _strike, (job.number, cwd)).start()
            else:
                _strike(job.number, cwd)
        return function(*args, **options)

    setattr(owner, name, watched)


def _strike(number: int, cwd: Path) -> None:
    (cwd / "struck").write_text(repr(time.time()))
    os.kill(os.getpid(), number)


def _load() -> None:
    """Load the policy once, since much is imported only then; leave out the engine's probe, which takes a second."""
    import torch

    from turngym.agents.cli.settings import LoraOptions
    from turngym.agents.engines.torch import TorchEngine
    from turngym.agents.models.resolve import TINY
    from turngym.agents.policy import load_policy

    torch.set_num_threads(1)
    load_policy(TINY, lora=LoraOptions())
    setattr(TorchEngine, "mode_reason", "")  # noqa: B010 (it is a cached property)


def main(cwd: Path) -> None:
    """Serve jobs; in a fork, do one."""
    importlib.import_module(_COMMANDS)
    if importlib.util.find_spec("torch") is not None:
        for name in _MODULES:
            importlib.import_module(name)
        _load()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        serve(lambda job: _start(job, cwd))
        return
    except _Go as go:
        job = Job(**{**go.job, "argv": tuple(go.job["argv"])})
    if job.phase:
        _prepare(job, cwd)
    importlib.import_module(_COMMANDS).main(job.argv)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
