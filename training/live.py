"""What a person sees while a run goes on: a live line in a terminal, a plain line every few steps elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite, nan
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..agents.scores import Interval

EVERY = 5  # steps between lines where there is no terminal
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
