"""Crash safety: small real runs of the command line are killed, signalled, damaged and starved, and gone on with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turngym.tests.verify.resume.damage import Damage
from turngym.tests.verify.resume.fingerprint import Fingerprint, saved_at, step_of_metrics, whole
from turngym.tests.verify.resume.forking import Ended, Job, Warm
from turngym.tests.verify.rows import Row, Tally

RUN = (
    "train --difficulty 1 --steps 4 --prompts 2 --group 2 --max-tokens 24 --lr 5e-3 --eval-every 2 --eval-tasks 2 "
    "--threads 1 --seed 0"
)
EVAL = "eval --difficulty 1 --episodes 24 --max-tokens 48 --threads 1"
SIGNALS = (15, 2)
SOON = 5.0  # seconds in which a signal must have led to a checkpoint
MOST = 4  # kills of one run, so that it comes to an end
# Where signals strike a run, again and again: the phase, its how-manyeth beginning in that process, seconds after it.
PHASES = (
    ("loading", 1, 0.0),
    ("validation", 1, 0.1),
    ("rollout", 1, 0.1),
    ("tool", 1, 0.0),
    ("grading", 1, 0.0),
    ("gradient", 1, 0.0),
    ("journal", 2, 0.0),
    ("weights", 1, 0.0),
    ("validation", 1, 0.1),
    ("metrics", 1, 0.0),
    ("checkpoint", 1, 0.0),
    ("metrics", 1, 0.0),
)
FULL = (
    ("checkpoint", 2, 20_000),
    ("checkpoint", 2, 1_500_000),
    ("journal", 3, 8_000),
)  # phase, call, bytes a file


@dataclass(frozen=True)
class Resume:
    """Crash safety: what a run that was killed, signalled or damaged leaves, and what it comes to when it goes on."""

    seed: int = 0
    """Chooses the instants and the damage."""
    kills: int = 20
    """Kills at random instants."""
    signals: int = len(PHASES)
    """Phases in which SIGTERM and SIGINT strike, at most 12."""
    mutations: int = 200
    """Damaged checkpoints."""
    injections: int = 120
    """Numbers that are not finite, put where an update looks."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows: kills, signals, a full disk, damage, numbers."""
        from turngym.tests.verify.methods.nonfinite import Numbers

        if not 0 <= self.signals <= len(PHASES):
            raise ValueError(f"signals is {self.signals}; there are {len(PHASES)} phases")
        with tempfile.TemporaryDirectory(prefix="turngym-resume-") as name:
            folder = Path(name)
            warm = Warm(folder)
            try:
                runs = _Runs(warm, folder)
                yield from runs.killed(self.kills, random.Random(self.seed))
                yield from runs.signalled(self.signals)
                yield from runs.starved()
                yield from Damage(runs.undisturbed, folder / "damaged", self.seed).rows(
                    self.mutations
                )
            finally:
                warm.close()
        yield from Numbers(self.seed).rows(self.injections)


