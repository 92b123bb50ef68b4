"""The command `turngym compare`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from ...agents.cli.terminal import Shown, console, mistakes
from ...tools.checks import did_you_mean
from ...tools.progress import Progress
from ..methods import controls_entropy
from ..runs.config import listed_recipes, recipe_names
from .train import RECIPE, show_tables, watch, write_report

if TYPE_CHECKING:
    from ..comparison.plan import Comparison, Trial


WORLD = "late-bloomer"  # where methods that control entropy are compared by default


@dataclass(frozen=True)
class _Runs(Shown):
    """What these commands share."""

    workers: int = 2
    """Runs at a time, each in a process with one thread."""
    out: str = ""
    """Folder. By default the first of runs/COMMAND, runs/COMMAND-2, … that does not exist."""
    resume: bool = False
    """Continue in `--out`. Finished runs are kept; more methods, worlds and seeds can be added."""

    def check(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers is {self.workers}; there must be at least 1")


@dataclass(frozen=True)
class Compare(_Runs):
    """Compare methods on the same tasks, with the same seeds and budget, in one table and one picture."""

    methods: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD …]")
    ] = ()
    """Recipes of methods: names, or TOML files that set `method` and other settings of the method. One of your own is
    `grpo,my_module:factory`."""
    on: str = ""
    """Recipe or TOML file with the settings that all methods share: environment, policy, steps, …; a world of
    `turngym diagnose`; or the id of an environment, as with `--env`. By default `late-bloomer`, a world where the
    control of entropy decides, for methods that control entropy, and the recipe `math-python` for others and for an
    environment or a policy that is named."""
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
    """Options of the environment as `name=value`; they add to those of `--on`, and change the ones that they name."""
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
    prompts: int | None = None
    """Tasks of a step, instead of those of `--on`; at most as many as there are tasks to train on."""

    def run(self) -> int:
        with self.shown() as notes:
            with mistakes(), Progress("getting ready"):
                from ...agents.journal.trees import make_writable_folder
                from ..comparison import diagnosis, outcomes
                from ..comparison.measure import Final
                from ..comparison.plan import REPORTS
                from ..comparison.plan import plan as make_plan
                from ..comparison.tune import check_tuning, tuned

                self.check()
                seeds, sd = outcomes.planned(
                    self.seeds, self.effect, self.sd, self.earlier, len(self.methods)
                )
                final, on = Final(episodes=self.final), self.base
                in_world = on in diagnosis.CASES
                check_base(on, diagnosis.CASES)
                make = diagnosis.plan_in_world if in_world else make_plan
                plan = make(
                    self.methods,
                    on,
                    seeds,
                    self.changes,
                    self.out,
                    self.resume,
                    final,
                    self.against,
                )
                if self.tune and in_world:
                    raise ValueError(
                        f"--tune is given, but {on} is a world; tune on a recipe, as in --on math-python"
                    )
                tuning = check_tuning(self.tune, plan) if self.tune else None
                if tuning is None:
                    plan.check()  # judged runs of a tuned comparison are checked once it is tuned
                make_writable_folder(plan.folder)
            what = (
                f"{', '.join(plan.methods)} on {plan.base}, seeds {', '.join(map(str, plan.seeds))}"
            )
            notes.print(
                f"comparing {what}, into {plan.folder}",
                *plan.lines,
                sep="\n",
                markup=False,
                soft_wrap=True,
            )
            say = partial(notes.print, markup=False, soft_wrap=True)
            say(outcomes.foresight(len(plan.seeds), self.effect or 0.0, sd, len(plan.methods)))
            how = f": {self._resume_command(plan)}"
            with (
                _resumable(how, lambda: write_report(plan.folder)),
                mistakes((ValueError, OSError)),
            ):
                if in_world:
                    diagnosis.make_starts(diagnosis.starts_of(plan), self.workers, say)
                if tuning:
                    watch_comparison(tuning.comparison, notes, lambda: None, self.workers)
                    plan = tuned(plan, tuning, say)
                plan.write()
                watch_comparison(plan, notes, lambda: outcomes.write_report(plan), self.workers)
            show_tables(outcomes.write_report(plan), plan.folder, REPORTS)
            write_report(plan.folder)
            return 0

    @property
    def base(self) -> str:
        """Return the recipe or the world that the methods are compared on."""
        if self._on_environment():
            return RECIPE
        if self.on:
            return self.on
        from ..comparison.plan import methods_of

        elsewhere = (
            self.env is not None
            or self.policy is not None
            or self.option is not None
            or self.tune is not None
        )
        if elsewhere or not any(controls_entropy(method) for method in methods_of(self.methods)):
            return RECIPE
        return WORLD

    def _on_environment(self) -> bool:
        """Return whether `--on` is the id of an environment: `turngym/Math-v0`, `other/World-v0`, `module:Class`."""
        return not self.on.endswith(".toml") and any(sign in self.on for sign in "/:")

    @property
    def changes(self) -> dict[str, Any]:
        """Return what the command changes of the recipe or the world. Raises ValueError for two environments."""
        names = (
            "env",
            "server",
            "server_option",
            "option",
            "policy",
            "steps",
            "token_budget",
            "eval_every",
            "prompts",
        )
        values = {name: getattr(self, name) for name in names}
        changes = {name: value for name, value in values.items() if value is not None}
        if not self._on_environment():
            return changes
        if self.env is not None:
            raise ValueError(
                f"--on {self.on} and --env {self.env} both name an environment; give one of them"
            )
        return {"env": self.on, **changes}

    def _resume_command(self, plan: Comparison) -> str:
        plain = {name: getattr(self, name) for name in ("final", "against", "tune", "workers")}
        other = {name: value for name, value in plain.items() if value != getattr(Compare, name)}
        options = {
            "on": plan.base,
            "seeds": len(plan.seeds),
            **other,
            **self.changes,
            "out": plan.folder,
        }
        line = ["turngym", "compare", *self.methods]
        for name, value in options.items():
            line += [
                f"--{name.replace('_', '-')}",
                *(value if isinstance(value, tuple) else (str(value),)),
            ]
        return shlex.join([*line, "--resume"])


def check_base(on: str, worlds: Collection[str]) -> None:
    """Raise FileNotFoundError if `on` is the name of neither a recipe nor a world, with the nearest of both."""
    known = [*recipe_names(), *worlds]
    if on in known or on.endswith(".toml") or "+" in on:
        return
    names = f"worlds are {', '.join(worlds)}; recipes are {listed_recipes()}, or the path of a .toml file"
    raise FileNotFoundError(f"there is no recipe {on!r}; {did_you_mean(on, known)}{names}")


@contextmanager
def _resumable(how: str, report: Callable[[], object]) -> Iterator[None]:
    """Where the runs that are made inside are interrupted, say how to go on, and `report`."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(f"interrupted; continue with{how}", soft_wrap=True)
        report()
        raise


def watch_comparison(
    comparison: Comparison, console: Console, report: Callable[[], object], workers: int = 1
) -> None:
    """Make each trial that is not finished, show its steps, and call `report` after each; one that fails is named."""
    from ..loop.trainer import Refusals

    trials = comparison.trials
    say = partial(console.print, markup=False, soft_wrap=True)
    if workers > 1:
        from ..comparison.plan import carry_out

        carry_out(trials, workers, say, report)
        report()
        return
    kept = {number for number, trial in enumerate(trials) if trial.finished}
    steps = sum(
        trial.config.schedule.steps for number, trial in enumerate(trials) if number not in kept
    )
    with Progress("all steps", steps) as whole:
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
    from ..comparison.results import read_history

    history = read_history(trial.folder)
    before, after = (100 * history.validations[at].success for at in (0, -1))
    spent = history.spent
    cost = f"{spent.tokens:,} tokens, {spent.tool_calls:,} tool calls, {spent.seconds / 60:.1f} min"
    return (
        f"{trial}: held-out success {before:.1f} % → {after:.1f} % in {spent.steps} steps, {cost}"
    )
