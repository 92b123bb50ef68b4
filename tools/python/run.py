"""How a program ended."""

import os
import signal
from dataclasses import dataclass

from ..core import Status
from .interpreter import MEMORY_SIGNAL


@dataclass(frozen=True)
class Run:
    """How one program ended: its status, the bytes it wrote, and why the session is over (None when it lives on)."""

    status: Status
    output: bytes
    over: str | None = None


def run_of(exit_status: int, output: bytes) -> Run:
    """The run of a process with this wait status."""
    code = os.waitstatus_to_exitcode(exit_status)
    if code in (0, 1):
        return Run(Status.ERROR if code else Status.OK, output)
    if code > 1:
        return Run(Status.ERROR, output, f"exit code {code}")
    if -code == MEMORY_SIGNAL:
        return Run(Status.MEMORY, output)
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return Run(Status.KILLED, output, f"the process died ({name})")