class _Runs:
    """Runs of one config, and the one that nothing disturbed."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self.warm, self.folder = warm, folder
        self.undisturbed = folder / "undisturbed"
        first_run, again = (self._begin(name) for name in ("undisturbed", "again"))
        self.seconds = again.seconds  # of a run whose files are in memory
        if first_run.status or again.status:
            raise ValueError(
                f"the undisturbed run ended with status {first_run.status}: {first_run.output[-300:]}"
            )
        self.goal = Fingerprint.of(self.undisturbed)

    def killed(self, kills: int, rng: random.Random) -> Iterator[Row]:
        """Kill runs at random instants until there were `kills`, each time going on with what is left."""
        told = "kill -9 at a random instant, then resumed: {} byte-equal to the undisturbed run"
        parts = {part: Tally(told.format(part)) for part in vars(self.goal)}
        kept, number = (
            Tally("kill -9: every checkpoint is whole, two of them from the second save on"),
            0,
        )
        while kept.of < kills:
            name, hits = f"killed-{number}", 0
            number += 1
            while hits < MOST and kept.of < kills:
                ended = self._go_on(name, kill_after=rng.uniform(0, self.seconds))
                if ended.status == 0:
                    break
                hits += 1
                kept.add(
                    name,
                    _unsafe(self.folder / name) if ended.status == -9 else f"status {ended.status}",
                )
                if self._over(name):
                    break
            self._finish(name)
            for part, same in Fingerprint.of(self.folder / name).same(self.goal).items():
                parts[part].add(name, not same, hits)
        yield from (part.row() for part in parts.values())
        yield kept.row(f"{number} runs of {self.seconds:.1f} s")

    def signalled(self, phases: int) -> Iterator[Row]:
        """Send SIGTERM and SIGINT in each phase."""
        told = Tally("a signal in each phase: status 143 or 130, and the way to go on is named")
        quick = Tally(f"… a whole checkpoint of the last boundary within {SOON:g} s")
        same = Tally("… resumed, everything is byte-equal to the undisturbed run")
        clean, slowest = Tally("… and in `eval`: no process is left"), 0.0
        for number in SIGNALS:
            name = f"signals-{number}"
            folder = self.folder / name
            for phase, call, delay in PHASES[:phases]:
                case = f"{phase} {number}"
                ended = self._go_on(name, phase=phase, call=call, number=number, delay=delay)
                begun = (folder / "config.toml").exists()
                remedy = (
                    f"turngym train --resume --out {name}"
                    if begun
                    else "use the same command again"
                )
                told.add(case, ended.status != 128 + number or remedy not in ended.output)
                late = (
                    saved_at(folder, step_of_metrics(folder)) - (ended.struck or 0.0)
                    if begun
                    else 0.0
                )
                slowest = max(slowest, late)
                quick.add(case, f"{late:.1f} s" if late > SOON else "")
                clean.add(case, ended.orphans)
            self._finish(name)
            same.add(name, Fingerprint.of(folder) != self.goal, phases)
        for number in SIGNALS:
            ended = self.warm.run(Job(tuple(EVAL.split()), phase="tool", call=5, number=number))
            clean.add(f"eval-{number}", ended.orphans or ended.status != 128 + number)
        yield from (told.row(), quick.row(f"slowest {slowest:.2f} s"), same.row(), clean.row())

    def starved(self) -> Iterator[Row]:
        """Let no file grow beyond some size from a phase on, as on a full disk."""
        told = Tally(
            "no room for a checkpoint or a journal: a clear error, and the last checkpoint is whole"
        )
        same = Tally(
            "… resumed where there is room, everything is byte-equal to the undisturbed run"
        )
        for phase, call, room in FULL:
            name = f"full-{phase}-{room}"
            ended = self._begin(name, phase=phase, call=call, room=room)
            clear = (
                ended.status == 2 and "error: " in ended.output and "Traceback" not in ended.output
            )
            told.add(name, _unsafe(self.folder / name, least=1) if clear else ended.output[-200:])
            self._finish(name)
            same.add(name, Fingerprint.of(self.folder / name) != self.goal)
        yield from (told.row(), same.row())

    def _begin(self, name: str, **how: Any) -> Ended:
        return self.warm.run(replace(Job((*RUN.split(), "--out", name)), **how))

    def _go_on(self, name: str, **how: Any) -> Ended:
        """Run what is left of a run, or begin it where nothing is left."""
        if not (self.folder / name / "config.toml").exists():
            return self._begin(name, **how)
        return self.warm.run(replace(Job(("train", "--resume", "--out", name)), **how))

    def _over(self, name: str) -> bool:
        return (self.folder / name / "summary.json").exists()

    def _finish(self, name: str) -> None:
        if not self._over(name):
            self._go_on(name)


def _unsafe(folder: Path, least: int = 2) -> str:
    """Return what is wrong with the checkpoints of a run that was stopped; empty when nothing is."""
    good, bad = whole(folder / "checkpoints")
    if bad:
        return f"{bad[0]} is damaged"
    if step_of_metrics(folder) >= 2 and len(good) < least:
        return f"only {len(good)} checkpoints"
    return ""
