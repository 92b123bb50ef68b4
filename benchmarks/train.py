"""The main job: what a command costs until it begins, and a whole run of `math-python`, with all its processes.

    python benchmarks/train.py [--quick] [--beside CHECKOUT]

Each command is a process of its own; seconds are CPU seconds of it and of all processes that it has waited for,
sandboxes among them. With `--beside` the `turngym` of another checkout's own environment runs, too, once each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STARTS = {
    "--help": 1.0,
    "envs": 1.0,
    "train --steps 1 --prompts 1 --group 2 --eval-tasks 1 --out run": 8.0,
}  # CPU-s
RUN = "train --method grpo,epo --seed 0 --out run"  # docs/speed.md has its figures
QUICK = "--steps 6 --eval-every 6"
WALL, CPU = 60.0, 90.0


@dataclass(frozen=True)
class Cost:
    """Seconds that a command took."""

    wall: float
    cpu: float


def main() -> int:
    """Measure; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="six steps in place of sixty, without a goal"
    )
    parser.add_argument(
        "--beside", type=Path, help="another checkout, with an environment in its .venv"
    )
    options = parser.parse_args()
    good = True
    for line, goal in STARTS.items():
        with tempfile.TemporaryDirectory() as folder:
            cost = min(
                (cost_of(ROOT, line, Path(folder) / str(i)) for i in range(3)),
                key=lambda cost: cost.cpu,
            )
        good &= cost.cpu <= goal
        print(
            f"{_mark(cost.cpu <= goal)} turngym {line.split(' --')[0]:8} {cost.cpu:6.2f} CPU-s (<= {goal})",
            flush=True,
        )
    for checkout in (ROOT, options.beside) if options.beside else (ROOT,):
        with tempfile.TemporaryDirectory() as folder:
            cost = cost_of(checkout, f"{RUN} {QUICK if options.quick else ''}", Path(folder))
            lines = [
                json.loads(line)
                for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
            ]
        name, fits = (
            "this" if checkout == ROOT else f"{checkout}",
            cost.wall <= WALL and cost.cpu <= CPU,
        )
        good &= options.quick or checkout != ROOT or fits
        goals = "" if options.quick else f" (<= {WALL:g} idle, <= {CPU:g})"
        print(
            f"{'     ' if options.quick else _mark(fits)} {name}: {cost.wall:.1f} s, {cost.cpu:.1f} CPU-s{goals}"
        )
        print(
            f"      {success(lines)}, {rollout(lines):,.0f} drawn tokens a second of rollout",
            flush=True,
        )
    return 0 if good else 1


def cost_of(checkout: Path, line: str, folder: Path) -> Cost:
    """Return what a command of `turngym` takes in a folder of its own."""
    folder.mkdir(exist_ok=True)
    before, began = os.times(), time.monotonic()
    subprocess.run(
        [checkout / ".venv/bin/turngym", *line.split()],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = os.times()
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return Cost(time.monotonic() - began, cpu)


def success(lines: list[dict[str, float]]) -> str:
    """Say what was learned."""
    valid = [line["valid/success"] for line in lines if "valid/success" in line]
    return f"success {valid[0]:.1%} -> {valid[-1]:.1%}"


def rollout(lines: list[dict[str, float]]) -> float:
    """Return tokens drawn a second of rollouts."""
    steps = [line for line in lines if "tokens" in line]
    return sum(line["tokens"] for line in steps) / sum(line["seconds_rollout"] for line in steps)


def _mark(good: bool) -> str:
    return "ok   " if good else "SHORT"


if __name__ == "__main__":
    sys.exit(main())
