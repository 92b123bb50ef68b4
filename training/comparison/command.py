"""The command `turngym compare`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from ...agents.terminal import Shown, console, mistakes
from ...tools.progress import Work
from ..commands import show_tables, watch
from ..report.command import write_report

if TYPE_CHECKING:
    from .plan import Comparison, Trial


@dataclass(frozen=True)
class Compare(Shown):
    """Compare methods on the same tasks, with the same seeds and budget, in one table and one picture."""

    methods: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD …]")] = ()
    """Recipes of methods: names, or TOML files that set `method` and other settings of the method. One of your own is
    `grpo,my_module:factory`."""
    on: str = "math-python"
    """Recipe or TOML file with the settings that all methods share: environment, policy, steps, …"""
    seeds: int | None = None
    """Number of seeds, and so of runs of each method: 3, or what `--effect` takes. The first is that of `--on`."""
    effect: float | None = None
    """Difference of success (points) that is to be seen with a power of 80 %; it plans the seeds."""
    sd: float | None = None
    """Standard deviation over seeds (points) of the difference between two methods, for `--effect`."""
    earlier: str | None = None
    """Folder of an earlier comparison, whose largest standard deviation stands in for `--sd`."""
    final: int = 1024
    """Episodes of the final validation, 8 or more of a task at temperature 1, once each greedily. 0 leaves it out."""
    against: str = ""
    """Method that the others are compared with: `grpo`, or else the first one, when left out."""
    tune: str | None = None
    """TOML file with settings of each method, as many for each, and seeds to choose among them before the others."""
    workers: int = 1
    """Runs at a time. Several are made in processes of one thread each."""
    option: tuple[str, ...] | None = None
    """Options of the environment as `name=value`; they replace those of `--on`."""
    env: str | None = None
    """Environment id instead of that of `--on`."""
    server: tuple[str, ...] | None = None
    """URLs of vLLM servers instead of those of `--on`."""
    server_option: tuple[str, ...] | None = None
    """Options of the vLLM server that turngym starts, instead of those of `--on`."""
    policy: str | None = None
    """Policy instead of that of `--on`: `tiny`, a model folder, or the name of a model on the Hugging Face hub."""
    steps: int | None = None
    """Largest number of steps of a run, instead of that of `--on`."""
    token_budget: int | None = None
    """A run ends after the step in which training has drawn this many tokens. 0 means no limit."""
    eval_every: int | None = None
    """Steps between validations. A smaller number shows more exactly when a success was reached."""
    out: str = ""
    """Folder of the comparison. By default the first of runs/compare, runs/compare-2, … that does not exist."""
    resume: bool = False
    """Continue the comparison in `--out`. Finished runs are kept; more methods and seeds can be added."""

    def run(self) -> int:
        with self.shown() as notes:
            return self._compare(notes)

    def _compare(self, notes: Console) -> int:
        with mistakes(), Work("getting ready"):
            from ...agents.journal import writable
            from . import report
            from .measure import Final
            from .outcomes import foresight, planned
            from .plan import plan as make_plan
            from .tune import check_tuning, tuned

            if self.workers < 1:
                raise ValueError(f"workers is {self.workers}; there must be at least 1")
            seeds, sd = planned(self.seeds, self.effect, self.sd, self.earlier, len(self.methods))
            final = Final(episodes=self.final)
            plan = make_plan(self.methods, self.on, seeds, self._changes(), self.out, self.resume, final, self.against)
            tuning = check_tuning(self.tune, plan) if self.tune else None
            if tuning is None:
                plan.check()  # judged runs of a tuned comparison are checked once it is tuned
            writable(plan.folder)
        what = f"{', '.join(plan.methods)} on {plan.base}, seeds {', '.join(map(str, plan.seeds))}"
        notes.print(f"comparing {what}, into {plan.folder}", *plan.lines, sep="\n", markup=False, soft_wrap=True)
        say = partial(notes.print, markup=False, soft_wrap=True)
        say(foresight(len(plan.seeds), self.effect or 0.0, sd, len(plan.methods)))
        try:
            with mistakes((ValueError, OSError)):
                if tuning:
                    watch_comparison(tuning.comparison, notes, lambda: None, self.workers)
                    plan = tuned(plan, tuning, say)
                plan.write()
                watch_comparison(plan, notes, lambda: report.write_report(plan), self.workers)
        except KeyboardInterrupt:
            console.print(f"interrupted; continue with: {self._resume_command(plan)}", soft_wrap=True)
            write_report(plan.folder)
            raise
        show_tables(report.write_report(plan), plan.folder, report.NAMES)
        write_report(plan.folder)
        return 0

    def _changes(self) -> dict[str, Any]:
        names = ("env", "server", "server_option", "option", "policy", "steps", "token_budget", "eval_every")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _resume_command(self, plan: Comparison) -> str:
        plain = {name: getattr(self, name) for name in ("final", "against", "tune", "workers")}
        other = {name: value for name, value in plain.items() if value != getattr(Compare, name)}
        options = {"on": self.on, "seeds": len(plan.seeds), **other, **self._changes(), "out": plan.folder}
        named = [
            text
            for key, value in options.items()
            for text in (f"--{key.replace('_', '-')}", *(value if isinstance(value, tuple) else (str(value),)))
        ]
        return shlex.join(["turngym", "compare", *self.methods, *named, "--resume"])


def watch_comparison(comparison: Comparison, console: Console, report: Callable[[], object], workers: int = 1) -> None:
    """Make each trial that is not finished, show its steps, and call `report` after each; one that fails is named."""
    from ..loop import Refusals

    trials = comparison.trials
    say = partial(console.print, markup=False, soft_wrap=True)
    if workers > 1:
        from .work import carry_out

        carry_out(trials, workers, say, report)
        report()
        return
    kept = {number for number, trial in enumerate(trials) if trial.finished}
    steps = sum(trial.config.schedule.steps for number, trial in enumerate(trials) if number not in kept)
    with Work("all steps", steps) as whole:
        whole.reach(0)
        for number, trial in enumerate(trials):
            place = f"{number + 1}/{len(trials)}"
            if number in kept:
                say(f"{place}  {_outcome(trial)}, kept", style="dim")
                continue
            whole.text, before = f"run {place}", whole.done
            try:
                watch(trial.records(), trial.config.schedule.steps, console, str(trial), whole)
            except (Refusals, FloatingPointError) as error:
                say(f"{trial} failed: {error}", style="red")
            else:
                say(f"{place}  {_outcome(trial)}")
            whole.reach(before + trial.config.schedule.steps)
            report()
    report()


def _outcome(trial: Trial) -> str:
    from .results import read_history

    history = read_history(trial.folder)
    before, after = (100 * history.validations[at].success for at in (0, -1))
    spent = history.spent
    return (
        f"{trial}: held-out success {before:.1f} % → {after:.1f} % in {spent.steps} steps, "
        f"{spent.tokens:,} tokens, {spent.tool_calls:,} tool calls, {spent.seconds / 60:.1f} min"
    )
