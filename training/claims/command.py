"""The command `turngym claims`."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from ...agents.terminal import Shown, console, mistakes
from ...tools.progress import Work
from ..commands import show_tables

QUICK = 2  # seeds


@dataclass(frozen=True)
class Claims(Shown):
    """Test what papers say about entropy with a small policy: one table of claims, confirmed or not, over seeds."""

    table: Annotated[str, tyro.conf.Positional] = "tiny"
    """The claims and their runs: `tiny`, `smollm2`, or a TOML file of your own."""
    seeds: int = 5
    """Number of seeds, and so of runs of each arm."""
    seed: int = 100
    """The first seed; the others follow it."""
    quick: bool = False
    """Take two seeds, which show directions and confirm little."""
    workers: int = 2
    """Runs at a time, each in a process with one thread."""
    out: str = ""
    """Folder. By default the first of runs/claims, runs/claims-2, … that does not exist."""
    resume: bool = False
    """Continue in `--out`. Finished runs are kept; seeds can be added."""

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Work("getting ready"):
                from ..analyse import check_packages
                from ..comparison.work import carry_out
                from . import study

                if self.workers < 1:
                    raise ValueError(f"workers is {self.workers}; there must be at least 1")
                check_packages()
                seeds = QUICK if self.quick else self.seeds
                plan = study.plan(self.table, seeds, self.seed, self.out, self.resume)
            folder, trials = plan.comparison.folder, plan.comparison.trials
            say = partial(notes.print, markup=False, soft_wrap=True)
            say(f"{len(plan.claims)} claims, {len(trials)} runs, into {folder}")
            try:
                with mistakes():
                    plan.make_start()
                    carry_out(trials, self.workers, say, make=partial(study.make, plan.claims))
            except KeyboardInterrupt:
                study.write(plan)
                console.print(f"interrupted; continue with the same command and --out {folder} --resume")
                raise
            with mistakes(), Work("judging"):
                table = study.write(plan)
        show_tables([table], folder, study.FILES)
        return 0
