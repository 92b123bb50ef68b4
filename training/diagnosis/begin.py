"""The policy that a seed begins with in a world: warmed up to its table, measured, and refused outside its gates.

A method can only be judged where the start is what the world was made for: a policy that lacks the skill to begin with
shows nothing of a control, as there is nothing that a control could keep.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from ...agents.journal import write_file
from ...envs.splits import open_split
from .cases import Case
from .measure import Measured, play

FILE = "start.json"  # written last: a folder that has it is whole
GATES = {"tool": 0.06, "skill": 0.12, "valid": 0.05, "success": 0.08, "pass_at_8": 0.12}  # how far from the table


def begin(case: Case, seed: int, folder: Path) -> Measured:
    """Return what the policy in `folder` measures; make it where it is not whole.

    Raises:
        ValueError: it does not learn its table, or measures something else than that says.
    """
    if not (folder / FILE).is_file():
        from ...agents.warmup.exact import warm_up

        shutil.rmtree(folder, ignore_errors=True)
        for _ in warm_up(open_split(case.env, {"split": "train"}), case.start, seed, folder):
            pass
        found = play(case, folder, seed)
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
