"""A child process that all threads of this one share: what reads the agent's text with code that can hang or crash."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from ...tools import process
from ..core import EnvFailure

START_SECONDS = 60.0


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


class Helper:
    """A child that runs a script; it starts when first asked, and anew when it has died or after a fork.

    Args:
        script: It gets the path of the module with `serve` and answers `{}` when it is ready.
        needs: The package without which it cannot start.
    """

    def __init__(self, script: Path, needs: str) -> None:
        self.script, self.needs = script, needs
        self.child: process.Child | None = None
        self._lock = threading.Lock()
        _helpers.add(self)

    def ask(self, request: dict[str, Any], deadline: float) -> Any:
        """Return the reply to `request`, which may take `deadline` seconds.

        Raises:
            GraderFailure: The child cannot start.
            process.Deadline, process.Died: There is no reply; the next request has a new child.
        """
        with self._lock:
            return self.running().request(request, deadline)

    def running(self) -> process.Child:
        """Return the child, started if need be."""
        if self.child is None or not self.child.alive:
            try:
                self.child = process.Child([sys.executable, "-I", str(self.script), process.__file__])
                self.child.request({}, START_SECONDS)
            except (OSError, process.Died, process.Deadline) as error:
                raise GraderFailure(
                    f"the grader's process cannot start: {error}; check that {self.needs} imports"
                ) from error
        return self.child

    def forget(self) -> None:
        """Let go of a child that belongs to the process this one was forked from."""
        self.child, self._lock = None, threading.Lock()


_helpers: weakref.WeakSet[Helper] = weakref.WeakSet()


def _forget() -> None:
    for helper in list(_helpers):
        helper.forget()


os.register_at_fork(after_in_child=_forget)
