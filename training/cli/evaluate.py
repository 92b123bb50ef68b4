"""The command `turngym eval`."""

from __future__ import annotations

from dataclasses import dataclass

from ...agents.cli.evaluate import Eval
from .train import write_report


@dataclass(frozen=True)
class Evaluate(Eval):
    """Evaluate a policy: avg@k, unbiased pass@k, pass^k and maj@k with 95 % intervals."""

    def conclude(self) -> None:
        if self.out is not None:
            write_report(self.out)
