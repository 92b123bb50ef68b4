"""`turngym verify accounting --run FOLDER`: every step of a run adds up, from its logs alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import Row, first


@dataclass(frozen=True)
class Accounting:
    """Paths, tokens and failures of a run, counted again from its journals."""

    run: Path
    """Run folder."""
    seed: int = 0
    """Chooses nothing: all of the run is counted."""

    def rows(self) -> Iterator[Row]:
        """Yield a row for each thing that must add up in every step."""
        from ..accounting import CHECKS, audit

        if not (self.run / "config.toml").is_file():
            raise FileNotFoundError(f"{self.run} has no config.toml; give a run folder with --run")
        found = audit(self.run)
        for check, what in CHECKS.items():
            names = [str(problem) for problem in found.problems if problem.check == check]
            counted = [f"{count} {name}" for name, count in sorted(found.totals.items()) if name.startswith(check)]
            yield Row(f"steps with {what}", *found.held(check), first(names or counted, 9))
