"""What a program can reach from inside, at the strongest level."""

import json
import os
import socket
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status
from turngym.tools.python.isolation import file_view
from turngym.tools.python.isolation import levels as isolation
from turngym.tools.python.server import client as server

HEAD = """
import json, os, socket, subprocess, sys
from pathlib import Path
def tried(do, *args, **options):
    try:
        do(*args, **options)
    except OSError as error:
        return error.errno
    return 0
"""


@pytest.fixture
def inside(fresh: PythonTool, ok):
    """`inside(script, names)` is what a fresh program gives as `answer`."""

    def inside(script: str) -> object:
        return json.loads(ok(fresh, f"{HEAD}{script}\nprint(json.dumps(answer))"))

    return inside


def test_the_network_is_out_of_reach(inside):
    script = """
answer = {
    "interfaces": [name for _, name in socket.if_nameindex()],
    "host": tried(socket.create_connection, ("127.0.0.1", PORT), 5),
    "far": tried(socket.create_connection, ("192.0.2.1", 80), 5),
    "datagram": tried(socket.socket(type=socket.SOCK_DGRAM).sendto, b"x", ("192.0.2.1", 53)),
    "abstract": tried(socket.socket(socket.AF_UNIX).connect, "\\0" + NAME),
    "path": tried(socket.socket(socket.AF_UNIX).connect, PATH),
}
"""
    name = f"turngym-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind("\0" + name)
        abstract.listen()
        port = server.getsockname()[1]
        answer = inside(f"PORT, NAME, PATH = {port}, {name!r}, '/run/docker.sock'\n{script}")
        for listener in (server, abstract):
            listener.settimeout(0.0)
            with pytest.raises(BlockingIOError):
                listener.accept()
    assert answer.pop("interfaces") == ["lo"]
    assert all(answer.values())


def test_the_files_of_the_host_are_out_of_reach(inside, tmp_path):
    (tmp_path / "secret").write_text("secret")
    places = [
        str(tmp_path),
        str(Path.home()),
        "/root",
        "/home",
        "/etc/shadow",
        "/sys",
        "/run",
        "/mnt",
        "/var/log",
    ]
    script = f"""
answer = [place for place in {places} if os.path.exists(place)]
answer += [name for name in os.listdir("/") if name.startswith(".")]
answer += os.listdir("/proc"), os.listdir("/var")
"""
    *seen, proc, var = inside(script)
    assert [place for place in seen if place != str(Path.home())] == []
    assert (proc, var) == ([], ["tmp"])


def test_the_tree_is_read_only(inside):
    script = """
places = ["/", "/usr", "/etc", "/dev", "/var", "/proc", os.path.dirname(os.__file__), sys.prefix + "/bin", "/bin"]
answer = [place for place in places if tried(open, place + "/new", "w") == 0]
answer += [tried(os.unlink, os.__file__), tried(os.chmod, sys.executable, 0o777), tried(os.truncate, json.__file__, 0)]
"""
    *written, unlink, chmod, truncate = inside(script)
    assert written == []
    assert unlink and chmod and truncate


def test_it_is_a_user_and_a_machine_of_its_own(inside):
    script = """
import pwd
user = pwd.getpwuid(os.getuid())
answer = [os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), user.pw_name, user.pw_dir, socket.gethostname(),
          sorted(os.listdir("/etc"))]
"""
    *user, host, files = inside(script)
    assert user == [1000, 1000, 1000, [], "agent", "/tmp/home"]
    assert host == "sandbox" != socket.gethostname()
    assert set(files) <= {"passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache"}


def test_it_sees_only_its_own_processes(inside):
    script = """
child, far = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"], start_new_session=True)
seen = [pid for pid in range(1, 100) if not tried(os.kill, pid, 0)]
answer = [seen, [os.getpid(), child.pid, far.pid], os.getppid(), tried(os.kill, 1, 9), tried(os.kill, -1, 9),
          os.getsid(0) == os.getpgid(0) == os.getpid()]
child.kill(), os.killpg(far.pid, 9)
answer += child.wait(), far.wait()
"""
    seen, own, parent, *refused, leads, ended, far = inside(script)
    assert seen == own
    assert all(refused)
    assert (parent, leads, ended, far) == (0, True, -9, -9)


def test_privileges_cannot_be_had(inside):
    script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *args):
    return name if getattr(libc, name, lambda *_: -1)(*args) >= 0 else None
answer = [
    [called("unshare", flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000)]
    + [called("mount", b"none", b"/tmp", b"tmpfs", 0, None), called("umount2", b"/tmp", 2), called("chroot", b"/tmp")]
    + [called("setns", os.open("/tmp", 0), 0), called("seccomp", 2, 0, 0), called("setresuid", 0, 0, 0)]
    + [called("sethostname", b"x", 1), called("setuid", 0), called("setgid", 0), called("ptrace", 16, 1, 0, 0)]
    + [called("personality", 0x40000)],
    [tried(os.setgroups, [0]), tried(os.mknod, "d", 0o20600, 259)],
    subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode,
]
"""
    calls, refused, code = inside(script)
    assert set(calls) == {None}
    assert all(refused)
    assert code


def test_the_environment_is_an_allowlist(fresh: PythonTool, monkeypatch: pytest.MonkeyPatch, ok):
    monkeypatch.setenv("CANARY", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    names = set(json.loads(ok(fresh, "import json, os\nprint(json.dumps(dict(os.environ)))")))
    allowed = {
        "LANG",
        "PYTHONHASHSEED",
        "USER",
        "PATH",
        "HOME",
        "TMPDIR",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    }
    assert names == allowed
    seen = ok(
        fresh,
        "import subprocess\nprint(subprocess.run(['env'], capture_output=True, text=True).stdout)",
    )
    assert {line.partition("=")[0] for line in seen.split()} <= allowed | {
        "PWD",
        "SHLVL",
        "_",
        "LC_CTYPE",
    }
    # Nor where the interpreter began, which the server's own environment and command line would tell.
    assert ok(fresh, "import sys\nprint(sys.orig_argv == [sys.executable])") == "True\n"
    assert server._ENVIRONMENT["PATH"] == os.defpath


OPEN = """
import fcntl, os, stat
def kinds():
    found = {}
    for fd in range(4096):
        try: found[fd] = stat.S_IFMT(os.fstat(fd).st_mode)
        except OSError: continue
    return found
