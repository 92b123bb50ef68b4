"""The command `turngym diagnose`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from ...agents.cli.terminal import mistakes
from ...tools.progress import Progress
from .compare import _resumable, _Runs
from .train import show_tables


@dataclass(frozen=True)
class Diagnose(_Runs):
    """Find out in small worlds whether a method holds entropy where it must, and lets go of it where it must."""

    methods: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD …]")
    ] = ()
    """Recipes of methods, as in `turngym compare`, or methods with parameters, such as `grpo,epo:coef=0.1,alpha=4`."""
    world: tuple[str, ...] = ("late-bloomer", "twin")
    """Worlds: `late-bloomer`, `twin`, `useless-choice`, `many-ways`, `distractor`."""
    seeds: int = 8
    """Number of seeds. Each has a policy of its own to begin with, and a run of each method in each world."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: int = 120
    """Training steps of a run."""
    picture: bool = False
    """Draw success, use of the tool, skill and entropy over steps into diagnose.png."""
    against: str = ""
    """Method that the others are compared with: `grpo`, or else the first one, when left out."""

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Progress("getting ready"):
                from ..comparison import diagnosis
                from ..comparison.outcomes import foresight
                from ..comparison.plan import carry_out, check_picture

                self.check()
                if self.picture:
                    check_picture("--picture")
                span = (self.seeds, self.seed, self.steps)
                plan = diagnosis.plan(
                    self.methods, self.world, *span, self.out, self.resume, self.against
                )
            worlds = ", ".join(case.name for case, _ in plan.worlds)
            say = partial(notes.print, markup=False, soft_wrap=True)
            say(
                f"diagnosing {', '.join(plan.methods)} in {worlds}, into {plan.folder}\n{foresight(len(plan.seeds))}"
            )
            how = f" the same command and --out {plan.folder} --resume"
            with _resumable(how, lambda: diagnosis.write_report(plan)), mistakes():
                diagnosis.make_starts(plan.starts, self.workers, say)
                diagnosis.check_acting(plan, self.workers, say)
                for _, comparison in plan.worlds:
                    comparison.write()
                carry_out(plan.trials, self.workers, say)
            with mistakes():
                tables = diagnosis.write_report(plan, self.picture)
            names = (
                diagnosis.TABLES,
                diagnosis.DATA,
                *([diagnosis.PICTURE] if self.picture else []),
            )
            show_tables(tables, plan.folder, names)
            return 0
