"""Without namespaces: nothing outlives a server, whoever is killed, and files that a session leaves are limited."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status
from turngym.tools.python.isolation import levels as isolation
from turngym.tools.python.isolation import linux
from turngym.tools.python.server import client as server
from turngym.tools.python.server import guard

WITHOUT = pytest.mark.parametrize("level", ["landlock", "rlimits-only"])
MARK = 10  # RLIMIT_LOCKS

# A session with detached children: one in a session of its own, one stopped, one that ignores signals, an orphan.
DETACHED = """
import os, signal, time
def orphan():
    if os.fork(): os._exit(0)
for do in (os.setsid, lambda: os.kill(os.getpid(), signal.SIGSTOP), orphan,
           lambda: signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))):
    if not os.fork():
        do()
        time.sleep(1000)
        os._exit(0)
time.sleep(0.1)
print('detached')
"""


def _marked(folder: str) -> list[int]:
    """The living processes of the server of a folder."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                limit = guard._MARK_IN_LIMITS.search(linux.read_proc(f"{path}/limits"))
                if (
                    limit
                    and int(limit[1]) == guard.compute_mark(folder)
                    and not guard._is_zombie(int(path.name))
                ):
                    found.append(int(path.name))
            except OSError:
                continue
    return found


PARENT = """
import sys
from turngym.tools import PythonTool
from turngym.tools.python.server import client as server
tool = PythonTool(timeout=100.0, level=sys.argv[1])
tool.call({"code": sys.argv[2]})
owner = server._servers[sys.argv[1]]
print(owner.child.pid, owner.folder, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def started():
    """`started(level)` is a process that holds a session with detached children, its server and its folder."""
    processes = []

    def start(level: str) -> tuple[subprocess.Popen[str], int, str]:
        command = [sys.executable, "-W", "error", "-c", PARENT, level, DETACHED]
        processes.append(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))
        pid, folder = processes[-1].stdout.readline().split()
        return processes[-1], int(pid), folder

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
            os.kill(pid, number)


@pytest.mark.parametrize(
    "level", ["landlock", pytest.param("rlimits-only", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "killed", ["server", "parent and server", "all that have children", "the whole tree"]
)
def test_nothing_outlives_a_server_that_is_killed(
    level: str, killed: str, started, descendants, until
):
    parent, pid, folder = started(level)
    tree = descendants(pid)
    assert len(tree) > 6 and len(tree & set(_marked(folder))) > 6
    also = {
        "all that have children": {one for one in tree if descendants(one)},
        "the whole tree": tree,
    }
    _send(signal.SIGSTOP, also.get(killed, set()))  # so that none cleans up after another
    _send(
        signal.SIGKILL, [*([parent.pid] if killed != "server" else []), pid, *also.get(killed, ())]
    )
    assert until(lambda: not _marked(folder))
    assert until(lambda: not Path(folder).exists())


@WITHOUT
def test_what_an_init_that_is_killed_leaves_is_ended_by_its_server(
    level: str, ok, run, descendants, host_pid, until
):
    tool = PythonTool(timeout=30.0, level=level)
    ok(tool, DETACHED)
    init = _parent(host_pid(tool))
    below = descendants(init)
    assert len(below) > 3
    os.kill(init, signal.SIGKILL)
    assert until(lambda: not below & set(_marked(server._servers[level].folder)))
    assert run(tool, "1").status is Status.KILLED
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()


def _parent(pid: int) -> int:
    return int(linux.read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


@pytest.mark.slow
@WITHOUT
def test_what_a_server_and_its_guard_left_behind_the_next_one_removes(level: str, started, until):
    parent, pid, folder = started(level)
    tree = linux.process_tree([pid])
    (watcher,) = set(_marked(folder)) - set(tree)
    _send(signal.SIGSTOP, [watcher, *tree])
    _send(signal.SIGKILL, [watcher, parent.pid, *{_parent(one) for one in tree if one != pid}])
    parent.wait()
    assert _marked(folder) and Path(folder).is_dir()
    other, _, elsewhere = started(level)
    assert until(lambda: not _marked(folder) and not Path(folder).exists())
    assert Path(elsewhere).is_dir() and _marked(elsewhere)  # which lives
    other.communicate("\n")
    assert until(lambda: not _marked(elsewhere) and not Path(elsewhere).exists())


def test_a_guard_that_is_killed_is_replaced(ok, until, server_pid):
    level = "landlock"
    tool = PythonTool(timeout=30.0, level=level)
    ok(tool, "1")
    folder = server._servers[level].folder
    (watcher,) = set(_marked(folder)) - set(linux.process_tree([server_pid(level)]))
    os.kill(watcher, signal.SIGKILL)
    ok(tool, "open('file', 'w').close()")
    private = Path(tool._session.group.folder).parent
    tool.close()
    assert until(lambda: not private.exists())
    assert len(set(_marked(folder)) - set(linux.process_tree([server_pid(level)]))) == 1
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()


def test_a_program_cannot_take_off_the_mark(ok):
    tool = PythonTool(timeout=30.0, level="landlock")
    code = f"""