"""


def test_few_descriptors_are_open(python: PythonTool, fresh: PythonTool, ok):
    ok(python, OPEN)
    rest = "[kinds()[fd] in (stat.S_IFSOCK, stat.S_IFIFO) for fd in kinds() if fd > 2]"
    assert ok(python, f"[fd for fd in kinds() if fd < 3], {rest}") == "([0, 1, 2], [True, True])\n"
    assert ok(python, "[os.get_inheritable(fd) for fd in kinds() if fd > 2]") == "[False, False]\n"
    assert ok(
        python, "os.read(0, 1), stat.S_ISCHR(kinds()[0]), kinds()[1] == kinds()[2] == stat.S_IFIFO"
    ) == ("(b'', True, True)\n")
    twin = python.fork()
    inherited = "[os.get_inheritable(fd) for fd in kinds() if fd > 2]"
    assert ok(twin, inherited) == "[False, False]\n"
    twin.close()
    # A fresh program is told by its exit code: it needs no socket.
    assert (
        ok(fresh, OPEN + "print(stat.S_IFSOCK in kinds().values(), len(kinds()) <= 4)")
        == "False True\n"
    )


def test_the_first_file_that_is_opened_has_the_number_it_has_everywhere(fresh: PythonTool, ok):
    assert ok(fresh, "import os\nprint(os.open('/dev/null', os.O_RDONLY))") == "3\n"


def test_code_finds_nothing_of_this_package(python: PythonTool, ok):
    # In capitals, since a program that speaks of a library gets an interpreter that has it ready.
    unwanted = {"NUMPY", "SYMPY", "GYMNASIUM", "TURNGYM", "TURNGYM.TOOLS"}
    assert (
        ok(python, f"import sys\n{unwanted} & {{name.upper() for name in sys.modules}}")
        == "set()\n"
    )
    assert (
        ok(python, "import os\nos.listdir('.'), os.getcwd() == os.environ['HOME']")
        == "([], True)\n"
    )
    assert ok(python, "try: import turngym\nexcept ImportError: print('none')") in ("none\n", "")
    assert (
        ok(python, "oct(os.umask(0o77)), os.getpgrp() == os.getsid(0) == os.getpid()")
        == "('0o77', True)\n"
    )


def test_disk_is_limited(inside):
    script = f"""
import errno
written = files = 0
try:
    for n in range(100):
        with open(f"part{{n}}", "wb", buffering=0) as file:
            for _ in range(10): written += file.write(bytes(2**20))
except OSError as error: full = error.errno == errno.ENOSPC
for name in os.listdir("."): os.unlink(name)
try:
    for n in range(20000):
        open(f"/tmp/{{n}}", "w").close()
        files += 1
except OSError as error: many = error.errno == errno.ENOSPC
for n in range(files): os.unlink(f"/tmp/{{n}}")
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("big", "wb", buffering=0) as file: size = file.write(bytes({isolation.MAX_FILE_BYTES} + 10))
answer = [written, full, files, many, size, tried(open("big", "ab", buffering=0).write, b"x") == errno.EFBIG]
"""
    written, full, files, many, size, big = inside(script)
    assert 60 * 2**20 <= written <= file_view.DISK
    assert 8000 <= files <= file_view.INODES
    assert (full, many, size, big) == (True, True, isolation.MAX_FILE_BYTES, True)


def test_processes_are_limited(inside):
    script = """
import signal, time
pids = []
try:
    while len(pids) < 1000:
        pid = os.fork()
        if not pid: time.sleep(1000)
        pids.append(pid)
except BlockingIOError: pass
for pid in pids: os.kill(pid, signal.SIGKILL)
for pid in pids: os.waitpid(pid, 0)
answer = len(pids)
"""
    assert isolation.MAX_PROCESSES - 4 <= inside(script) <= isolation.MAX_PROCESSES


def test_threads_are_limited(ok):
    script = """
import threading
stop, count = threading.Event(), 0
try:
    while count < 1000:
        threading.Thread(target=stop.wait).start()
        count += 1
except RuntimeError: pass
stop.set()
count
"""
    tool = PythonTool(timeout=30.0, memory_mb=2**14)
    assert isolation.MAX_PROCESSES - 4 <= int(ok(tool, script)) <= isolation.MAX_PROCESSES
    tool.close()


def test_open_files_and_dumps_are_limited(inside):
    script = """
import resource
files = []
try:
    while True: files.append(open("/dev/null"))
except OSError: files, count = [], len(files)
try: resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))
except (OSError, ValueError): refused = True
answer = [count, resource.getrlimit(resource.RLIMIT_CORE), refused]
"""
    count, core, refused = inside(script)
    assert isolation.MAX_OPEN_FILES - 6 <= count <= isolation.MAX_OPEN_FILES
    assert core == [0, 0]
    assert refused


def test_memory_that_counts_for_no_process_is_out_of_reach(fresh: PythonTool, ok, run):
    code = """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=4096)
block.buf[0] = 7
print(block.buf[0])
block.close()
block.unlink()
"""
    assert ok(fresh, code) == "7\n"
    assert run(fresh, "import os\nos.memfd_create('x')").status is Status.ERROR
