import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status, ToolResult
from turngym.tools.python import CannotFork
from turngym.tools.python.isolation.levels import MAX_PROCESSES
from turngym.tools.subprocesses import messages


def test_a_fork_shares_the_past_and_nothing_after(python: PythonTool, run, ok):
    ok(python, "import os, random\nrandom.seed(5)\nitems = [1]\nopen('note', 'w').write('old')")
    twin = python.fork()
    assert ok(python, "items.append(2); open('note', 'w').write('mine'); items") == "[1, 2]\n"
    assert ok(twin, "items, open('note').read()") == "([1], 'old')\n"
    ok(twin, "items.append(3); open('other', 'w').close()")
    assert ok(python, "items, os.path.exists('other')") == "([1, 2], False)\n"
    assert ok(python, "random.random()") == ok(twin, "random.random()")
    assert run(twin, "os._exit(1)").status is Status.KILLED
    assert ok(python, "items") == "[1, 2]\n"
    twin.close()


def test_a_fork_of_a_fork_outlives_its_origins(python: PythonTool, ok, settled):
    ok(python, "x = 1")
    child = python.fork()
    grandchild = child.fork()
    python.close()
    child.close()
    assert ok(grandchild, "x") == "1\n"
    great = grandchild.fork()
    assert ok(great, "x += 1; x") == "2\n"
    grandchild.close()
    assert ok(great, "x") == "2\n"
    great.close()
    assert settled()


def test_members_die_alone_and_end_together(python: PythonTool, run, ok, host_pid, gone, settled):
    ok(python, "import os")
    twin, third = python.fork(), python.fork()
    pids = [host_pid(tool) for tool in (python, twin, third)]
    assert len(set(pids)) == 3
    assert run(python, "os._exit(3)") == ToolResult(
        Status.KILLED, "[the process died; the session was restarted]"
    )
    assert gone(pids[0])
    twin.close()
    assert gone(pids[1])
    assert (
        ok(third, "import subprocess\nhelper = subprocess.Popen(['sleep', '1000'])\nhelper.poll()")
        == ""
    )
    assert ok(python, "'os' in globals()") == "False\n"
    third.close()
    assert gone(pids[2])
    python.close()
    assert settled()


def test_a_member_that_is_late_is_ended_alone(python: PythonTool, run, ok, host_pid, gone):
    ok(python, "x = 1")
    twin = python.fork()
    twin.timeout = 0.3
    pid = host_pid(twin)
    assert run(twin, "print('begun')\nwhile True: pass") == ToolResult(
        Status.TIMEOUT, "begun\n[timed out after 0.3 s; the session was restarted]"
    )
    assert gone(pid)
    assert ok(python, "x") == "1\n"
    other = python.fork()
    python.timeout = 0.3
    assert run(python, "while True: pass").status is Status.TIMEOUT
    assert ok(other, "x") == "1\n"
    other.close()


def test_a_member_that_floods_or_fails_leaves_the_others_alone(python: PythonTool, run, ok):
    ok(python, "x = 1")
    twins = [python.fork() for _ in range(3)]
    assert run(twins[0], "while True: print('x' * 10**5)").status is Status.OUTPUT
    assert run(twins[1], "bytes(2**40)").status is Status.MEMORY
    assert run(twins[2], "import os; os.kill(os.getpid(), 11)").status is Status.KILLED
    assert ok(twins[1], "x") == "1\n"
    assert ok(python, "x") == "1\n"
    for twin in twins:
        twin.close()


def test_the_memory_of_a_group_is_limited(run, ok, settled):
    tool = PythonTool(timeout=30.0, memory_mb=64)
    ok(tool, "import os\nx = 1")
    twin = tool.fork()
    ok(twin, "a = bytearray(b'x') * (40 * 2**20)")
    assert ok(tool, "a = bytearray(b'x') * (40 * 2**20); x") == "1\n"
    many = """
import time
a = None
for _ in range(8):
    if not os.fork():
        b = bytearray(b"x") * (30 * 2**20)
        time.sleep(1000)
time.sleep(1000)
"""
    result = run(twin, many)
    assert result == ToolResult(Status.MEMORY, "[out of memory; the session was restarted]")
    tool.close()
    twin.close()
    assert settled()


