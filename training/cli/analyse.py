"""The command `turngym analyse`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ...agents.cli.terminal import Shown, console, mistakes
from ...tools.progress import Progress
from ..metrics.entropy_analysis import analyse
from .train import show_tables

NAME = "analysis.json"


@dataclass(frozen=True)
class Analyse(Shown):
    """Measure what papers on entropy measure of a run: diversity, confidence, covariance, and two laws of entropy."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN …]")]
    """Folders of training runs or comparisons."""
    out: Path | None = None
    """JSON file of all numbers. By default `analysis.json`, in the folder if there is one, else in the working
    directory."""
    bleu: bool = True
    """Compute Self-BLEU, which takes most of the time."""

    def run(self) -> int:
        with mistakes():
            if not self.folders:
                raise ValueError("name a folder: turngym analyse RUN")
            out = self.out or (self.folders[0] if len(self.folders) == 1 else Path()) / NAME
            with self.shown(), Progress("analysing"):
                found = analyse(self.folders, out, self.bleu)
        from ..comparison.outcomes import Table

        header = ("quantity", "first fifth", "last fifth", "Spearman with entropy")
        show_tables(
            [Table(one.run, header, [*one.rows()], one.laws()) for one in found],
            out.parent,
            [out.name],
        )
        for one in found:
            for note in one.notes:
                console.print(f"{one.run}: {note}", style="yellow", markup=False, soft_wrap=True)
        return 0
