"""The command `turngym diagnose`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...agents.terminal import console, mistakes

WIDE = 140  # columns of a table where there is no terminal


@dataclass(frozen=True)
class Diagnose:
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

    def run(self) -> int:
        """Make starts and runs with live progress, and print a table for each world."""
        with mistakes():
            from . import report
            from .plan import plan as make_plan
            from .work import carry_out

            if self.workers < 1:
                raise ValueError(f"workers is {self.workers}; there must be at least 1")
            report.check_picture(self.picture)
            span = (self.seeds, self.seed, self.steps)
            plan = make_plan(self.methods, self.world, *span, self.out, self.resume)
        if not console.is_terminal:
            console.width = WIDE
        what = f"{', '.join(plan.methods)} in {', '.join(case.name for case in plan.cases)}"
        console.print(f"diagnosing {what}, into {plan.folder}", report.foresight(plan), sep="\n", soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn(), TimeRemainingColumn())
        try:
            with mistakes(), Progress(*columns, console=console, disable=not console.is_terminal) as progress:
                bar = progress.add_task("starts")
                for at in carry_out(plan, self.workers):
                    progress.update(bar, completed=at.done, total=at.total, description=at.what)
                    if at.line:
                        console.print(f"{at.line}{at.left(time.monotonic())}", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            report.write_report(plan)
            console.print(
                f"interrupted; continue with the same command and --out {plan.folder} --resume", soft_wrap=True
            )
            raise
        with mistakes():
            tables = report.write_report(plan, self.picture)
        for table in tables:
            console.print("", table)
        names = (report.TABLES, report.DATA, *([report.PICTURE] if self.picture else []))
        console.print(f"\nwritten: {', '.join(str(plan.folder / name) for name in names)}", soft_wrap=True)
        return 0
