"""The policies that seeds begin with in a world: warmed up to its table, measured, and refused outside its gates.

A method can only be judged where the start is what the world was made for: a policy that lacks the skill to begin with
shows nothing of a control, as there is nothing that a control could keep.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...agents.journal import write_file
from ...envs.splits import open_split
from ...tools.progress import Work
from ..comparison.measure import Measured
from ..comparison.plan import Trial
from ..comparison.work import in_processes
from .plan import FILE, Case, Diagnosis

GATES = {"tool": 0.06, "skill": 0.12, "valid": 0.05, "success": 0.08, "pass_at_8": 0.12}  # how far from the table

PROBED = 8  # steps in which a method that acts is to differ


def make_starts(diagnosis: Diagnosis, workers: int, say: Callable[[str], object]) -> None:
    """Make what seeds begin with, and say what each measures. Raises ValueError where one is outside its gates."""
    starts = diagnosis.starts
    made = [start for start in starts if (start[2] / FILE).is_file()]
    with Work("starts", len(starts)) as work:
        for start in made:
            say(_start(*start))
            work.advance()
        for line in in_processes([partial(_start, *start) for start in starts if start not in made], workers):
            say(line)
            work.advance()


def _start(case: Case, seed: int, folder: Path) -> str:
    found = begin(case, seed, folder)
    shares = (f"{name} {100 * getattr(found, name):.1f} %" for name in case.start.expects(case.world))
    return f"{case.name}, seed {seed} begins with {', '.join(shares)}"


def check_acting(diagnosis: Diagnosis, workers: int, say: Callable[[str], object]) -> None:
    """Say which methods take the same first steps as the reference, of those whose first run has not begun."""
    for case, comparison in diagnosis.worlds:
        first = [trial for trial in comparison.trials if trial.config.seed == diagnosis.seeds[0]]
        peer = comparison.reference
        if all(trial.begun or trial.method == peer for trial in first):
            continue
        with Work(f"probing methods in {case.name}", len(first)) as work:
            seen = dict[str, list[Any]]()
            for method, steps in in_processes([partial(_probe, trial) for trial in first], workers):
                seen[method] = steps
                work.advance()
        for method, steps in seen.items():
            if method != peer and steps == seen[peer]:
                what = f"the same {len(steps)} first steps as {peer} in {case.name}"
                say(f"{method} took {what}: it may not act there at all")


def _probe(trial: Trial) -> tuple[str, list[Any]]:
    """Return the method, and entropy and norm of the gradient in each of the first steps of a run."""
    with TemporaryDirectory() as folder:
        short = replace(trial, config=replace(trial.config, out=folder))
        with closing(short.records()) as records:
            taken = islice((one.metrics for one in records if one.metrics), min(PROBED, trial.config.schedule.steps))
            return trial.method, [[metrics["entropy"], metrics["grad_norm"]] for metrics in taken]


def begin(case: Case, seed: int, folder: Path) -> Measured:
    """Return what the policy in `folder`, made if it is not whole, measures. Raises ValueError if it is off."""
    if not (folder / FILE).is_file():
        from ...agents.warmup.exact import warm_up

        shutil.rmtree(folder, ignore_errors=True)
        for _ in warm_up(open_split(case.env, {"split": "train"}), case.start, seed, folder):
            pass
        found = case.final.play(case.env, {"split": "test"}, folder, max_tokens=case.max_tokens, seed=seed)
        write_file(folder / FILE, json.dumps({"start": asdict(case.start), "measured": asdict(found)}) + "\n")
    data = json.loads((folder / FILE).read_text("utf-8"))
    if data["start"] != asdict(case.start):
        raise ValueError(
            f"the policy in {folder} was made for {data['start']}, not for {asdict(case.start)}; remove it"
        )
    check(case, found := Measured(**data["measured"]), f"{case.name}, seed {seed}: the policy in {folder}")
    return found


def check(case: Case, found: Measured, what: str) -> None:
    """Raise ValueError where a start measures something else than its table says; `what` names it."""
    for name, wanted in case.start.expects(case.world).items():
        value, most = getattr(found, name), GATES[name]
        if value is None or not abs(value - wanted) <= most:
            raise ValueError(
                f"{what} has {name} {value}; the gate is {wanted:.3f} ± {most} on {found.episodes} episodes, "
                "outside of which the world shows nothing; choose other seeds with --seed"
            )
