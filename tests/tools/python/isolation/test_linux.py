import errno
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.tools.python.isolation import linux, seccomp

HEAD = "import os, re, socket\nfrom pathlib import Path\nfrom turngym.tools.python.isolation import linux\n"


def test_a_process_moves_into_namespaces_of_its_own(bare):
    script = """
name, network = socket.gethostname(), os.stat("/proc/self/ns/net").st_ino
linux.unshare(linux.NEWUSER | linux.NEWUTS | linux.NEWNET | linux.NEWPID)
socket.sethostname("elsewhere")
child = linux.clone(linux.NEWIPC)
if not child:
    os._exit(10 * os.getpid() + (socket.gethostname() == "elsewhere"))
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([code, name != "elsewhere", network != os.stat("/proc/self/ns/net").st_ino]))
"""
    assert bare(HEAD + script) == [11, True, True]


def test_a_process_dies_with_its_parent_also_where_that_has_died_before(bare):
    """Of two grandchildren one says so before their parent ends, one after; both hold the pipe open until they die."""
    script = """
reading, writing = os.pipe()
said, saying = os.pipe()
middle = os.fork()
if not middle:
    own = os.getpid()
    for late in (False, True):
        if not os.fork():
            while late and os.getppid() == own:
                os.sched_yield()
            linux.die_with(own)
            os.write(saying, b"x")
            os.close(saying)
            os.read(reading, 1)
    os.read(said, 1)
    os._exit(0)
os.close(saying), os.close(writing)
os.waitpid(middle, 0)
print(json.dumps([os.read(reading, 1) == b"", os.read(said, 1) == b""]))
"""
    assert bare(HEAD + script) == [True, True]


def test_a_process_joins_the_namespaces_of_another(bare):
    script = """
linux.unshare(linux.NEWUSER)
ours, theirs = socket.socketpair()
child = linux.clone(linux.NEWUTS)
if not child:
    socket.sethostname("joined")
    theirs.send(b"x")
    theirs.recv(1)
    os._exit(0)
ours.recv(1)
pidfd = os.pidfd_open(child)
linux.setns(pidfd, linux.NEWUTS)
ours.send(b"x")
os.waitpid(child, 0)
ours.close(), theirs.close()
print(json.dumps(socket.gethostname()))
"""
    assert bare(HEAD + script) == "joined"


def test_privileges_are_given_up_for_good(bare):
    script = """
linux.unshare(linux.NEWUSER | linux.NEWUTS)
socket.sethostname("before")
linux.drop_capabilities()
status = Path("/proc/self/status").read_text()
try:
    socket.sethostname("after")
except PermissionError as error:
    refused = error.strerror
print(json.dumps([re.findall("Cap(?:Inh|Prm|Eff|Amb):\\t(.*)", status), refused]))
"""
    capabilities, refused = bare(HEAD + script)
    assert set(capabilities) == {"0" * 16}
    assert refused == "Operation not permitted"


def test_mounts_are_made_read_only_and_undone(bare, tmp_path):
    script = """
folder = os.getcwd()
identity = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
linux.unshare(linux.NEWUSER | linux.NEWNS)
Path("/proc/self/setgroups").write_text("deny")
for name, number in identity.items():
    Path("/proc/self", name).write_text(f"0 {number} 1")
linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID, "size=64k,uid=0")
Path(folder, "file").write_text("x")
linux.make_read_only(folder, recursive=False)
try:
    Path(folder, "file").write_text("y")
except OSError as error:
    refused = error.errno
seen = Path(folder, "file").read_text()
linux.unmount(folder)
print(json.dumps([refused, seen, os.listdir(folder)]))
"""
    assert bare(HEAD + script, cwd=tmp_path) == [errno.EROFS, "x", []]


def test_errors_name_the_call_and_the_place():
    nothing = os.open("/dev/null", os.O_RDONLY)
    cases = (
        (lambda: linux.mount("tmpfs", "/nowhere/at/all", "tmpfs"), "mount /nowhere/at/all"),
        (lambda: linux.unmount("/nowhere/at/all"), "umount /nowhere/at/all"),
        (
            lambda: linux.make_read_only("/nowhere/at/all", recursive=True),
            "mount_setattr /nowhere/at/all",
        ),
        (lambda: linux.pivot_root("/nowhere/at/all", "/nowhere"), "pivot_root"),
        (lambda: linux.setns(nothing, linux.NEWUTS), "setns"),
        (lambda: linux.prctl(-1, 0), "prctl"),
    )
    for call, what in cases:
        with pytest.raises(OSError, match=f"{re.escape(what)}: ") as caught:
            call()
        assert caught.value.errno
    os.close(nothing)


def test_the_execution_domain_can_be_asked_for():
    assert linux.personality(0xFFFFFFFF) == linux.personality(0xFFFFFFFF)


def test_a_machine_whose_calls_are_not_known_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(linux, "_CLONE", -1)
    with pytest.raises(
        OSError, match=r"clone: machine .* is not supported; x86_64 and aarch64 are"
    ):
        linux.clone(0)


NUMBERS = {
    "clone": seccomp.CALLS["clone"],
    "capset": seccomp.CALLS["capset"],
    "pivot_root": (155, 41),
}


