"""A pool of killable worker processes: one answer that hangs delays no other, and no worker grows old.

Workers start when they are needed and end with this process. A worker that was late, died, has answered often or has
grown is replaced while nobody waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import frames, process

START_SECONDS = 60.0
CPU_SECONDS = 3600  # of one worker, so that one whose parent was killed in the middle of an answer ends some day


class StartFailure(RuntimeError):
    """No worker could be started; it is nobody's request that failed."""


class Pool:
    """Processes that run a script and answer requests, JSON objects all, from any thread and after a fork.

    Args:
        script: It gets the path of the file with `serve`, and answers `{}` when it is ready. Its replies say in
            `memory_mb` how large it is, if it calls `serve` with `sized`.
        size: Workers at most; as many as the machine has cores, up to 4, when left out.
        answers: Answers after which a worker is replaced.
        memory_mb: Address space of a worker in MiB.
        grown_mb: A worker with a larger resident size in MiB is replaced.
    """

    _changed: threading.Condition
    _free: list[process.Child]
    _answered: dict[process.Child, int]  # how often each worker has answered that is ready or at work
    _starting: int
    _failures: int  # how many starts have failed, and why the last one did
    _reason: str

    def __init__(
        self, script: Path, *, size: int | None = None, answers: int = 500, memory_mb: int = 2048, grown_mb: int = 512
    ) -> None:
        self.script, self.answers, self.grown_mb = script, answers, grown_mb
        self.size = min(4, os.cpu_count() or 1) if size is None else size
        if self.size < 1 or answers < 1:
            raise ValueError(f"a pool of {self.size} workers with {answers} answers each; both must be at least 1")
        self.limits = process.ResourceLimits(memory_mb=memory_mb, cpu_seconds=CPU_SECONDS)
        self._forget()
        _pools.add(self)

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Return the reply of a worker, which has `deadline` seconds from when it gets the request.

        Raises:
            StartFailure: There is no worker, and none can be started.
            process.Deadline, process.Died: The worker was late, and is killed; it died.
        """
        worker = self._take()
        try:
            reply: dict[str, Any] = worker.request(dict(request), deadline, reap=False)
        except (ValueError, TypeError):  # the request cannot be sent; the worker has not seen it
            self._give(worker)
            raise
        except BaseException:
            self._replace(worker)
            raise
        self._answered[worker] += 1
        if reply.pop("memory_mb", 0) > self.grown_mb or self._answered[worker] >= self.answers:
            self._replace(worker)
        else:
            self._give(worker)
        return reply

    def close(self) -> None:
        """End all workers but those at work; the next request starts a new one."""
        with self._changed:
            while self._starting:
                self._changed.wait()
            idle, self._free = self._free, []
            for worker in idle:
                del self._answered[worker]
        for worker in idle:
            worker.close()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that are ready or at work."""
        with self._changed:
            return [worker.pid for worker in self._answered]

    def _take(self) -> process.Child:
        """Wait for a free worker; let one more start where there is none."""
        with self._changed:
            failures = self._failures
            while True:
                while self._free:
                    worker = self._free.pop()
                    if worker.alive:
                        return worker
                    self._replace(worker)
                if self._failures == failures and len(self._answered) + self._starting < self.size:
                    self._launch(None)
                if self._failures > failures and not (self._answered or self._starting):
                    raise StartFailure(f"{self.script.name} cannot start: {self._reason}")
                self._changed.wait()

    def _give(self, worker: process.Child) -> None:
        with self._changed:
            self._free.append(worker)
            self._changed.notify()

    def _replace(self, worker: process.Child) -> None:
        with self._changed:
            del self._answered[worker]
            self._launch(worker)

    def _launch(self, old: process.Child | None) -> None:
        """Start a worker in a thread of its own, after the end of `old`; the caller holds the lock."""
        thread = threading.Thread(target=self._start, args=(old,), name=f"start {self.script.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is ending, or there are too many threads
            self._failures, self._reason = self._failures + 1, str(error)
            self._changed.notify_all()
        else:
            self._starting += 1

    def _start(self, old: process.Child | None) -> None:
        if old is not None:
            old.close()
        worker, reason = None, ""
        try:
            worker = process.Child([sys.executable, "-I", str(self.script), frames.__file__], limits=self.limits)
            worker.request({}, START_SECONDS)
        except Exception as error:  # whatever it is, those who wait have to hear of it
            worker, reason = None, str(error)
        with self._changed:
            self._starting -= 1
            if worker is None:
                self._failures, self._reason = self._failures + 1, reason
            else:
                self._answered[worker] = 0
                self._free.append(worker)
            self._changed.notify_all()

    def _forget(self) -> None:
        """Begin with no worker: what there was belongs to the process that this one was forked from."""
        self._changed = threading.Condition(threading.RLock())
        self._free, self._answered = [], {}
        self._starting, self._failures, self._reason = 0, 0, ""


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_forget_all)
