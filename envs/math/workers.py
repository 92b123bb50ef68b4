"""The processes in which text is read by code that can hang or crash: math-verify, and the scorers of reasoning-gym."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...tools.pool import Pool, StartFailure
from ..core import EnvFailure


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


class Workers(Pool):
    """A pool whose script is a file of this folder.

    Args:
        script: The name of the file.
        needs: The package without which it cannot start.
        limits: What `Pool` takes.
    """

    def __init__(self, script: str, needs: str, **limits: int) -> None:
        super().__init__(Path(__file__).with_name(script), **limits)
        self.needs = needs

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Return a reply as `Pool.ask` does; raise GraderFailure where no worker can start."""
        try:
            return super().ask(request, deadline)
        except StartFailure as error:
            raise GraderFailure(
                f"the grader's process cannot start: {error}; check that {self.needs} imports"
            ) from error
