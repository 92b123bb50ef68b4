import errno
import json
import os
import resource
import socket
import sys
from pathlib import Path

import pytest

import turngym
from turngym.tools import PythonTool, Status, ToolFailure, ToolResult
from turngym.tools.python import LEVELS, CannotFork, LevelRefused, session
from turngym.tools.python.isolation import levels as isolation
from turngym.tools.python.isolation import packages
from turngym.tools.python.server import client as server


def test_what_is_no_level_is_refused_with_those_there_are():
    message = "level is 'docker'; it must be one of namespaces, landlock, rlimits-only"
    with pytest.raises(ValueError, match=message):
        server.check_level("docker")
    with pytest.raises(ValueError, match=message):
        PythonTool(level="docker")


def test_a_refusal_names_the_weaker_levels_and_how_to_allow_them():
    refusal = LevelRefused("namespaces", "no luck")
    assert isinstance(refusal, ToolFailure)
    assert str(refusal) == (
        "the Python tool cannot run at level 'namespaces': no luck; to allow a weaker level, "
        "ask for level='landlock' or level='rlimits-only' (docs/python-tool.md says what it gives up)"
    )
    assert (refusal.level, refusal.reason) == ("namespaces", "no luck")
    assert (
        str(LevelRefused("rlimits-only", "no luck"))
        == "the Python tool cannot run at level 'rlimits-only': no luck"
    )


def test_each_level_is_tried(monkeypatch: pytest.MonkeyPatch):
    def require(level: str) -> None:
        if level == "namespaces":
            raise LevelRefused(level, "no user namespaces")
        if level == "landlock":
            raise ToolFailure("no session")

    monkeypatch.setattr(session, "require", require)
    expected = {"namespaces": "no user namespaces", "landlock": "no session", "rlimits-only": None}
    assert session.try_levels.__wrapped__() == expected


def test_this_machine_gives_every_level():
    assert session.try_levels() == dict.fromkeys(LEVELS)


# The filter stands for the machine: it refuses the calls in `refused` whose first argument passes a test.
EQUAL, AT_LEAST, ANY_BIT = 0x15, 0x35, 0x45
MACHINE = """
import struct
from turngym.tools.python.isolation import landlock, linux, seccomp; from turngym.tools.python import session
column = ["x86_64", "aarch64"].index(__import__("os").uname().machine)
table = seccomp.CALLS | {{"landlock_create_ruleset": (landlock._CREATE_RULESET,) * 2, "unshare": (272, 97)}}
code = []
for name, error, test, value in {refused}:
    code += [(0x20, 0, 0, 0), (0x15, 0, 3, table[name][column]), (0x20, 0, 0, 16)]
    code += [(test, 0, 1, value), (6, 0, 0, 0x50000 | error)]
seccomp.install(b"".join(struct.pack("<HBBI", *step) for step in [*code, (6, 0, 0, 0x7FFF0000)]))
print(json.dumps(session.try_levels()))
"""


@pytest.mark.slow
def test_a_container_without_user_namespaces_refuses_the_strongest_level_only(bare):
    calls = [
        ("unshare", errno.EPERM, ANY_BIT, 0x10000000),
        ("clone", errno.EPERM, ANY_BIT, 0x10000000),
    ]
    probed = bare(MACHINE.format(refused=calls))
    assert probed.pop("namespaces").endswith("unshare: Operation not permitted")
    assert probed == {"landlock": None, "rlimits-only": None}


@pytest.mark.slow
def test_a_kernel_without_landlock_refuses_that_level_only(bare):
    probed = bare(MACHINE.format(refused=[("landlock_create_ruleset", errno.ENOSYS, AT_LEAST, 0)]))
    reason = "the kernel has no Landlock of version 3 (Linux 6.2), or it is switched off"
    assert probed == {"namespaces": None, "landlock": reason, "rlimits-only": None}


def test_a_container_whose_filter_refuses_personalities_gives_every_level(bare):
    """As the default ones of container engines do."""
    assert bare(
        MACHINE.format(refused=[("personality", errno.EPERM, EQUAL, 0x00040000)])
    ) == dict.fromkeys(LEVELS)


WEAKER = pytest.mark.parametrize("level", LEVELS[1:])


@WEAKER
@pytest.mark.parametrize("persistent", [True, False])
def test_a_weaker_level_gives_the_same_results(level: str, persistent: bool, run, ok, settled):
    tool = PythonTool(timeout=20.0, memory_mb=200, persistent=persistent, level=level)
    restarted = "; the session was restarted" if persistent else ""
    assert ok(tool, "print('a')\nprint(6 * 7)") == "a\n42\n"
    assert run(tool, "1 / 0").text.endswith("ZeroDivisionError: division by zero\n")
    assert run(tool, "b = bytes(2**30)").status is Status.MEMORY
    assert run(tool, "while True: print('x' * 10**6)").status is Status.OUTPUT
    died = run(tool, "import os\nos.kill(os.getpid(), 11)")
    assert died.status is Status.KILLED
    assert died.text.startswith("[the process died")
    helper = "import os\nif not os.fork():\n    os.setsid()\n    while True: os.write(1, b'')\n"
    tool.timeout = 0.5
    late = run(tool, helper + "print('begun')\nwhile True: pass")
    assert late == ToolResult(Status.TIMEOUT, f"begun\n[timed out after 0.5 s{restarted}]")
    tool.timeout = 20.0
    assert ok(tool, "print('again')") == "again\n"
    tool.close()
    assert settled(level)


