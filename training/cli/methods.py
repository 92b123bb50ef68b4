"""The command `turngym methods`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from ...agents.cli.terminal import console, mistakes
from ...tools.plugins import list_plugins
from ..methods import GROUP, METHODS, describe, evidence, title


@dataclass(frozen=True)
class Methods:
    """List the learning methods, or describe those that are named."""

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[METHOD …]")
    ] = ()
    """Methods to describe: equation, parameters with defaults and ranges, source, deviations from the paper."""

    def run(self) -> int:
        if not self.names:
            table = Table("method", "turns", "grade", "what it is", box=None)
            for name in METHODS:
                table.add_row(name, *evidence(name), title(name))
            for plugin in list_plugins(GROUP, taken=METHODS):
                table.add_row(
                    plugin.name, "", "", escape(f"{plugin.about} (package {plugin.package})")
                )
            console.print(table)
            more = "parameters and equations: turngym methods METHOD"
            console.print(f"{more}; grades: A code read, B paper read, C plausible")
        with mistakes():
            cards = [describe(name) for name in self.names]
        for text in cards:
            console.print(escape(text), soft_wrap=True)
        return 0
