"""Counting processes and their memory, with processes that are known."""

import mmap
import os
import socket
import subprocess
import sys

import pytest

from turngym.tests.verify.sandbox import proc

MIB = 2**20
PATIENT = "import sys; {}; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def child():
    children = []

    def start(work):
        process = subprocess.Popen(
            [sys.executable, "-c", PATIENT.format(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in children:
        process.communicate("")


def only(pid):
    return {number: process for number, process in proc.descendants().items() if number == pid}


def test_descendants_of_descendants_are_found(child):
    process = child(
        "import subprocess; subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)"
    )
    found = proc.descendants(process.pid)
    assert [one.parent for one in found.values()] == [process.pid]
    assert proc.glimpse().keys() == {process.pid, *found}
    for pid in found:
        os.kill(pid, 9)


def test_memory_is_counted(child):
    small, large = child("x = 1"), child(f"x = bytearray(b'x') * {64 * MIB}")
    (more,), (less,) = (proc.memory(only(process.pid)).values() for process in (large, small))
    difference = more - less
    assert 60 * MIB < difference < 70 * MIB


def test_one_address_space_is_told_from_two(child):
    process = child("x = 1")
    assert proc.same_memory(os.getpid(), os.getpid()) and not proc.same_memory(
        process.pid, os.getpid()
    )


def test_unnamed_files_are_counted(child):
    process = child(f"import os; fd = os.memfd_create('x'); os.write(fd, b'x' * {8 * MIB})")
    assert proc.unnamed(only(process.pid)) == 8 * MIB


def test_zombies_are_told_from_the_living():
    process = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert proc.descendants()[process.pid].zombie
    proc.reap(only(process.pid))
    assert process.pid not in proc.descendants()
    process.communicate()


@pytest.mark.parametrize(
    ("now", "idle", "fits"),
    [
        ([2, 1], [2, 1], True),
        ([2], [2, 1], True),
        ([], [], True),
        ([3], [2, 1], False),
        ([1, 1, 1], [2, 1], False),
        ([2, 2], [2, 1], False),
    ],
)
def test_more_processes_or_namespaces_than_idle_do_not_fit(now, idle, fits):
    assert proc.within_shape(now, idle) is fits


def test_an_orphan_is_adopted_and_seen():
    code = "import subprocess as s; print(s.Popen(['sleep', '60'], stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    with proc.adopting():
        orphan = int(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        )
        assert proc.descendants()[orphan].parent == os.getpid()
        os.kill(orphan, 9)
        os.waitpid(orphan, 0)


def test_who_listens_is_seen():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert proc.listens(port)
    assert not proc.listens(port)


def test_the_peak_of_this_process_is_measured():
    proc.forget_peak()
    before = proc.resident()
    with mmap.mmap(
        -1, 48 * MIB
    ) as block:  # pages of its own, which no earlier allocation has left behind
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
    assert proc.peak() - before > 40 * MIB
    proc.forget_peak()
    assert proc.peak() - proc.resident() < 8 * MIB