@pytest.mark.parametrize(("name", "number"), [(name, f"_{name.upper()}") for name in NUMBERS])
def test_numbers_are_those_of_the_kernel(name: str, number: str):
    x86_64, aarch64 = NUMBERS[name]
    assert getattr(linux, number) == {"x86_64": x86_64, "aarch64": aarch64}[os.uname().machine]


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
    pids = linux.process_tree([family])
    assert pids[0] == family
    assert set(pids[1:]) == descendants(family)
    assert len(pids) == 3
    assert family in linux.process_tree([os.getpid()])


def test_children_of_other_threads_are_found(until):
    code = (
        "import subprocess, threading, sys\n"
        "threading.Thread(target=lambda: subprocess.run(['cat'])).start()\n"
        "print('ready', flush=True)"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        assert until(lambda: len(linux.process_tree([process.pid])) == 2)
        process.stdin.close()


def test_a_descendant_that_has_just_ended_spares_nobody(monkeypatch, until):
    """It is listed as a descendant, and cannot be opened any more."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with subprocess.Popen(["sh", "-c", "sleep 100; true"]) as parent:
        assert until(lambda: len(linux.process_tree([parent.pid])) == 2)
        _, child = linux.process_tree([parent.pid])
        watched = os.pidfd_open(child)
        listed = [parent.pid, ended.pid, child]
        monkeypatch.setattr(linux, "process_tree", lambda roots: listed)
        descriptors = len([*Path("/proc/self/fd").iterdir()])
        linux.kill_tree(pidfd := os.pidfd_open(parent.pid))
        assert parent.wait() == -9
        assert select.select([watched], [], [], 10)[0]
        os.close(pidfd)
        assert len([*Path("/proc/self/fd").iterdir()]) == descriptors
        os.close(watched)


def test_memory_that_processes_share_counts_once(family: int):
    pids = linux.process_tree([family])
    assert 80 * MIB < linux.measure_memory(pids, 0) < 130 * MIB
    # Where the limit is far away, an estimate that is too high will do.
    assert 190 * MIB < linux.measure_memory(pids, 2**40) < 260 * MIB


def test_what_has_ended_has_no_tree_and_no_memory():
    process = subprocess.Popen(["true"])
    process.wait()
    assert linux.process_tree([process.pid]) == []
    assert linux.measure_memory([process.pid], 0) == 0


def test_a_zombie_holds_nothing(until):
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert linux.measure_memory([process.pid], -1) == 0
    process.wait()


KEEPER = """
import ctypes, fcntl, mmap, os, select, socket, sqlite3, struct, sys
kind = sys.argv[1]
if kind == "mappings":
    block = mmap.mmap(-1, 2**23)
    libc, start = ctypes.CDLL(None), ctypes.addressof(ctypes.c_char.from_buffer(block))
    for page in range(0, 2**23, 8192): libc.mprotect(ctypes.c_void_p(start + page), 4096, 1)
if kind in ("locks", "too many locks"):
    fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
    other = os.open(sys.argv[2], os.O_RDWR)
    for at in range(0, 4000 if kind == "locks" else 40_000, 2):
        fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, at, 1, 0))
if kind == "watches":
    poll, pipes = select.epoll(), [os.pipe() for _ in range(100)]
    for fd, _ in pipes:
        for number in range(400, 420):
            os.dup2(fd, number), poll.register(number, 1), os.close(number)
if kind == "in flight":
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("nothing", 0, MIB),
        ("mappings", MIB, 3 * MIB),
        ("locks", MIB // 2, 2 * MIB),
        pytest.param(
            "too many locks", 2**40, 2**40 + 1, marks=pytest.mark.slow
        ),  # the kernel adds a lock in linear time
        ("watches", MIB // 2, 2 * MIB),
        ("in flight", 99 * MIB, 100 * MIB),
    ],
)
def test_what_the_kernel_keeps_for_a_process_is_counted(tmp_path, kind: str, least: int, most: int):
    command = [sys.executable, "-I", "-c", KEEPER, kind, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as process:
        assert process.stdout.readline() == b"ready\n"
        held = linux.measure_kernel_memory([process.pid], 2**40, 99 * MIB)
        assert least <= held <= most
        process.stdin.close()


def test_the_count_stops_where_it_is_too_much(family: int):
    assert 0 < linux.measure_kernel_memory([family], 1, 0) < MIB


def test_what_a_process_holds_is_seen_behind_a_first_thread_that_has_ended(until):
    code = """
import ctypes, os, sys, threading
def hold():
    block, pipe = bytearray(b"x") * (64 * 2**20), [os.pipe() for _ in range(10)]
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdin=-1, stdout=-1) as process:
        assert process.stdout.readline() == b"ready\n"
        assert until(lambda: linux.proc_folder(process.pid) != f"/proc/{process.pid}")
        assert linux.measure_memory([process.pid], 0) > 60 * MIB
        assert linux.measure_memory([process.pid], 2**40) > 60 * MIB
        assert linux.measure_buffers([process.pid], 0) >= 10 * 2**16
        process.stdin.close()
    assert linux.proc_folder(os.getpid()) == f"/proc/{os.getpid()}"


def test_pipes_count_whether_they_have_names_or_not(tmp_path):
    before = linux.measure_buffers([os.getpid()], 0)
    os.mkfifo(tmp_path / "fifo")
    ends = [os.open(tmp_path / "fifo", os.O_RDWR), *os.pipe()]
    assert linux.measure_buffers([os.getpid()], 0) == before + 2 * 2**16
    for end in ends:
        os.close(end)