@WEAKER
def test_a_session_of_a_weaker_level_forks(level: str, ok, run, settled):
    tool = PythonTool(timeout=20.0, level=level)
    ok(tool, "import os\nitems = [1]\nopen('note', 'w').write('old')")
    twin = tool.fork()
    assert ok(twin, "items.append(2); open('note', 'a').write('new'); items") == "[1, 2]\n"
    assert ok(tool, "items, open('note').read()") == "([1], 'old')\n"
    ok(tool, "f = open('note', 'w')")
    with pytest.raises(CannotFork, match="open for writing"):
        tool.fork()
    assert run(tool, "os._exit(1)").status is Status.KILLED
    assert ok(twin, "items") == "[1, 2]\n"
    twin.close()
    tool.close()
    assert settled(level)


@WEAKER
def test_the_folder_of_a_weaker_level_is_removed(level: str, ok, until):
    tool = PythonTool(timeout=20.0, level=level)
    folder = Path(ok(tool, "import os\nprint(os.getcwd(), end='')"))
    assert (
        ok(tool, "os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd(), os.listdir('.')")
        == "(True, [])\n"
    )
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    ok(
        tool,
        "os.mkdir('a'); os.symlink('/usr', 'a/link'); open('a/file', 'w').close(); os.chmod('a', 0)",
    )
    tool.close()
    assert until(lambda: not folder.parent.exists())