import os, resource
def tried(*args):
    try: return resource.prlimit(*args)
    except OSError: return "refused"
seen = resource.prlimit(0, {MARK})
print([tried(pid, {MARK}, (1, 1)) for pid in (0, os.getpid())], resource.prlimit(0, {MARK}) == seen, seen[0])
"""
    assert (
        ok(tool, code)
        == f"['refused', 'refused'] True {guard.compute_mark(server._servers['landlock'].folder)}\n"
    )
    tool.close()


def test_a_folder_that_is_locked_or_somebody_else_s_is_no_leftover(tmp_path, monkeypatch):
    monkeypatch.setattr(server.tempfile, "tempdir", str(tmp_path))
    folder, lock = server._make_locked_folder()
    assert guard.try_to_lock_folder(folder) is None
    (tmp_path / "python-tool-server-link1234").symlink_to(tmp_path)
    (tmp_path / "python-tool-server-other").mkdir()
    (tmp_path / "python-tool-server-file1234").touch()
    left = tmp_path / "python-tool-server-left1234"
    (left / "1" / "home").mkdir(parents=True)
    (tmp_path / "python-tool-12345678").mkdir()  # of an earlier version, which locks none
    before = {path.name for path in tmp_path.iterdir()}
    guard._clean_up_after_dead_servers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == before - {left.name}
    fcntl.flock(lock, fcntl.LOCK_UN)
    with monkeypatch.context() as patch:
        patch.setattr(guard.os, "geteuid", lambda: 12345)
        guard._clean_up_after_dead_servers(tmp_path)
    assert Path(folder).is_dir()
    os.close(lock)
    guard._clean_up_after_dead_servers(tmp_path)
    assert not Path(folder).exists()


FILES = {
    "many files": "for number in range(10**6): os.close(os.open(str(number), os.O_CREAT))",
    "nested folders": "while True: os.mkdir('d'), os.chdir('d')",
    "links of one file": """
open('x', 'w').close()
for number in range(60_000): os.link('x', f'a{number}')
""",
    "closed folders": """
for number in range(10**6):
    os.mkdir(str(number))
    for inner in range(100): os.mkdir(f"{number}/{inner}")
    os.chmod(str(number), 0)
""",
}


@pytest.mark.slow
@WITHOUT
@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_files_of_a_session_are_limited_and_removed_aside(level: str, make: str, run, ok, until):
    tool = PythonTool(timeout=60.0, level=level)
    ok(tool, "import os, time")
    private = Path(tool._session.group.folder).parent
    used = time.thread_time()
    result = run(tool, f"{make}\ntime.sleep(1000)")
    assert result.status is Status.MEMORY
    assert (
        time.thread_time() - used < 0.5
    )  # seconds of processor time of this thread, which removes nothing
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()
    assert until(lambda: not private.exists())


def test_entries_are_counted_up_to_a_limit(tmp_path):
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "file").touch()
    (tmp_path / "link").symlink_to("/usr")
    assert isolation.count_entries(tmp_path, 100) == 7
    assert isolation.count_entries(tmp_path, 4) == 5
    assert isolation.count_entries(tmp_path / "nowhere", 4) == 0
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
    assert isolation.count_entries(tmp_path, 1000) == 1001  # its path is too long


@pytest.mark.slow
@WITHOUT
def test_a_session_may_have_as_many_files_as_others(level: str, ok):
    tool = PythonTool(timeout=60.0, level=level)
    code = "import os, time\nfor number in range(5000): os.close(os.open(str(number), os.O_CREAT))\ntime.sleep(1)"
    assert ok(tool, code + "\nlen(os.listdir())") == "5000\n"
    tool.close()


ADOPTING = """
import ctypes, os, time
from pathlib import Path
from turngym.tools import PythonTool
from turngym.tools.python.server import client as server
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, as the first process of a container is
tool = PythonTool(timeout=30.0, level="landlock")
tool.call({"code": "1"})
tool.close()
children = Path(f"/proc/self/task/{os.getpid()}/children")
before = len(children.read_text().split())
server._servers.pop("landlock").child.close()
print(before, children.read_text().split())
"""


def test_no_zombie_is_left_to_a_process_that_takes_over_orphans():
    done = subprocess.run(
        [sys.executable, "-c", ADOPTING], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2 []\n"
