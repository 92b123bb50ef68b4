"""Area `methods`: every method beside its sheet and what all promise, and branches in worlds that have a state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turngym.tests.verify.rows import Row, Tally

Part = Literal["all", "methods", "branching"]


@dataclass(frozen=True)
class Methods:
    """Worked examples, battery and gradient direction of each method; branches in a house and in a Python session."""

    seed: int = 0
    """Keys all randomness."""
    only: Part = "all"
    """Which part to count."""
    method: str = ""
    """Only this method; all of them when left out."""
    households: int = 1000
    """Random trees in the made-up house."""
    sessions: int = 100
    """Random trees in a persistent Python session."""
    seen: bool = False
    """Instead of that: where each method takes entropy, on a toy plant and in runs of the tiny policy, beside GRPO."""
    settle: bool = False
    """Instead of that: whether controllers of entropy hold their targets over 150 steps of the toy plant."""
    where: Literal["all", "plant", "run"] = "all"
    """Where that is seen."""
    seeds: int = 2
    """Seeds of each."""
    out: Path = Path("runs/seen")
    """Folder of what was measured; what is there is not measured again."""

    def rows(self) -> Iterator[Row]:
        """Yield up to three rows a method, then a row a world."""
        from turngym.tests.verify.methods.branching import household_row, python_row
        from turngym.training.methods import METHODS, check_methods

        if self.method:
            check_methods(self.method)
        names = [self.method] if self.method else list(METHODS)
        if self.settle:
            from turngym.tests.verify.methods.seen import settles

            yield from settles(self.seeds)
            return
        if self.seen:
            from turngym.tests.verify.methods.seen import STEPS, Seen

            yield from Seen(
                self.out, self.seeds, tuple(STEPS) if self.where == "all" else (self.where,)
            ).rows(names)
            return
        if self.only != "branching":
            for name in names:
                yield from _method_rows(name)
        if self.only != "methods" and not self.method:
            yield household_row(self.households, self.seed)
            yield python_row(self.sessions, self.seed)


def _method_rows(name: str) -> Iterator[Row]:
    from turngym.tests.verify.methods.battery import CHECKS, DIRECTIONS, directions
    from turngym.tests.verify.methods.cases import CASES
    from turngym.tests.verify.methods.field_examples import EXAMPLES

    examples = [example for example in EXAMPLES if example.method == name]
    if examples:  # some sheets have none
        tally = Tally(f"{name}: worked examples")
        for number, example in enumerate(examples, 1):
            tally.add(f"{example.section} no. {number}", example.fault())
        yield tally.row(", ".join(dict.fromkeys(example.section for example in examples)))
    battery, direction = Tally(f"{name}: battery"), Tally(f"{name}: gradient direction")
    for case in (case for case in CASES if case.method == name):
        for check, holds in CHECKS.items():
            battery.add(f"{check} with {case.active}", not holds(case))
        for check in directions(case):
            direction.add(f"{check} with {case.active}", not DIRECTIONS[check](case))
    yield battery.row()
    yield direction.row()
