"""Comparisons, diagnoses and tests of claims in a process of their own, whose workers are killed while they run."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = """
env = "turngym/Math-v0"
difficulty = [1]
steps = 4
prompts = 2
group = 2
max_tokens = 12
eval_every = 2
eval_tasks = 3
seed = 5
"""
CLAIMS = """
[base]
env = "turngym/Math-v0"
difficulty = [1]
steps = 4
prompts = 2
group = 2
max_tokens = 12
eval_every = 4
eval_tasks = 3

[arms]
plain = { method = "grpo" }
bonus = { method = "grpo,entropy-bonus" }

[[claim]]
name = "bonus"
says = "A bonus raises entropy"
paper = "none"
rows = [{ of = "mean", arm = "bonus", than = "plain" }]
"""
UNKEPT = (
    "seconds",
    "seconds_rollout",
    "minutes",
    "revision",
)  # times, and what the checkout is like meanwhile
STEPS = 4  # of each run


def begin_comparison(folder: Path) -> subprocess.Popen[bytes]:
    """Start a comparison of two methods and two seeds, two runs at a time, that writes into `folder`."""
    recipe = _written(folder.parent / "small.toml", SMALL)
    return _begin(
        f"compare grpo entropy-bonus --on {recipe.name} --seeds 2 --final 8 --workers 2", folder
    )


def begin_diagnosis(folder: Path) -> subprocess.Popen[bytes]:
    """Start a diagnosis of two methods in one world, two runs at a time, that writes into `folder`."""
    methods = "diagnose grpo grpo,turn-floor"
    return _begin(f"{methods} --world late-bloomer --seeds 1 --steps {STEPS} --workers 2", folder)


def begin_claims(folder: Path) -> subprocess.Popen[bytes]:
    """Start a test of one claim about two arms with two seeds, two runs at a time, that writes into `folder`."""
    table = _written(folder.parent / "claims.toml", CLAIMS)
    return _begin(f"claims {table.name} --seeds 2 --workers 2", folder)


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _begin(line: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command that writes into a folder, and its output into `log.txt` beside it.

    It works beside the folder, whose name it is given: adapters name their base model, which must be alike in all.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "turngym", *line.split(), "--out", folder.name]
    with (folder.parent / "log.txt").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder.parent)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the processes that make runs for a comparison."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if parent == process.pid and b"spawn_main" in command:
            found.append(int(entry.name))
    return sorted(found)


def run_of(worker: int) -> str:
    """Return the run folder that a worker has locked, which it does while it trains; empty if there is none."""
    for handle in Path(f"/proc/{worker}/fd").glob("*"):
        with suppress(OSError):  # it has closed it meanwhile
            opened = handle.readlink()
            if opened.name.startswith("seed-"):
                return str(opened)
    return ""


@dataclass(frozen=True)
class Kill:
    """A worker that was killed at a random instant."""

    worker: int | None
    """Its process; None if all workers had ended."""
    step: int
    """After which step of the first run it was killed."""
    run: str = ""
    """The run that it was training; empty if it was between two runs, or measuring one."""


def kill_a_worker(process: subprocess.Popen[bytes], folder: Path, rng: random.Random) -> Kill:
    """Kill one of the workers at a random instant of its run."""
    step = rng.randrange(STEPS)
    while process.poll() is None:
        lines = [path.read_bytes().count(b"\n") for path in folder.rglob("metrics.jsonl")]
        if any(count > step for count in lines):
            break
        time.sleep(0.02)
    time.sleep(rng.random() * 0.6)
    for worker in rng.sample(found := workers_of(process), len(found))[:1]:
        trained = run_of(worker)
        os.kill(worker, signal.SIGKILL)
        return Kill(worker, step, trained)
    return Kill(None, step)


def contents(folder: Path) -> dict[str, Any]:
    """Return what a command wrote, file by file, without times and the revision of the checkout."""
    return {
        str(path.relative_to(folder)): _content(path, str(folder.parent))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".png", ".html", ".md", ".npz")
    }


def _content(path: Path, place: str) -> Any:
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text("utf-8").replace(place, "PLACE")))
    if path.name == "metrics.jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    if path.name == "config.toml":
        lines = path.read_text("utf-8").replace(place, "PLACE").splitlines()
        return [line for line in lines if not line.startswith("revision = ")]
    return path.read_bytes()


def _timeless(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _timeless(value) for key, value in data.items() if key not in UNKEPT}
    return [_timeless(value) for value in data] if isinstance(data, list) else data