def test_a_group_is_of_one_boundary(python: PythonTool, ok, host_pid):
    ok(python, "import os")
    twin, stranger = python.fork(), PythonTool(timeout=30.0)
    ok(stranger, "1")
    names = ("pid", "user", "mnt", "net", "ipc", "uts")
    pids = [host_pid(tool) for tool in (python, twin, stranger)]
    own, of_twin, other = (
        [Path(f"/proc/{pid}/ns/{name}").stat().st_ino for name in names] for pid in pids
    )
    assert own == of_twin
    assert not set(own) & set(other)
    stranger.close()
    twin.close()


def test_forks_do_not_pile_up(python: PythonTool, ok, host_pid, settled):
    """A rollout that branches at every turn opens and closes many."""
    ok(python, "x = 0")
    current = python
    for _ in range(30):
        twin = current.fork()
        ok(twin, "x += 1")
        current.close()
        current = twin
    assert ok(current, "x") == "30\n"
    assert (
        ok(current, "import os; sum(name.startswith('home') for name in os.listdir('/tmp')) <= 2")
        == "True\n"
    )
    current.close()
    assert settled()


def test_many_members_may_leave_at_once(ok):
    tool = PythonTool(timeout=30.0, level="rlimits-only")
    ok(tool, "x = 1")
    twins = []
    with contextlib.suppress(CannotFork):  # an ordinary user may have fewer processes
        for _ in range(110):
            twins.append(tool.fork())
    for twin in twins:
        twin.close()
    last = tool.fork()
    assert ok(last, "x") == ok(tool, "x") == "1\n"
    last.close()
    tool.close()


def test_more_members_than_processes_are_refused(python: PythonTool, ok):
    ok(python, "x = 1")
    twins = []
    with pytest.raises(CannotFork):
        for _ in range(MAX_PROCESSES + 1):
            twins.append(python.fork())
    assert len(twins) >= MAX_PROCESSES - 6
    assert ok(python, "x") == ok(twins[-1], "x") == "1\n"
    for twin in twins:
        twin.close()
    twin = python.fork()
    assert ok(twin, "x") == "1\n"
    twin.close()


def test_a_twin_has_a_copy_of_all_files_and_stands_where_its_origin_stood(python: PythonTool, ok):
    ok(
        python,
        "import os\nos.makedirs('a/b'); os.symlink('b', 'a/link'); open('a/b/c', 'w').write('1')\nos.chdir('a')",
    )
    twin = python.fork()
    where = "os.path.relpath(os.getcwd(), os.environ['HOME']), os.environ['TMPDIR'] == os.environ['HOME']"
    assert ok(twin, where) == ok(python, where) == "('a', True)\n"
    assert ok(twin, "open('link/c').read(), os.readlink('link')") == "('1', 'b')\n"
    ok(python, "import shutil\nshutil.rmtree('b')")
    assert ok(twin, "open('b/c').read()") == "'1'\n"
    assert ok(python, "os.environ['HOME']") != ok(twin, "os.environ['HOME']")
    twin.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, name='poller', daemon=True).start()",
            r"it has live threads \(poller\)",
        ),
        ("import subprocess\np = subprocess.Popen(['sleep', '1000'])", "it has child processes"),
        ("import os\nif not os.fork(): os._exit(0)", "it has child processes"),
        ("f = open('note', 'w')", "it has open for writing: .*/note"),
        ("f = open('note', 'a+')", "it has open for writing: .*/note"),
        ("import socket\npair = socket.socketpair()", "it has open for writing: socket"),
        ("import os\nends = os.pipe()", "it has open for writing: pipe"),
        ("import os\nn = os.dup(1)", "it has open for writing: pipe"),
    ],
)
def test_what_a_fork_would_lose_or_share_is_named(python: PythonTool, code: str, reason: str, ok):
    ok(python, code + "\nx = 1")
    with pytest.raises(CannotFork, match=f"^the Python session cannot be forked: {reason}"):
        python.fork()
    assert ok(python, "x") == "1\n"


