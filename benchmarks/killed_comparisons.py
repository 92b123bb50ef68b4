"""Comparisons in which a worker is killed at a random step: all must end with the files of one left alone.

    python benchmarks/killed_comparisons.py [--comparisons 20] [--seed 0]

Each compares two methods with two seeds, two runs at a time, in a process of its own. SIGKILL strikes one of its
workers at a random instant behind a random step. What they write is compared file by file, without times. The last
line is such as `20 of 20`; the exit status is 1 if one differs, or does not finish.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from turngym.tests.support.comparisons import begin_comparison, contents, kill_a_worker

FOLDER = "compared"  # in one of its own: what a run writes down of its place is then alike


def main() -> int:
    """Compare, kill, and print a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--comparisons", type=int, default=20, help="in how many a worker is killed"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / FOLDER
        if begin_comparison(folder).wait():
            print((folder.parent / "log.txt").read_text())
            return 1
        expected = contents(folder)
    print(f"undisturbed: {len(expected)} files", flush=True)
    same = 0
    for number in range(args.comparisons):
        same += is_unharmed(expected, random.Random(f"{args.seed} {number}"), number)
    print(f"{same} of {args.comparisons}")
    return 0 if same == args.comparisons else 1


def is_unharmed(expected: dict[str, Any], rng: random.Random, number: int) -> bool:
    """Return whether a comparison in which a worker is killed ends with the expected files, and print a line on it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / FOLDER
        process = begin_comparison(folder)
        killed = kill_a_worker(process, folder, rng)
        status = process.wait()
        found = contents(folder)
    names = sorted(expected.keys() | found.keys())
    differ = [name for name in names if found.get(name) != expected.get(name)]
    good = status == 0 and not differ
    outcome = (
        "the same files"
        if good
        else f"status {status}, differs in {', '.join(differ) or 'nothing'}"
    )
    print(f"{number + 1:2}. killed {killed}: {outcome}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
