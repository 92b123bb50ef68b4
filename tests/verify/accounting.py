"""`turngym verify accounting --run FOLDER`: every step of a run adds up, from its logs alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turngym.tests.verify.rows import Row


@dataclass(frozen=True)
class Accounting:
    """Paths, tokens and failures of a run, counted again from its journals."""

    run: Path
    """Run folder."""
    seed: int = 0
    """Chooses nothing: all of the run is counted."""

    def rows(self) -> Iterator[Row]:
        """Yield a row for each thing that must add up in every step."""
        from turngym.training.metrics.accounting import checks

        for what, held, steps, note in checks(self.run):
            yield Row(f"steps with {what}", held, steps, note)
