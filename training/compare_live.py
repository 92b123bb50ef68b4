"""What a person sees while a comparison goes on: the run and its step, how far all of it is, a line an outcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from .compare import Comparison, Trial
from .course import read_course
from .live import EVERY, line

Say = Callable[..., None]  # print a line as it is, unbroken


def watch(comparison: Comparison, console: Console, report: Callable[[], object]) -> None:
    """Make each trial that is not finished, show its steps, and call `report` after each.

    A run that comes to nothing is named, and the others go on.

    Raises:
        ValueError, OSError: a run cannot begin or go on.
    """
    from .loop import Refusals

    trials = comparison.trials
    say = partial(console.print, markup=False, soft_wrap=True)
    rest = TextColumn("{task.fields[at]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn("{task.description}"), BarColumn(16), TimeElapsedColumn(), TimeRemainingColumn(), rest)
    with Progress(*columns, console=console, expand=True, disable=not console.is_terminal) as progress:
        whole = progress.add_task("all", total=sum(trial.config.steps for trial in trials), at="")
        done = 0
        for number, trial in enumerate(trials, 1):
            progress.update(whole, completed=done, at=f"run {number} of {len(trials)}")
            done += trial.config.steps
            if trial.finished:
                say(f"{number}/{len(trials)}  {_outcome(trial)}, kept", style="dim")
                continue
            try:
                _follow(trial, progress, say, partial(progress.advance, whole))
            except (Refusals, FloatingPointError) as error:
                say(f"{_name(trial)} came to nothing: {error}", style="red")
            else:
                say(f"{number}/{len(trials)}  {_outcome(trial)}")
            report()
        progress.update(whole, completed=done)
    report()


def _follow(trial: Trial, progress: Progress, say: Say, on_step: Callable[[], None]) -> None:
    """Show each record of a run as it comes."""
    name, steps = _name(trial), trial.config.steps
    bar = progress.add_task(escape(name), total=steps, at="loading the policy, first validation")
    try:
        for record in trial.records():
            at = "first rollout"
            if record.metrics:
                on_step()
                at = f"step {record.step}/{steps}  {line(record.metrics)}"
                if progress.disable and record.step % EVERY == 0:
                    say(f"{name}  {at}")
                if record.metrics["refused"]:
                    say(f"{name}  step {record.step} was refused: {record.metrics['refused']}", style="red")
                for alarm in record.begun:
                    say(f"{name}  step {record.step}: {alarm}", style="yellow")
            progress.update(bar, completed=record.step, at=escape(at), refresh=True)
            if record.valid is not None and record.step < steps:
                say(f"{name}  step {record.step}: held-out success {record.valid.success}", style="dim")
    finally:
        progress.remove_task(bar)


def _name(trial: Trial) -> str:
    return f"{trial.method}, seed {trial.config.seed}"


def _outcome(trial: Trial) -> str:
    """Return a finished run in a line."""
    course = read_course(trial.folder)
    before, after = (100 * course.validations[at].success for at in (0, -1))
    spent = course.spent
    return (
        f"{_name(trial)}: held-out success {before:.1f} % → {after:.1f} % in {spent.steps} steps, "
        f"{spent.tokens:,} tokens, {spent.tool_calls:,} tool calls, {spent.seconds / 60:.1f} min"
    )