def test_what_is_over_does_not_keep_a_session_from_forking(python: PythonTool, ok):
    ok(
        python,
        "import subprocess, threading\nsubprocess.run(['true'])\nthreading.Thread(target=print).start()\n"
        "with open('note', 'w') as f: _ = f.write('1')\nreading = open('note')",
    )
    twin = python.fork()
    assert ok(twin, "reading.read()") == "'1'\n"
    twin.close()


def test_reasons_are_plain_text_whatever_a_session_calls_its_files(python: PythonTool, ok):
    ok(python, "f = open('a\\x1b[2J\\n\"b' + 'c' * 200, 'w')\nx = 1")
    with pytest.raises(CannotFork) as caught:
        python.fork()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    assert ok(python, "x") == "1\n"


def test_a_twin_whose_files_cannot_be_copied_says_so(python: PythonTool, ok):
    ok(
        python,
        "import os\nfor n in range(3):\n    with open(str(n), 'wb') as f: _ = f.write(bytes(15 * 2**20))\nx = 1",
    )
    with pytest.raises(CannotFork, match="No space left on device"):
        python.fork()
    assert ok(python, "x, len(os.listdir('.'))") == "(1, 3)\n"


def test_a_twin_draws_the_numbers_of_its_origin(python: PythonTool, ok):
    ok(python, "import random\nimport numpy as np\nrandom.random(), np.random.rand()")
    twin = python.fork()
    draw = "random.random(), np.random.rand(), hash('text')"
    assert ok(python, draw) == ok(twin, draw)
    twin.close()


AT_THE_LIMIT = """
import json, os, resource, sys
from turngym.tools import PythonTool
from turngym.tools.python import CannotFork
tool = PythonTool(timeout=30.0, level=sys.argv[1])
tool.call({"code": "x = 5"})
free = len(os.listdir("/proc/self/fd")) - 1
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
seen = []
for room in range(8):
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, hard))
    try:
        with_twin = tool.fork()
        seen.append(with_twin.call({"code": "x"}).text), with_twin.close()
    except CannotFork as refusal:
        seen.append(str(refusal))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert len(os.listdir("/proc/self/fd")) - 1 == free
print(json.dumps([seen, tool.call({"code": "x"}).text]))
tool.close()
"""


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_fork_without_room_for_its_descriptors_is_refused(level: str):
    command = [sys.executable, "-W", "error", "-c", AT_THE_LIMIT, level]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    seen, after = json.loads(done.stdout)
    assert after == "5\n" and seen[-1] == "5\n"
    refused = [text for text in seen if text != "5\n"]
    assert refused and all("cannot be forked" in text for text in refused)
    assert "Too many open files; raise the limit (ulimit -n)" in refused[0]


@pytest.mark.parametrize("reason", [errno.ENFILE, errno.ENOMEM, errno.EMFILE, errno.ENOBUFS])
def test_a_fork_that_the_machine_has_no_room_for_is_refused(
    python: PythonTool, ok, monkeypatch, reason: int
):
    ok(python, "x = 5")

    def fail(*args: object, **options: object) -> None:
        raise OSError(reason, os.strerror(reason))

    for place, name in ((messages, "packet_pair"), (os, "pipe")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            with pytest.raises(CannotFork, match=os.strerror(reason)):
                python.fork()
    assert ok(python, "x") == "5\n"


def test_a_fork_at_the_limit_of_processes_is_refused(python: PythonTool, ok):
    ok(python, "x = 5\nimport resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))")
    with pytest.raises(CannotFork, match="as many processes as it may"):
        python.fork()
    assert ok(python, "x") == "5\n"
