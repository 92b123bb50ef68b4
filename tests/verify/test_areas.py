"""Every area of `turngym verify`, small: no row falls short. Rows that state a time are left to idle machines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import turngym

ROOT = Path(turngym.__file__).parent
TIMED = re.compile(r"within|overrun|takes at most")
AREAS = {
    "contracts": "--episodes 20 --tool-episodes 2",
    "deadlines": "",
    "evaluation": "--reports 40 --episodes 60 --kills 4",
    "formats": "--fuzzed 350 --rendered 200 --milliseconds 250",
    "grader": "--completions 60 --threads 4 --processes 1",
    "household": "--fuzz-games 2 --strings 200 --forked 2 --tasks 2",
    "methods": "--households 20 --sessions 2",
    "replay": "--episodes 50 --changes 20",
    "resume": "--kills 1 --signals 2 --mutations 20 --injections 12",
    "sandbox": "--seeds 1 --runs 2 --load-calls 100 --threads 8 --environments 24 --programs 24",
    "search": "--tasks 20 --learned 200 --processes 1 --episodes 5",
    "tasks": "--most 20 --entries 1 --constant 1",
    "templates": "--mixtures 3",
    "vllm": "--requests 300",
}


def verify(area, *options):
    """Run an area from the checkout; return its status and output, a line a row."""
    done = subprocess.run(
        [sys.executable, "-m", "turngym", "verify", area, *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "1000"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("area", AREAS)
def test_no_row_falls_short(area, shared_data):
    status, out = verify(area, *AREAS[area].split())
    rows = re.findall(r"^(holds|SHORT)  \d+/\d+  (.*)$", out, re.M)
    short = [what for mark, what in rows if mark == "SHORT"]
    assert rows and status == bool(short), out
    assert [what for what in short if not TIMED.search(what)] == [], out


def test_accounting(tmp_path):
    folder = str(tmp_path / "run")
    train = [
        sys.executable,
        "-m",
        "turngym",
        "train",
        "--steps",
        "1",
        "--prompts",
        "1",
        "--group",
        "2",
        "--out",
        folder,
    ]
    subprocess.run(train, check=True, capture_output=True)
    status, out = verify("accounting", "--run", folder)
    assert status == 0 and "5/5 rows hold" in out
