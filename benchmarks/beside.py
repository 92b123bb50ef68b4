"""CPU time of one workload in this checkout beside another checkout: interleaved runs, median ratio and interval.

    python benchmarks/beside.py ../before --workload household grader search --pairs 15

Each run is a process of its own, which warms up, does the workload, and prints its CPU seconds. The runs of the two
checkouts alternate, so that a busy machine slows both alike. A ratio above 1 means that this checkout takes longer. The
interval holds the median of the ratios with 95 % (from the order of the ratios). The other checkout needs no `.venv`:
both run in the interpreter of this command.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path
from statistics import median

CHECKOUT = Path(__file__).resolve().parents[1]

HOUSEHOLD = """
import time
import gymnasium
import turngym

env = gymnasium.make("turngym/Household-v0")

def play(seed):
    observation, info = env.reset(seed=seed)
    for action in env.unwrapped.gold():
        env.step(action)

play(0)
begin = time.process_time()
for seed in range(1, 300):
    play(seed)
print(time.process_time() - begin)
"""

GRADER = r"""
import time
from turngym.envs.math.grading.grader import MathGrader

GOLDS = ["42", "-7", "3/4", "0.125", "1,234", "2\\frac{1}{3}", "(1, 2)", "\\{1, 2, 3\\}", "[0, 1)", "75\\%", "12 cm",
         "x = 5", "\\text{even}", "(B)", "1.5 \\times 10^3"]
ANSWERS = ["42", "-7", "\\frac{3}{4}", "0.125", "1234", "\\frac{7}{3}", "(1,2)", "\\{3,2,1\\}", "[0,1)", "0.75", "12",
           "5", "even", "B", "1500"]
grader = MathGrader()

def grade_all():
    for gold in GOLDS:
        for answer in ANSWERS:
            if (gold in GOLDS[:6]) == (answer in ANSWERS[:6]):
                text = f"So the answer follows from the steps above.\n\\boxed{{{answer}}}"
                grader.grade(completion=text, gold=gold)

ASKS_MATH_VERIFY = {"\\text{even}", "(B)"}
GOLDS = [gold for gold in GOLDS if gold not in ASKS_MATH_VERIFY]
grade_all()
begin = time.process_time()
for _ in range(60):
    grade_all()
print(time.process_time() - begin)
"""

SEARCH = """
import random, time
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.retriever import Passage

draw = random.Random(0)
words = [f"word{number}" for number in range(4000)]
passages = [Passage(f"{number}", f"title {number}", " ".join(draw.choices(words, k=60))) for number in range(3000)]
index = BM25(passages)
queries = [" ".join(draw.choices(words, k=5)) for _ in range(3000)]
index.search(queries[0], 3)
begin = time.process_time()
for query in queries:
    index.search(query, 3)
print(time.process_time() - begin)
"""

WORKLOADS = {"household": HOUSEHOLD, "grader": GRADER, "search": SEARCH}


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the other checkout, a folder called turngym")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs, at least 11 (15)")
    args = parser.parse_args()
    other = args.other.resolve()
    if args.pairs < 11:
        sys.exit(f"--pairs is {args.pairs}; an interval needs at least 11")
    with tempfile.TemporaryDirectory() as folder:
        here = link_checkout(CHECKOUT, Path(folder) / "here")
        there = link_checkout(other, Path(folder) / "there")
        for name in args.workload:
            ratios = []
            for _ in range(args.pairs):
                before = cpu_seconds(WORKLOADS[name], there)
                ratios.append(cpu_seconds(WORKLOADS[name], here) / before)
            low, high = interval_of_median(ratios)
            print(
                f"{name:10} {median(ratios):.3f} times the CPU time of {other}, "
                f"95 % {low:.3f} to {high:.3f}, {args.pairs} pairs",
                flush=True,
            )


def link_checkout(checkout: Path, folder: Path) -> Path:
    """Return a folder in which a checkout can be imported as `turngym`, whatever its own name is."""
    folder.mkdir()
    (folder / "turngym").symlink_to(checkout)
    return folder


def cpu_seconds(program: str, folder: Path) -> float:
    """Return the CPU seconds that a program prints, run with the `turngym` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout)


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Return the narrowest pair of order statistics that holds the median with at least 95 %.

    The number of values below the true median is binomial with probability 1/2.
    """
    ordered = sorted(values)
    count = len(ordered)
    rank = 0  # of the lower end, counted from 0
    below = 1 / 2**count  # probability that at most `rank` values are below the median
    while below + comb(count, rank + 1) / 2**count <= 0.025:
        rank += 1
        below += comb(count, rank) / 2**count
    return ordered[rank], ordered[-1 - rank]


if __name__ == "__main__":
    main()
