"""The command `turngym doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.markup import escape
from rich.table import Column, Table

from ...tools.progress import Progress
from .terminal import Shown, console


@dataclass(frozen=True)
class Doctor(Shown):
    """Report what works on this machine.

    The exit status is 1 if something that turngym needs does not work: the default isolation level of tools, a call of
    the Python tool, math-verify in a worker process, or a folder to write to.
    """

    def run(self) -> int:
        from ..check.machine import EXTRA, findings

        table = Table("what", "", Column("", overflow="fold"), box=None, header_style="bold")
        with self.shown(), Progress("testing"):
            found = list(findings())
        for one in found:
            no = "[bold red]no[/bold red]" if one.needed else "no"
            mark = {True: "[green]yes[/green]", False: no, None: ""}[one.works]
            table.add_row(escape(one.what), mark, escape(one.about))
        console.print(table)
        lacking = sum(one.needed and one.works is False for one in found)
        extras = [
            one.what.removeprefix(EXTRA)
            for one in found
            if one.works is False and one.what.startswith(EXTRA)
        ]
        what = f"lacks {lacking} of what it needs" if lacking else "has all that it needs"
        without = (
            f", and does without the extras {', '.join(extras)}" if extras else ", and every extra"
        )
        console.print(f"turngym {what}{without}", markup=False, soft_wrap=True)
        return 1 if lacking else 0