@WEAKER
def test_every_level_has_limits_and_a_bare_environment(
    level: str, ok, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CANARY", "secret")
    tool = PythonTool(timeout=20.0, level=level)
    script = """
import json, os, resource as r
kinds = (r.RLIMIT_NPROC, r.RLIMIT_CORE, r.RLIMIT_FSIZE)
print(json.dumps([[r.getrlimit(kind)[1] for kind in kinds], "CANARY" in os.environ,
                  [os.get_inheritable(fd) for fd in range(3, 129) if os.path.exists(f"/proc/self/fd/{fd}")]]))
"""
    values, canary, inheritable = json.loads(ok(tool, script))
    assert values == [64, 0, 2**24]
    assert not canary
    assert inheritable in ([False, False], [])
    tool.close()


def test_landlock_keeps_files_network_and_processes_away(ok, tmp_path):
    (tmp_path / "secret").write_text("secret")
    tool = PythonTool(timeout=20.0, level="landlock")
    script = """
import json, os, socket, subprocess
def tried(do, *args):
    try: do(*args)
    except OSError as error: return error.errno
    return 0
PLACE, PORT, PID = {place!r}, {port}, {pid}
answer = [
    tried(open, PLACE + "/secret"), tried(os.listdir, PLACE), tried(open, PLACE + "/new", "w"),
    tried(os.unlink, PLACE + "/secret"), tried(open, "/etc/shadow"),
    tried(os.listdir, os.path.dirname(os.path.dirname(os.getcwd()))),
    tried(open, "/tmp/new-file", "w"), tried(open, os.__file__, "a"), tried(open, f"/proc/{{PID}}/environ"),
    tried(socket.socket), tried(socket.socket, socket.AF_INET, socket.SOCK_DGRAM),
    tried(socket.socket, socket.AF_INET6),
    tried(os.kill, PID, 0), tried(os.kill, os.getppid(), 9), tried(os.kill, -1, 9),
]
open("mine", "w").close()
said = subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout
can = [os.listdir("."), said, len(os.listdir("/usr")) > 0]
print(json.dumps([answer, can]))
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place, port = str(tmp_path), listener.getsockname()[1]
        refused, can = json.loads(ok(tool, script.format(place=place, port=port, pid=os.getpid())))
    assert all(refused), refused
    assert can == [["mine"], "hi\n", True]
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    other = PythonTool(timeout=20.0, level="landlock")
    folder = ok(tool, "print(os.getcwd(), end='')")
    ok(other, "import os")
    assert "PermissionError" in other.call({"code": f"os.listdir({folder!r})"}).text
    other.close()
    tool.close()


def test_what_the_weakest_level_does_not_keep_away_is_seen(ok, tmp_path):
    (tmp_path / "file").write_text("seen")
    tool = PythonTool(timeout=20.0, level="rlimits-only")
    assert ok(tool, f"print(open({str(tmp_path / 'file')!r}).read())") == "seen\n"
    tool.close()


LIMITS = "import resource as r\nfrom turngym.tools.python.isolation import levels as isolation\n"


def test_confining_binds_and_lower_limits_of_the_machine_stay(bare):
    script = """
r.setrlimit(r.RLIMIT_FSIZE, (4096, 8192))
isolation.set_limits()
isolation.set_limits()
isolation.messages.set_resource_limit(r.RLIMIT_AS, 2**30)
isolation.messages.set_resource_limit(r.RLIMIT_AS, 2**31)
kinds = (r.RLIMIT_FSIZE, r.RLIMIT_NPROC, r.RLIMIT_CORE, r.RLIMIT_MSGQUEUE, r.RLIMIT_MEMLOCK, r.RLIMIT_AS)
print(json.dumps([r.getrlimit(kind) for kind in kinds]))
"""
    values = [8192, isolation.MAX_PROCESSES, 0, 0, 0, 2**30]
    assert bare(LIMITS + script) == [[value, value] for value in values]


def test_open_files_are_limited(bare):
    script = "isolation.set_limits()\nprint(json.dumps(r.getrlimit(r.RLIMIT_NOFILE)))"
    assert (
        bare(LIMITS + script)
        == [min(isolation.MAX_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])] * 2
    )


SCRIPT = """
from turngym.tools import PythonTool
tool = PythonTool(timeout=30.0)
code = '''{code}'''
once = PythonTool(timeout=30.0, persistent=False)
print(json.dumps([tool.call({{"code": code}}).text, once.call({{"code": code}}).text]))
tool.close()
"""


def test_the_interpreter_and_the_system_are_shown_and_no_folder_above_them():
    seen = packages.make_view()
    assert "/usr/bin" in seen.shown
    assert all(Path(path).exists() for path in seen.shown)
    library = Path(os.__file__)
    assert any(library.is_relative_to(path) for path in seen.readable)
    above = (
        "/",
        "/usr",
        "/home",
        "/root",
        "/tmp",
        "/etc",
        "/var",
        str(Path.home()),
        sys.prefix,
        sys.base_prefix,
    )
    assert not {*above} & {*seen.shown}
    assert not any(Path("/etc/passwd").is_relative_to(path) for path in seen.shown)


def test_of_an_environment_only_its_parts_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path):
    for name in ("bin/python3", "bin/turngym", "lib/python3.11/site-packages/turngym", "secrets"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    paths = set(packages.make_view().shown)
    assert {path for path in paths if Path(path).is_relative_to(tmp_path)} == {
        str(tmp_path / name) for name in ("bin/python3", "pyvenv.cfg")
    }


def _readable_interpreter() -> str:
    """An interpreter that every user may run: this one, or that of the system."""
    for path in (sys.executable, "/usr/bin/python3"):
        folders = Path(path).resolve().parents
        if Path(path).exists() and all(folder.stat().st_mode & 0o5 == 0o5 for folder in folders):
            return path
    pytest.skip("no Python interpreter here can be read by other users than root")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs all of these tests")
def test_an_ordinary_user_has_the_same_tool(bare, tmp_path_factory):
    python = _readable_interpreter()
    package = Path(turngym.__file__).parent
    if not all(folder.stat().st_mode & 0o5 == 0o5 for folder in [package, *package.parents]):
        pytest.skip("the package lies in a folder that only root can read")
    code = r"""
import os
print(os.getuid(), os.getpid(), os.path.exists("/etc/shadow"), os.path.exists("/home"))
try: os.setgid(0)
except OSError: print("refused")
"""
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python)
    assert (
        bare(SCRIPT.format(code=code), python=user, cwd="/")
        == ["1000 2 False False\nrefused\n"] * 2
    )


MASK = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0, "unshare"
assert libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None) == 0, "private"
assert libc.mount(b"tmpfs", b"/proc/sys", b"tmpfs", 0, None) == 0, "mask"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mask a part of /proc")
def test_a_machine_that_masks_its_processes_is_served(bare):
    """As containers do."""
    code = r"""
import os
print(os.listdir("/proc"), os.getpid(), 6 * 7)
"""
    assert bare(MASK + SCRIPT.format(code=code)) == ["[] 2 42\n"] * 2


# Not by a mount over it, which would hide a checkout that lies there.
READ_ONLY = MASK.replace(
    'libc.mount(b"tmpfs", b"/proc/sys", b"tmpfs", 0, None) == 0, "mask"',
    'libc.mount(b"/tmp", b"/tmp", None, 1 << 12 | 1 << 14, None) == 0, "bind"\n'
    'assert libc.mount(None, b"/tmp", None, 1 | 1 << 5 | 1 << 12, None) == 0, "read-only /tmp"',
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_machine_whose_tmp_is_read_only_is_served(bare):
    code = "open('file', 'w').write('x'); print(open('file').read())"
    assert (
        bare(READ_ONLY + SCRIPT.format(code=code), env={**os.environ, "TMPDIR": "/dev/shm"})
        == ["x\n"] * 2
    )
