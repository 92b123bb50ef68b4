"""What a comparison pays to measure the own term of its methods: CPU seconds of runs with and without it, interleaved.

    python benchmarks/own_term.py [--method epo] [--steps 12 64] [--rounds 6] [--on late-bloomer]

Of each number of steps a pair of runs a round, in turn one or the other first, with the same seed and so the same
episodes; a run ends with the final validation of `turngym compare`, as it does there. Printed are the median of the
ratio with its 95 % interval, and the share of the CPU that is spent in the measurement itself, counted by the clock of
the thread. The exit status is 1 if that share is above 2 %.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in the workers of a comparison

from turngym.training.comparison import diagnosis
from turngym.training.comparison.measure import Final
from turngym.training.comparison.own_term import OwnTerm
from turngym.training.comparison.plan import Comparison, Trial
from turngym.training.comparison.plan import plan as make_plan

MOST = 0.02  # of the CPU


@dataclass
class Spent:
    """CPU seconds of a run, and those of them in the measurement."""

    run: float = 0.0
    measurement: float = 0.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", default="epo", help="the method that is compared with grpo")
    parser.add_argument("--steps", type=int, nargs="+", default=[12, 64], help="of the runs")
    parser.add_argument("--rounds", type=int, default=6, help="pairs of runs")
    parser.add_argument("--on", default="late-bloomer", help="a world, or a recipe")
    args = parser.parse_args()
    shares = [measure(args.method, args.on, steps, args.rounds) for steps in args.steps]
    return 0 if max(shares) <= MOST else 1


def measure(method: str, on: str, steps: int, rounds: int) -> float:
    """Make pairs of runs, print a line on them, and return the share of the measurement in the CPU seconds of a run."""
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as place:
        trial = trial_of(method, on, steps, Path(place))
        for number in range(rounds):
            ways = [True, False] if number % 2 else [False, True]
            spent = {
                with_it: made(trial, with_it, Path(place) / f"{number}-{with_it}")
                for with_it in ways
            }
            ratios.append(spent[True].run / spent[False].run)
            shares.append(spent[True].measurement / spent[True].run)
    low, high = interval(ratios)
    print(
        f"{method} on {on}, {steps} steps, {rounds} pairs: CPU with / without {median(ratios):.3f} ",
        end="",
    )
    print(
        f"[{low:.3f}, {high:.3f}]; in the measurement {100 * median(shares):.2f} %, at most {100 * max(shares):.2f} %"
    )
    return median(shares)


def trial_of(method: str, on: str, steps: int, place: Path) -> Trial:
    """Return the run of a method in a comparison with grpo, with what it begins with."""
    methods, changes, out = (
        ["grpo", method],
        {"steps": steps, "eval_every": steps},
        str(place / "compared"),
    )
    comparison: Comparison
    if on in diagnosis.CASES:
        comparison = diagnosis.plan_in_world(methods, on, 1, changes, out, False, Final(), "")
        diagnosis.make_starts(diagnosis.starts_of(comparison), 1, print)
    else:
        comparison = make_plan(methods, on, 1, changes, out)
    (trial,) = [trial for trial in comparison.trials if trial.method == method]
    return trial


def made(trial: Trial, with_it: bool, folder: Path) -> Spent:
    """Make a run in a folder, and return what it took."""
    reference = trial.reference if with_it else None
    run = replace(trial, config=trial.config.changed(out=str(folder)), reference=reference)
    spent = Spent()
    with counted(spent):
        began = time.process_time()
        for _ in run.records():
            pass
        spent.run = time.process_time() - began
    return spent


@contextmanager
def counted(spent: Spent) -> Iterator[None]:
    """Count the seconds of the measurement."""
    before_update = OwnTerm.before_update

    def count(*args: Any) -> None:
        began = time.thread_time()
        before_update(*args)
        spent.measurement += time.thread_time() - began

    OwnTerm.before_update = count  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        OwnTerm.before_update = before_update  # type: ignore[method-assign]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a median, from the order of the values; all of them if they are fewer than 6."""
    ordered, count = sorted(values), len(values)
    outside = 0
    while 2 * sum(comb(count, below) for below in range(outside + 2)) / 2**count <= 0.05:
        outside += 1
    return ordered[outside], ordered[count - 1 - outside]


if __name__ == "__main__":
    sys.exit(main())
