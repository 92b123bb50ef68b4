"""The display of a run, or of a comparison, as it goes: a live line in a terminal, elsewhere one every few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from ..agents.scores import Interval

if TYPE_CHECKING:
    from .comparison.plan import Comparison, Trial

EVERY = 5  # steps between lines where there is no terminal
Say = Callable[..., None]  # print a line as it is, unbroken
SHOWN = {"calls": "tool_calls_path", "silent": "silent_groups"}  # a path, and of the groups


def watch(records: Iterable[Any], steps: int, console: Console) -> None:
    """Show each record of a run as it comes."""
    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("loading the policy, first validation", total=steps)
        for record in records:
            if record.metrics:
                progress.update(bar, completed=record.step, description=line(record.metrics))
                if not console.is_terminal and record.step % EVERY == 0:
                    console.print(f"step {record.step}/{steps}  {line(record.metrics)}", soft_wrap=True)
                if record.metrics["refused"]:
                    console.print(f"step {record.step} was refused: {record.metrics['refused']}", style="red")
                for alarm in record.begun:
                    console.print(f"step {record.step}: {alarm}", style="yellow", markup=False, soft_wrap=True)
            if record.valid is not None:
                console.print(f"step {record.step}: held-out success {record.valid.success}")
                if not record.metrics:
                    progress.update(bar, description="first rollout")


def line(metrics: dict[str, Any]) -> str:
    """Return one step in a line: reward, success, entropy by turn (nats), what is known of `SHOWN`, speed."""
    turns = [value for name, value in metrics.items() if name.startswith("entropy_turn/")]
    by_turn = " ".join(f"{value:.2f}" for value in turns)
    shown = "".join(f"  {name} {metrics[key]:.2f}" for name, key in SHOWN.items() if isfinite(metrics.get(key, nan)))
    speed = f"  {metrics['tokens'] / metrics['seconds']:.0f} tokens/s" if metrics["seconds"] else ""
    return f"reward {metrics['reward']:.2f}  success {metrics['success']:.2f}  entropy [{by_turn}]{shown}{speed}"


def before_after(summary: Mapping[str, Any]) -> Table:
    """Return the table that ends a run, of what `summary.json` holds."""
    table = Table("", "step", "held-out success (95 %)", "by a tool's result", "turns", box=None)
    for name, step in (("before", 0), ("after", summary["steps"])):
        found = summary[name]
        success = Interval(found["success"], found["low"], found["high"])
        table.add_row(name, str(step), str(success), f"{100 * found['tool_share']:.0f} %", f"{found['turns']:.2f}")
    return table


def watch_comparison(comparison: Comparison, console: Console, report: Callable[[], object]) -> None:
    """Make each trial that is not finished, show its steps, and call `report` after each.

    A run that fails is named, and the others continue.

    Raises:
        ValueError, OSError: a run cannot begin or continue.
    """
    from .loop import Refusals

    trials = comparison.trials
    say = partial(console.print, markup=False, soft_wrap=True)
    rest = TextColumn("{task.fields[at]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn("{task.description}"), BarColumn(16), TimeElapsedColumn(), TimeRemainingColumn(), rest)
    with Progress(*columns, console=console, expand=True, disable=not console.is_terminal) as progress:
        whole = progress.add_task("all", total=sum(trial.config.schedule.steps for trial in trials), at="")
        done = 0
        for number, trial in enumerate(trials, 1):
            progress.update(whole, completed=done, at=f"run {number} of {len(trials)}")
            done += trial.config.schedule.steps
            if trial.finished:
                say(f"{number}/{len(trials)}  {_outcome(trial)}, kept", style="dim")
                continue
            try:
                _follow(trial, progress, say, partial(progress.advance, whole))
            except (Refusals, FloatingPointError) as error:
                say(f"{_name(trial)} failed: {error}", style="red")
            else:
                say(f"{number}/{len(trials)}  {_outcome(trial)}")
            report()
        progress.update(whole, completed=done)
    report()


def _follow(trial: Trial, progress: Progress, say: Say, on_step: Callable[[], None]) -> None:
    """Show each record of a run as it comes."""
    name, steps = _name(trial), trial.config.schedule.steps
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
    from .comparison.results import read_history

    history = read_history(trial.folder)
    before, after = (100 * history.validations[at].success for at in (0, -1))
    spent = history.spent
    return (
        f"{_name(trial)}: held-out success {before:.1f} % → {after:.1f} % in {spent.steps} steps, "
        f"{spent.tokens:,} tokens, {spent.tool_calls:,} tool calls, {spent.seconds / 60:.1f} min"
    )
