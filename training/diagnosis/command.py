"""The command `turngym diagnose`."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro
from rich.console import Console

from ...agents.terminal import Shown, console, mistakes
from ...tools.progress import Work
from ..commands import show_tables


@dataclass(frozen=True)
class Diagnose(Shown):
    """Find out in small worlds whether a method holds entropy where it must, and lets go of it where it must."""

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD …]")] = ()
    """Recipes of methods, as in `turngym compare`, or methods with parameters, such as `grpo,epo:coef=0.1,alpha=4`."""
    world: tuple[str, ...] = ("late-bloomer", "twin")
    """Worlds: `late-bloomer`, `twin`, `useless-choice`, `many-ways`, `distractor`."""
    seeds: int = 8
    """Number of seeds. Each has a policy of its own to begin with, and a run of each method in each world."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: int = 120
    """Training steps of a run."""
    workers: int = 2
    """Runs at a time, each in a process with one thread."""
    picture: bool = False
    """Draw success, use of the tool, skill and entropy over steps into diagnose.png."""
    out: str = ""
    """Folder of the diagnosis. By default the first of runs/diagnose, runs/diagnose-2, … that does not exist."""
    resume: bool = False
    """Continue the diagnosis in `--out`. What is finished is kept; more methods, worlds and seeds can be added."""

    against: str = ""
    """Method that the others are compared with: `grpo`, or else the first one, when left out."""

    def run(self) -> int:
        with self.shown() as notes:
            return self._diagnose(notes)

    def _diagnose(self, notes: Console) -> int:
        with mistakes(), Work("getting ready"):
            from ..comparison.outcomes import foresight
            from ..comparison.plan import check_picture
            from ..comparison.work import carry_out
            from . import report
            from .plan import check_acting, make_starts
            from .plan import plan as make_plan

            if self.workers < 1:
                raise ValueError(f"workers is {self.workers}; there must be at least 1")
            if self.picture:
                check_picture("--picture")
            span = (self.seeds, self.seed, self.steps)
            plan = make_plan(self.methods, self.world, *span, self.out, self.resume, self.against)
        worlds = ", ".join(case.name for case, _ in plan.worlds)
        say = partial(notes.print, markup=False, soft_wrap=True)
        say(f"diagnosing {', '.join(plan.methods)} in {worlds}, into {plan.folder}\n{foresight(len(plan.seeds))}")
        try:
            with mistakes():
                make_starts(plan, self.workers, say)
                check_acting(plan, self.workers, say)
                for _, comparison in plan.worlds:
                    comparison.write()
                carry_out(plan.trials, self.workers, say)
        except KeyboardInterrupt:
            report.write_report(plan)
            console.print(
                f"interrupted; continue with the same command and --out {plan.folder} --resume", soft_wrap=True
            )
            raise
        with mistakes():
            tables = report.write_report(plan, self.picture)
        show_tables(tables, plan.folder, (report.TABLES, report.DATA, *([report.PICTURE] if self.picture else [])))
        return 0
