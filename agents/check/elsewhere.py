"""Episodes in a second process, whose hash seed is another: what depends on the order of a set shows there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from .episodes import Broken, Case, Plan

SECONDS = 300.0


class NoOtherProcess(Exception):
    """The environment cannot be made in another process, and why."""


def episodes_elsewhere(case: Case, plans: Sequence[Plan]) -> list[list[str]]:
    """Return what is seen of `plans` in a second process.

    Raises:
        NoOtherProcess: what makes the environment has no name or no JSON form by which another process could know it.
        Broken: the second process failed where this one did not.
    """
    request = _request(case, plans)
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    code = f"from {__name__} import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            input=request,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"a second process did not play {len(plans)} episodes within {SECONDS:g} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or ["it wrote no error message"]
        raise Broken(f"a second process ended with exit code {done.returncode}: {words[0]}")
    seen: list[list[str]] = json.loads(done.stdout)
    return seen


def main() -> None:
    """Play what the request on standard input says and write what was seen to standard output."""
    request, output = json.load(sys.stdin), sys.stdout
    sys.stdout = sys.stderr  # whatever an environment prints is no answer
    if request["id"] not in gymnasium.registry:
        gymnasium.register(request["id"], entry_point=request["entry_point"], kwargs=request["kwargs"])
    case = Case(request["id"], request["options"])
    json.dump([case.episode(Plan(seed, tuple(actions))) for seed, actions in request["plans"]], output)


def _request(case: Case, plans: Sequence[Plan]) -> str:
    spec = gymnasium.spec(case.env_id)
    if not isinstance(spec.entry_point, str):
        raise NoOtherProcess(f"{case.env_id} is registered with an object; register it by name, as 'module:factory'")
    request = {
        "id": case.env_id,
        "entry_point": spec.entry_point,
        "kwargs": spec.kwargs,
        "options": dict(case.options),
        "plans": [(plan.seed, plan.actions) for plan in plans],
    }
    try:
        return json.dumps(request)
    except TypeError as error:
        raise NoOtherProcess(f"the options of {case.env_id} have no JSON form: {error}") from None
