import os
import subprocess
import sys

from turngym.tests.verify.grader.processes import family, lives, read

CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=0, stdout=subprocess.PIPE)
child.stdout.readline()  # it runs
print(child.pid, flush=True)
child.wait()
"""


def test_a_family_has_children_of_children():
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        grandchild = int(child.stdout.readline())
        found = {one.pid: one for one in family(os.getpid())}
        assert {child.pid, grandchild} <= set(found)
        assert {one.pid for one in family(child.pid)} == {grandchild}
        assert lives(found[grandchild]) and "input()" in found[grandchild].command
        child.communicate("\n")
    assert not lives(found[grandchild]) and read(child.pid) is None


def test_an_unreaped_child_is_a_zombie_that_does_not_live():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    parent, process = read(child.pid)
    assert parent == os.getpid() and process.zombie and not lives(process)
    child.wait()
