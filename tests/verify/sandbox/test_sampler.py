"""What a call did while it ran is seen by the sampler."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from turngym.tests.verify.sandbox import proc
from turngym.tests.verify.sandbox.sampler import Sampler
from turngym.tests.verify.sandbox.surroundings import free_port

MIB = 2**20
PATIENT = "import sys; {}; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def looked(monkeypatch):
    """A sampler whose next two whole looks can be waited for: of two in a row it takes the less."""
    looks, look = threading.Semaphore(0), Sampler._look
    monkeypatch.setattr(Sampler, "_look", lambda self: (look(self), looks.release()))

    def wait():
        while looks.acquire(blocking=False):
            pass
        for _ in range(3):  # the first may have begun before
            looks.acquire()

    return wait


def run(work, wait):
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT.format(work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        wait()


def test_memory_of_a_call_is_seen(looked):
    with Sampler(free_port()) as sampler:
        run(f"x = bytearray(b'x') * {64 * MIB}", looked)
    assert (
        64 * MIB < sampler.peaks.memory < 96 * MIB
        and sampler.peaks.processes == 1
        and sampler.peaks.looks > 1
    )


def test_processes_and_threads_are_counted(looked):
    work = "import subprocess, threading; children = [subprocess.Popen(['sleep', '60']) for _ in range(3)]; "
    work += "[threading.Thread(target=sys.stdin.read, daemon=True).start() for _ in range(4)]"
    with proc.adopting(), Sampler(free_port()) as sampler:
        run(work, looked)
        for pid in proc.descendants():
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    assert sampler.peaks.processes == 4 and sampler.peaks.threads == 8


def test_a_listener_is_seen(looked):
    port = free_port()
    with Sampler(port) as sampler:
        looked()
    assert not sampler.peaks.listening
    with Sampler(port) as sampler, socket.create_server(("127.0.0.1", port)):
        looked()
    assert sampler.peaks.listening


def test_memory_of_this_process_is_measured_to_its_peak():
    with Sampler(free_port()) as sampler:
        block = bytearray(b"x" * (64 * MIB))
        del block
    assert sampler.peaks.supervisor > 60 * MIB
