"""Hostile completions graded in fresh processes, in another order each time, and what those processes leave behind."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turngym.tests.verify.grader.answers import ENVS, Answer
from turngym.tests.verify.grader.predicates import Seen, holds
from turngym.tests.verify.grader.processes import Process, lives
from turngym.tests.verify.rows import Row, first
from turngym.tools.subprocesses.process import Child, Deadline, Died

PATIENCE = 60.0  # seconds after which a process that grades one completion counts as hung
SETTLE = 5.0  # seconds in which workers that end, or take the place of others, are waited for
POOL = min(4, os.cpu_count() or 1)  # workers that a grader keeps


def seen(played: Sequence[Answer], processes: int, seed: int) -> tuple[dict[str, list[Seen]], Row]:
    """Return what each of so many fresh processes saw of each completion, by its id, and the row of their leaks."""
    found: dict[str, list[Seen]] = {answer.id: [] for answer in played}
    faults, most = [], 0
    for number in range(processes):
        order = random.Random(f"trials {seed} {number}").sample(played, len(played))
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder))
            trial.run(order, found)
            fault = trial.leak()
        most = max(most, len(trial.workers))
        if fault:
            faults.append(f"process {number}: {fault}")
    note = (
        first(faults)
        or f"at most {most} workers at once, of {POOL} allowed; none when it is closed, nor at the end"
    )
    row = Row(
        "fresh processes whose grader leaks no worker", processes - len(faults), processes, note
    )
    return found, row


def unheld(answer: Answer, those: Sequence[Seen]) -> list[str]:
    """Return the predicates of a completion that do not hold, with what came out of it instead of a result."""
    raised = [one.raised for one in those if one.raised][:1]
    missed = [predicate for predicate in answer.must_hold if not holds(predicate, those)]
    return missed + raised if missed else []


class Probe:
    """The process, seen from the one that wants to know; `close` ends it."""

    def __init__(self, folder: Path) -> None:
        for name in ("work", "tmp", "home"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        env = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(folder / "tmp"),
            "HOME": str(folder / "home"),
        }
        self._child = Child(
            [sys.executable, "-m", "turngym.tests.verify.grader.worker", str(folder)],
            cwd=str(folder / "work"),
            env=env,
        )

    def ready(self, tools: bool) -> None:
        """Have everything loaded that completions of this kind need."""
        self._child.request({"ready": tools}, 180.0)

    def see(self, env: str, text: str, gold: str, limit: float) -> Seen:
        """Grade a completion; `Deadline` or `Died` where the process does not come back."""
        seen: dict[str, Any] = self._child.request({"env": env, "text": text, "gold": gold}, limit)
        return Seen(**seen)

    def processes(self) -> list[Process]:
        """Return the processes that it has started and that live."""
        return [Process(*one) for one in self._child.request({"processes": True}, 60.0)]

    def rest(self) -> None:
        """Have the grader end its workers."""
        self._child.request({"rest": True}, 60.0)

    def close(self) -> None:
        """Let the process end by itself."""
        self._child.close()


class Trial:
    """One fresh process after another, as long as each lives, for all completions."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.probe = folder, Probe(folder)
        self.workers: list[
            Process
        ] = []  # what lived when the completions without tools were graded
        self.closed: list[Process] = []  # what of it the grader left when it was closed

    def run(self, order: Sequence[Answer], found: Mapping[str, list[Seen]]) -> None:
        """Grade all: those without tools first, so that what is left of them are the grader's own processes."""
        for env in ENVS:
            tools = env != ENVS[0]
            self.probe.ready(tools)
            for answer in order:
                if answer.env == env:
                    found[answer.id].append(self._see(answer, tools))
            if not tools:
                self.workers = _await(self.probe.processes, POOL)
                self.probe.rest()
                self.closed = _await(self.probe.processes, 0)

    def leak(self) -> str:
        """End the process; return what it left, or had too much of; empty when that is nothing."""
        last = self.probe.processes()
        self.probe.close()
        ended = _await(lambda: [one for one in last if lives(one)], 0)
        stages = (
            ("while it graded", self.workers, POOL),
            ("when it was closed", self.closed, 0),
            ("at the end", ended, 0),
        )
        for when, those, most in stages:
            if len(those) > most or any(one.zombie for one in those):
                told = [
                    f"{one.pid} {'zombie ' if one.zombie else ''}{one.command[:80]}"
                    for one in those
                ]
                return f"{len(those)} processes {when}, {most} allowed: {first(told)}"
        return ""

    def _see(self, answer: Answer, tools: bool) -> Seen:
        try:
            return self.probe.see(answer.env, answer.text, answer.gold, PATIENCE)
        except (Deadline, Died) as error:
            self.probe = Probe(self.folder)
            self.probe.ready(tools)
            return Seen(raised=f"{type(error).__name__}: {error}", seconds=PATIENCE)


def _await(processes: Callable[[], list[Process]], most: int) -> list[Process]:
    """Return the processes as soon as they are at most so many and none is a zombie, or when waiting was in vain."""
    until = time.monotonic() + SETTLE
    while True:
        found = processes()
        if (
            len(found) <= most and not any(one.zombie for one in found)
        ) or time.monotonic() > until:
            return found
        time.sleep(0.05)
