import os
import signal
import subprocess

import pytest

from turngym.tools import Status
from turngym.tools.python.interpreter import MEMORY_SIGNAL
from turngym.tools.python.run import Run, run_of


def _exit(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("wait_status", "status", "over"),
    [
        (_exit(0), Status.OK, None),
        (_exit(1), Status.ERROR, None),
        (_exit(2), Status.ERROR, "exit code 2"),
        (_exit(255), Status.ERROR, "exit code 255"),
        (signal.SIGKILL, Status.KILLED, "the process died (SIGKILL)"),
        (signal.SIGSEGV | 0x80, Status.KILLED, "the process died (SIGSEGV)"),
        (40, Status.KILLED, "the process died (signal 40)"),
        (MEMORY_SIGNAL, Status.MEMORY, None),
    ],
)
def test_a_wait_status_tells_how_a_program_ended(wait_status: int, status: Status, over: str | None):
    assert run_of(wait_status, b"text") == Run(status, b"text", over)


def test_every_wait_status_that_a_process_can_have_is_known():
    for code in range(256):
        assert run_of(_exit(code), b"").status in (Status.OK, Status.ERROR)
    for number in range(1, signal.SIGRTMAX + 1):
        assert run_of(int(number), b"").status in (Status.KILLED, Status.MEMORY)


def test_it_agrees_with_a_real_process():
    process = subprocess.Popen(["sh", "-c", "kill -15 $$"])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0
    assert run_of(status, b"").over == "the process died (SIGTERM)"
