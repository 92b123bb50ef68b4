"""What the control of entropy decides, in two minutes: GRPO beside a floor under entropy, watched while they learn.

Both runs play the world `late-bloomer` with the same seed, at the same time. What is shown of a step is counted from
its journal, as soon as that is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from statistics import fmean

from ...agents.journal.trees import read_trees
from ...tools.progress import Progress
from ..runs.run import free_folder
from . import diagnosis
from .measure import Final, Measured
from .plan import Comparison, Trial

METHODS = ("grpo", "turn-floor")
WORLD = "late-bloomer"
EPISODES = 512  # of the final validation
WINDOW = 5  # steps whose mean is shown
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 16  # bars of a curve


def plan(seed: int, out: str, resume: bool) -> Comparison:
    """Return what the demo compares. Raises ValueError or OSError: what is wrong, its value and the fix."""
    folder = out or str(free_folder("demo", os.path.lexists))
    changes = {"seed": seed}
    return diagnosis.plan_in_world(
        METHODS, WORLD, 1, changes, folder, resume, Final(episodes=EPISODES), METHODS[0]
    )


class LiveRuns:
    """Shows of each run how far it is, and success, p(tool) and the entropy of the first turn so far."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.runs = [_LiveRun(trial) for trial in trials]
        self._shown = ExitStack()

    def __enter__(self) -> LiveRuns:
        for run in self.runs:
            self._shown.enter_context(run.work)
        return self

    def __exit__(self, *raised: object) -> None:
        self._shown.close()

    def look(self) -> None:
        """Count the steps that were written since the last look."""
        for run in self.runs:
            run.look()


class _LiveRun:
    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.work = Progress(trial.method, trial.config.schedule.steps)
        self.steps = list[Measured]()

    def look(self) -> None:
        # The last journal may belong to a step that is under way.
        while len(self.steps) < self.trial.steps:
            journal = self.trial.folder / "trees" / f"step-{len(self.steps) + 1:06d}.jsonl"
            try:
                trees = list(read_trees(journal))
            except FileNotFoundError:  # the run is over, and what it did is measured
                return
            self.steps.append(Measured.of(trees, self.trial.final.world))
        self.work.reach(len(self.steps))
        if self.steps:
            self.work.text = described(self.steps)


def described(steps: Sequence[Measured]) -> str:
    """Return success, p(tool) and the entropy of the first turn (nats) over the last steps, then their curves."""
    success = [step.success for step in steps]
    tool = [step.tool or 0.0 for step in steps]
    entropy = [step.entropy[0] for step in steps]
    # The numbers come first: a narrow terminal cuts the end of a line.
    return (
        f"success {fmean(success[-WINDOW:]):.0%} p(tool) {fmean(tool[-WINDOW:]):.0%} "
        f"entropy {fmean(entropy[-WINDOW:]):.2f}  {curve(success, 1.0)} {curve(tool, 1.0)} {curve(entropy, 0.7)}"
    )


def curve(values: Sequence[float], top: float) -> str:
    """Return values from 0 to `top` as a row of at most `WIDTH` bars, each the mean of its share of the values."""
    count = min(len(values), WIDTH)
    edges = [len(values) * place // count for place in range(count + 1)]
    means = [fmean(values[start:stop]) for start, stop in pairwise(edges)]
    heights = [min(max(mean / top, 0.0), 1.0) for mean in means]
    return "".join(BARS[round(height * (len(BARS) - 1))] for height in heights)


def conclusion(comparison: Comparison) -> str:
    """Return in a sentence how far the floor ended ahead. Raises OSError or ValueError where a run is not over."""
    grpo, floor = (Measured(**trial.result()["sampled"]) for trial in comparison.trials)
    points = 100 * (floor.success - grpo.success)
    side = "ahead of" if points >= 0 else "behind"
    return (
        f"{METHODS[1]} ended {abs(points):.1f} points {side} {METHODS[0]}: {100 * floor.success:.1f} % against "
        f"{100 * grpo.success:.1f} % of {floor.episodes} held-out episodes, with one seed."
    )
