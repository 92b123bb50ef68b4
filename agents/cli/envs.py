"""The command `turngym envs`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.markup import escape
from rich.table import Column, Table

from ...envs.registry import ENVS, GROUP
from ...tools.plugins import list_plugins
from .terminal import console


@dataclass(frozen=True)
class Envs:
    """List the environments, also those that other packages declare."""

    def run(self) -> int:
        table = Table(
            Column("id", no_wrap=True), "what it is", Column("from", overflow="fold"), box=None
        )
        for entry in ENVS:
            table.add_row(entry.id, entry.summary, entry.package)
        for plugin in list_plugins(GROUP, taken=[entry.id for entry in ENVS]):
            table.add_row(escape(plugin.name), escape(plugin.about), plugin.package)
        console.print(table)
        return 0
