"""What earlier attacks reached and must not: of the machine at each level, of what it counts, of a fork's siblings."""

import errno
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status
from turngym.tools.python import CannotFork

HEAD = """
import ctypes, errno, json, os, shutil, signal, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def tried(do, *args, **options):
    try:
        do(*args, **options)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def called(name, *args):
    return getattr(libc, name)(*args) >= 0
"""


@pytest.fixture(params=["namespaces", "landlock"])
def inside(request, ok):
    """`inside(script)` is what a program gives as `answer` at each level."""
    tool = PythonTool(timeout=30.0, level=request.param)
    yield lambda script: json.loads(ok(tool, f"{HEAD}{script}\nprint(json.dumps(answer))"))
    tool.close()


@pytest.fixture
def victim():
    """A file of the host beside a listening socket, outside of every folder that tests or programs use."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    file = folder / "file"
    file.write_text("secret")
    os.utime(file, (1e9, 1e9))
    file.chmod(0o600)
    yield file
    shutil.rmtree(folder)


def test_files_elsewhere_keep_their_mode_times_and_attributes(inside, victim):
    before = victim.stat()
    script = f"""
answer = []
for path in ({str(victim)!r}, {str(victim.parent)!r}, os.__file__, "way"):
    if path == "way": os.symlink({str(victim)!r}, "way")
    where = os.open(os.path.dirname(path) or ".", os.O_PATH) if os.path.isdir(os.path.dirname(path) or ".") else None
    answer += [tried(os.chmod, path, 0o777), tried(os.utime, path, (1, 1)), tried(os.chown, path, os.getuid(), -1),
               tried(os.chmod, os.path.basename(path), 0o777, dir_fd=where), tried(os.setxattr, path, "user.x", b"1"),
               tried(os.listxattr, path), tried(os.truncate, path, 0)]
with open(os.__file__) as file:
    answer += [tried(os.fchmod, file.fileno(), 0o777), tried(os.utime, file.fileno(), (1, 1))]
"""
    assert "done" not in inside(script)
    after = victim.stat()
    assert (after.st_mode, after.st_mtime, after.st_size) == (
        before.st_mode,
        before.st_mtime,
        before.st_size,
    )


def test_files_of_its_own_have_the_modes_and_times_they_are_given(inside):
    script = """
os.mkdir("deep")
with open("deep/file", "w") as file:
    os.fchmod(file.fileno(), 0o640)
os.chmod("deep", 0o750), os.utime("deep/file", (5, 6)), os.symlink("deep/file", "link")
accessed = os.stat("deep/file").st_atime
os.utime("link", (7, 8), follow_symlinks=False)
shutil.copytree("deep", "copy"), shutil.copy("deep/file", "one")
at = os.open("deep", os.O_RDONLY)
os.chmod("file", 0o755, dir_fd=at), os.chmod(os.path.abspath("one"), 0o600)
def seen(path): return [oct(os.lstat(path).st_mode & 0o777), os.lstat(path).st_mtime]
answer = [seen("deep/file"), seen("copy/file"), seen("copy")[0], seen("one")[0], seen("link")[1], accessed]
"""
    assert inside(script) == [["0o755", 6], ["0o640", 6], "0o750", "0o600", 8, 5]


def test_times_that_are_mapped_only_in_part_are_an_error(inside):
    """They are at the end of a page with none behind it, and the call after this one is answered, too."""
    script = """
import mmap
open("file", "w").close()
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 2 * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0)
libc.munmap(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE)
times = ctypes.c_void_p(start + mmap.PAGESIZE - 8)
result = libc.utimensat(-100, b"file", times, 0)
error = ctypes.get_errno()
os.utime("file", (5, 6))
answer = [result, error, os.stat("file").st_mtime]
"""
    assert inside(script) == [-1, errno.EFAULT, 6]


def test_no_socket_of_the_host_is_reached_by_its_path(inside, victim):
    path = str(victim.parent / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.settimeout(0.0)
        script = f"""
def pair_sends(kind):
    one, _ = socket.socketpair(type=kind)
    one.sendto(b"x", {path!r})
