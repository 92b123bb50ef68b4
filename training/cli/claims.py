"""The command `turngym claims`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from ...agents.cli.terminal import mistakes
from ...tools.progress import Progress
from .compare import _resumable, _Runs
from .train import show_tables

QUICK = 2  # seeds


@dataclass(frozen=True)
class Claims(_Runs):
    """Test what papers say about entropy with a small policy: one table of claims, confirmed or not, over seeds."""

    table: Annotated[str, tyro.conf.Positional] = "tiny"
    """The claims and their runs: `tiny`, `smollm2`, or a TOML file of your own."""
    seeds: int = 5
    """Number of seeds, and so of runs of each arm."""
    seed: int = 100
    """The first seed; the others follow it."""
    quick: bool = False
    """Take two seeds, which show directions and confirm little."""
    method: tuple[str, ...] = ()
    """Methods of other packages, or of your own, that the table names: each as it stands there, such as
    `grpo,turn-decay`."""
    env: tuple[str, ...] = ()
    """Environments of other packages, or of your own, that the table names."""

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Progress("getting ready"):
                from ..comparison import claims
                from ..comparison.diagnosis import begin
                from ..comparison.plan import carry_out
                from ..metrics.entropy_analysis import check_packages

                self.check()
                check_packages()
                seeds = QUICK if self.quick else self.seeds
                allowed = [f"method={method}" for method in self.method] + [
                    f"env={env}" for env in self.env
                ]
                plan = claims.plan(self.table, seeds, self.seed, self.out, self.resume, allowed)
            folder, trials = plan.comparison.folder, plan.comparison.trials
            say = partial(notes.print, markup=False, soft_wrap=True)
            say(f"{len(plan.claims)} claims, {len(trials)} runs, into {folder}")
            with (
                _resumable(
                    f" the same command and --out {folder} --resume", lambda: claims.write(plan)
                ),
                mistakes(),
            ):
                if plan.start:
                    begin(*plan.start, folder / claims.START)
                carry_out(trials, self.workers, say, make=partial(claims.make, plan.claims))
            with mistakes(), Progress("judging"):
                table = claims.write(plan)
        show_tables([table], folder, claims.FILES)
        return 0
