import os
import subprocess
import sys

import pytest

from turngym.tools.python import watch

# Three processes that share 64 MiB, of which the grandchild has written 16 MiB anew.
FAMILY = """
import os, sys
block = bytearray(64 * 2**20)
if not os.fork():
    if not os.fork():
        for i in range(0, 16 * 2**20, 4096): block[i] = 1
        print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
os.wait()
"""
MIB = 2**20


@pytest.fixture(scope="module")
def family():
    with subprocess.Popen([sys.executable, "-I", "-c", FAMILY], stdin=-1, stdout=-1) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


def test_the_tree_holds_all_generations(family: int, descendants):
    pids = watch.tree([family])
    assert pids[0] == family
    assert set(pids[1:]) == descendants(family)
    assert len(pids) == 3
    assert family in watch.tree([os.getpid()])


def test_children_of_other_threads_are_found(until):
    code = (
        "import subprocess, threading, sys\n"
        "threading.Thread(target=lambda: subprocess.run(['cat'])).start()\n"
        "print('ready', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        assert until(lambda: len(watch.tree([process.pid])) == 2)
        process.stdin.close()


def test_memory_that_processes_share_counts_once(family: int):
    pids = watch.tree([family])
    assert 80 * MIB < watch.memory(pids, 0) < 130 * MIB
    # Where the limit is far away, an estimate that is too high will do.
    assert 190 * MIB < watch.memory(pids, 2**40) < 260 * MIB


def test_what_has_ended_has_no_tree_and_no_memory():
    process = subprocess.Popen(["true"])
    process.wait()
    assert watch.tree([process.pid]) == []
    assert watch.memory([process.pid], 0) == 0


def test_a_zombie_holds_nothing(until):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert watch.memory([process.pid], -1) == 0
    process.wait()