answer = [tried(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", {path!r}))]
answer += [tried(pair_sends, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
one, _ = socket.socketpair(type=socket.SOCK_SEQPACKET)
tried(one.sendto, b"x", {path!r})  # to its other end
"""
        assert "done" not in inside(script)
        with pytest.raises(BlockingIOError):
            server.recv(1)


def test_what_the_machine_counts_by_user_is_out_of_reach(inside):
    """Watches, slots of asynchronous input and output, shared segments, keyrings, larger pipes."""
    script = """
ours, theirs = os.pipe()
import fcntl
answer = [called("inotify_init1", 0), called("shmget", 0, 4096, 0o1600), called("semget", 0, 1, 0o1600),
          called("msgget", 0, 0o1600), called("fanotify_init", 0, 0), called("mq_unlink", b"/x"),
          tried(fcntl.fcntl, theirs, 1031, 2**20) == "done", tried(os.memfd_create, "x") == "done",
          *(called("syscall", number, 8, ctypes.byref(ctypes.c_ulong())) for number in IO_SETUP)]
"""
    numbers = {"x86_64": (206, 425, 250), "aarch64": (0, 425, 219)}[os.uname().machine]
    assert not any(inside(f"IO_SETUP = {numbers}\n{script}"))


def test_the_machine_and_who_trains_are_not_seen(ok, monkeypatch):
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/canary/bin")
    tool = PythonTool(timeout=30.0, persistent=False)
    script = """
import ctypes, os, sys
seen = [os.listdir("/proc"), os.path.exists("/sys"), os.path.exists("/dev/fd/0"), sys.orig_argv == [sys.executable]]
print(seen, "/canary" in str(dict(os.environ)))
"""
    assert ok(tool, script) == "[[], False, False, True] False\n"


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_fork_neither_sees_nor_signals_its_family(level, ok, run):
    tool = PythonTool(timeout=30.0, level=level)
    # What a program leaves behind before it is forked must not reach the forks either.
    ok(
        tool,
        "import os, time\nx = 42\nif not os.fork():\n    if os.fork(): os._exit(0)\n    time.sleep(60)\nos.wait()[1]",
    )
    twins = [tool.fork(), tool.fork()]
    family = [tool, *twins, twins[0].fork()]
    pids = [int(ok(member, "os.getpid()")) for member in family]
    attack = f"""
import resource, signal
def tried(do, *args):
    try: return do(*args) or "done"
    except (OSError, ValueError): return None
others = [pid for pid in {pids} if pid != os.getpid()]
found = [tried(*call) for pid in others for call in (
    (os.kill, pid, 9), (os.kill, -pid, 9), (os.killpg, pid, 9), (os.getpgid, pid), (os.getsid, pid),
    (os.sched_getaffinity, pid), (os.sched_setaffinity, pid, [0]), (os.getpriority, os.PRIO_PROCESS, pid),
    (os.setpriority, os.PRIO_PROCESS, pid, 19), (resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1)),
    (os.pidfd_open, pid), (os.waitpid, pid, os.WNOHANG), (os.open, f"/proc/{{pid}}/mem", 0))]
found += [tried(os.kill, -1, 9), tried(os.setpriority, os.PRIO_USER, 0, 19), tried(os.kill, os.getppid() or 1, 9)]
child = __import__("subprocess").Popen(["sleep", "60"], start_new_session=True)
child.kill()
[found and [one for one in found if one], child.wait(), tried(os.kill, os.getpid(), 0)]
"""
    for member in family:
        assert ok(member, attack) == "[[], -9, 'done']\n"
    assert run(twins[1], "os.kill(os.getpid(), 9)").status is Status.KILLED
    assert [ok(member, "x") for member in (tool, twins[0], family[-1])] == ["42\n"] * 3
    for member in family:
        member.close()


def test_a_fork_that_stays_in_its_origin_s_session_is_refused(ok):
    tool = PythonTool(timeout=30.0)
    tamper = """
import sys
x, frame = 1, sys._getframe()
while "fork" not in frame.f_locals: frame = frame.f_back
frame.f_locals["fork"].__globals__["seccomp"].begin_session = lambda: None
"""
    ok(tool, tamper)
    with pytest.raises(CannotFork, match="no session of its own"):
        tool.fork()
    assert ok(tool, "x") == "1\n"
    tool.close()
