"""The command `turngym demo`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...agents.cli.terminal import console, mistakes
from ...tools.progress import Progress
from .compare import _resumable, _Runs
from .train import show_tables, write_report


@dataclass(frozen=True)
class Demo(_Runs):
    """Watch in two minutes what the control of entropy decides: GRPO beside a floor under entropy, live, then a page.

    Both learn the world `late-bloomer`, in which a tool pays only once it is mastered.
    """

    seed: int = 0
    """Seed of the one run of each method."""

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Progress("getting ready"):
                from ...agents.journal.trees import make_writable_folder
                from ..comparison import demo, diagnosis, outcomes
                from ..comparison.plan import REPORTS, carry_out

                self.check()
                plan = demo.plan(self.seed, self.out, self.resume)
                plan.check()
                make_writable_folder(plan.folder)
            say = partial(notes.print, markup=False, soft_wrap=True)
            say(
                "An agent may guess, which is right in a third of the tasks, or ask, which always succeeds once it can "
                f"copy three words. It starts with little of that skill. {' and '.join(plan.methods)} learn from the "
                f"same start, into {plan.folder}."
            )
            how = f": turngym demo --seed {self.seed} --out {plan.folder} --resume"
            with (
                _resumable(how, lambda: write_report(plan.folder)),
                mistakes((ValueError, OSError)),
            ):
                diagnosis.make_starts(diagnosis.starts_of(plan), self.workers, say)
                plan.write()
                with demo.LiveRuns(plan.trials) as live:
                    carry_out(plan.trials, self.workers, say, watch=live.look)
                tables = outcomes.write_report(plan)
            names = [table for table in tables if table.title.startswith("Final validation")]
            show_tables(names, plan.folder, REPORTS)
            write_report(plan.folder)
            console.print(demo.conclusion(plan), markup=False, soft_wrap=True)
            more = "with eight seeds, and what the floor costs elsewhere: turngym diagnose grpo turn-floor --picture"
            say(
                f"{more}\nthe same for methods of your choice: turngym compare grpo turn-floor epo --seeds 8"
            )
            return 0
