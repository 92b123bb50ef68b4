"""The command `turngym audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape

from ...agents.cli.terminal import Shown, console, mistakes


@dataclass(frozen=True)
class Audit(Shown):
    """Check from the files of a run that no path and no token is missing or counted twice."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder."""

    def run(self) -> int:
        with self.shown(), mistakes():
            from ..metrics.accounting import checks

            done = list(checks(self.folder))
        for what, held, steps, note in done:
            mark = "[green]holds[/green]" if held == steps > 0 else "[bold red]FAILS[/bold red]"
            console.print(f"{mark}  {held}/{steps}  steps with {escape(what)}")
            if note:
                console.print(f"       [dim]{escape(note)}[/dim]")
        return (
            0 if all(held == steps > 0 for _, held, steps, _ in done) else 1
        )  # one without a step does not pass
