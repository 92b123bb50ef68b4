"""CPU seconds of every mistake on the command line that the tests know, each in a process of its own.

    python benchmarks/mistakes.py [--least SECONDS]

A line a mistake: seconds of user and system time, what is left behind (nothing, it should be) and the one line that
refuses it. With `--least` only those that take that long.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from turngym.tests.support.mistakes import MISTAKES, write_files


def seconds() -> float:
    """Return the CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--least", type=float, default=0.0, help="print only those that take so many CPU seconds"
    )
    least, most = parser.parse_args().least, 0.0
    for line in MISTAKES:
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder))
            before, begun = set(Path(folder).iterdir()), seconds()
            command = [sys.executable, "-m", "turngym", *shlex.split(line)]
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            took = seconds() - begun
            left = [
                path.name
                for path in set(Path(folder).iterdir()) - before
                if path.name != "__pycache__"
            ]
        most = max(most, took)
        if took >= least:
            print(f"{took:5.2f} s  left {left}  turngym {line}\n         {done.stderr.strip()}")
    print(f"{len(MISTAKES)} mistakes, at most {most:.2f} CPU seconds each")


if __name__ == "__main__":
    main()
