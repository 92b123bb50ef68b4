"""The files that a command passes through: how much of the house a reader has to know.

    python benchmarks/walk.py [train] [eval] [call] [--list]

Counts the files of the four rooms of which a function runs, in this process and its threads, while

    train  `turngym train` takes one step, with a validation before and after
    eval   `turngym eval` plays eight episodes with the tiny policy
    call   a warm Python tool answers one call

Each walk has a process of its own, for a module that is imported on the way counts if one of its functions runs then.
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType, FrameType

import turngym
from turngym.__main__ import main as turngym_main
from turngym.tools import PythonTool

ROOT = Path(turngym.__file__).parent
ROOMS = ("tools", "envs", "agents", "training")
GOALS = {"train": 70, "eval": 45, "call": 6}


def main() -> int:
    """Trace each walk that is asked for and print how many files it touched, by room; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "walks", nargs="*", metavar="train|eval|call", help="all three when left out"
    )
    parser.add_argument("--list", action="store_true", help="name the files")
    args = parser.parse_args()
    walks = {"train": train, "eval": evaluate, "call": call}
    names = args.walks or list(walks)
    if len(names) > 1:
        more = ["--list"] if args.list else []
        return max(
            subprocess.run([sys.executable, __file__, name, *more]).returncode for name in names
        )
    files = walks[names[0]]()
    rooms = Counter(file.split("/")[0] for file in files)
    by_room = ", ".join(f"{room} {rooms[room]}" for room in ROOMS if rooms[room])
    print(f"{names[0]}: {len(files)} files (at most {GOALS[names[0]]} wanted): {by_room}")
    if args.list:
        print(*(f"  {file}" for file in sorted(files)), sep="\n")
    return 1 if len(files) > GOALS[names[0]] else 0


def train() -> set[str]:
    """Return the files of one step of training."""
    return command("train --steps 1 --prompts 4 --group 4 --eval-tasks 8 --out run")


def evaluate() -> set[str]:
    """Return the files of an evaluation."""
    return command("eval turngym/MathPython-v0 --episodes 8 --out eval")


def call() -> set[str]:
    """Return the files of one call of a warm tool."""
    tool = PythonTool()
    try:
        tool.call({"code": "x = 1"})
        return traced(lambda: tool.call({"code": "print(x + 1)"}))
    finally:
        tool.close()


def command(line: str) -> set[str]:
    """Return the files that a command of turngym passes through, run in a temporary folder."""

    def run() -> None:
        try:
            turngym_main(line.split())
        except SystemExit as end:
            if end.code:
                raise

    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        os.chdir(folder)
        try:
            return traced(run)
        finally:
            os.chdir(before)


def traced(run: Callable[[], object]) -> set[str]:
    """Return the files of the rooms of which a function is called while `run` runs."""
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    functions = (
        code for code in seen if code.co_flags & inspect.CO_OPTIMIZED
    )  # neither modules nor classes
    files = {code.co_filename for code in functions}
    rooms = tuple(f"{ROOT / room}{os.sep}" for room in ROOMS)
    return {str(Path(file).relative_to(ROOT)) for file in files if file.startswith(rooms)}


if __name__ == "__main__":
    sys.exit(main())
