"""The command `turngym verify AREA`: count the promises of one area."""

from __future__ import annotations

import time
from dataclasses import dataclass

import tyro
from rich.markup import escape

from turngym.agents.cli.terminal import Shown, console, mistakes
from turngym.tests.verify.areas import AREAS
from turngym.tests.verify.rows import Row, run
from turngym.tools.progress import Progress


@dataclass(frozen=True)
class Verify(Shown):
    """Count what turngym promises, area by area; exit status 1 where a row falls short."""

    area: tyro.conf.OmitSubcommandPrefixes[tyro.conf.OmitArgPrefixes[AREAS]]

    def run(self) -> int:
        """Print each row when it is counted: cases that hold of all, what else was measured, seconds."""
        began, seed, counted = time.monotonic(), self.area.seed, []

        def show(row: Row, seconds: float) -> None:
            counted.append(row.good)
            work.reach(len(counted))
            work.text = f"{len(counted)} rows counted, the last {row.what}"
            mark = "[green]holds[/green]" if row.good else "[bold red]SHORT[/bold red]"
            need = f" (needs {100 * row.need:g} %)" if row.need < 1 else ""
            console.print(
                f"{mark}  {row.held}/{row.of}  {escape(row.what)}{need}  [dim]{seconds:.1f} s[/dim]"
            )
            if row.note:
                console.print(f"       [dim]{escape(row.note)}[/dim]")

        name = type(self.area).__name__.lower()
        with (
            self.shown(),
            mistakes((ValueError, OSError)),
            Progress(f"verify {name}", text="counting rows") as work,
        ):
            good = run(self.area, show)
        seconds = time.monotonic() - began
        console.print(
            f"verify {name}: {sum(counted)}/{len(counted)} rows hold, seed {seed}, {seconds:.1f} s"
        )
        return 0 if good else 1
