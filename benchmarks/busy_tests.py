"""The tests on a busy machine: `make test` several times beside processes that keep every core busy.

    python benchmarks/busy_tests.py [--rounds 5] [--busy 4]

Runs the tests once on the machine as it is, for their time, then `--rounds` times beside `--busy` endless loops. Prints
seconds and the closing line of pytest for each; exit status 1 where a round fails. Run it when nothing else runs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOOP = "while True: sum(range(10_000))"


def main() -> int:
    """Run the rounds and print one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs beside busy processes")
    parser.add_argument("--busy", type=int, default=4, help="processes that keep the cores busy")
    args = parser.parse_args()
    passed_idle = shown("idle", run_tests())
    with busy(args.busy):
        passed = sum(
            shown(f"busy {number} of {args.rounds}", run_tests())
            for number in range(1, args.rounds + 1)
        )
    print(f"{passed} of {args.rounds} runs pass beside {args.busy} busy processes")
    return 0 if passed_idle and passed == args.rounds else 1


def run_tests() -> tuple[bool, float, str]:
    """Return whether `make test` passes, its seconds, and what pytest says last, with the names of failures."""
    began = time.monotonic()
    done = subprocess.run(["make", "test"], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    last = [line for line in lines if re.search(r"\d+ (passed|failed|error)", line)][-1:] or lines[
        -1:
    ]
    return done.returncode == 0, time.monotonic() - began, "\n  ".join(last + failures)


def shown(name: str, outcome: tuple[bool, float, str]) -> bool:
    """Print a run and return whether it passed."""
    passed, seconds, summary = outcome
    print(f"{name}: {'passes' if passed else 'FAILS'} in {seconds:.0f} s: {summary}", flush=True)
    return passed


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processes busy."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
