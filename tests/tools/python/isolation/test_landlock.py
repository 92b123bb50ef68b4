import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.tools.python.isolation import landlock
from turngym.tools.python.tool import PythonTool

ABI = landlock.landlock_version()
pytestmark = pytest.mark.skipif(ABI == 0, reason="this kernel has no Landlock, or it is disabled")
SYSTEM = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc") if Path(path).is_dir()]

HEAD = """
import json, os, signal, socket, subprocess, sys
from pathlib import Path
from turngym.tools.python.tool import PythonTool; from turngym.tools.python.isolation import landlock, linux
read, write, outside, system = json.loads(sys.argv[1])
def restrict(**paths): landlock.enforce_landlock(landlock.landlock_ruleset(**paths))
def tried(do, *args, **options):
    try:
        do(*args, **options)
    except OSError as error:
        return error.errno
    return 0
"""


@pytest.fixture
def places(tmp_path):
    """Folders to read, to write in, and to have no access to, each with a file of its name."""
    for name in ("read", "write", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return [str(tmp_path / name) for name in ("read", "write", "outside")]


@pytest.fixture
def child(places):
    """What a script answers that runs in a fresh interpreter and is told the places."""

    def run(script, *more):
        command = [
            sys.executable,
            "-c",
            HEAD + script,
            json.dumps([*places, SYSTEM]),
            *map(str, more),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_reading_is_allowed_where_named(child, places):
    script = """
restrict(read=[read, *system], write=[write])
seen = {"status": Path("/usr").stat().st_nlink > 0, "read": Path(read, "file").read_text(), "list": os.listdir(read),
        "write": Path(write, "file").read_text(), "run": subprocess.run(["echo", "hi"], capture_output=True).returncode}
refused = [tried(Path(outside, "file").read_text), tried(os.listdir, outside), tried(os.listdir, "/"),
           tried(Path(outside, "file").write_text, "x"), tried(Path(outside, "new").touch),
           tried(os.unlink, outside + "/file"), tried(os.mkdir, outside + "/new"),
           tried(os.rename, outside + "/file", outside + "/new"),
           tried(Path(read, "file").write_text, "x"), tried(Path(read, "new").touch), tried(os.unlink, read + "/file"),
           tried(os.mkdir, read + "/new"), tried(os.symlink, "x", read + "/new"), tried(os.mkfifo, read + "/new"),
           tried(os.rename, read + "/file", write + "/stolen"), tried(os.link, read + "/file", write + "/stolen")]
print(json.dumps([seen, refused]))
"""
    seen, refused = child(script)
    assert seen == {"status": True, "read": "read", "list": ["file"], "write": "write", "run": 0}
    assert set(refused) <= {errno.EACCES, errno.EXDEV}
    assert [Path(place, "file").read_text() for place in places] == ["read", "write", "outside"]


def test_everything_but_device_nodes_can_be_made_where_writing_is_allowed(child):
    script = """
restrict(read=[], write=[write, "/dev/null"])
os.chdir(write)
Path("new").write_text("some"); os.truncate("new", 2); os.mkdir("one"); os.mkdir("two"); os.rename("new", "one/new")
os.rmdir("two"); os.symlink("one/new", "link"); os.mkfifo("fifo"); Path("file").unlink()
Path("/dev/null").write_text("x")
socket.socket(socket.AF_UNIX).bind("socket")
names = sorted(os.listdir(write))
text = Path("link").read_text()
device = tried(os.mknod, "device", 0o20600, os.makedev(1, 3))
os.link("one/new", "one/hard")
print(json.dumps([names, text, device]))
"""
    names, text, device = child(script)
    assert (names, text) == (["fifo", "link", "one", "socket"], "so")
    assert device in (errno.EACCES, errno.EPERM)


@pytest.mark.skipif(ABI < 2, reason="files move between folders from ABI 2 on")
def test_files_move_between_write_paths(child, places):
    script = """
restrict(read=[], write=[write, outside])
os.rename(write + "/file", outside + "/moved")
print(json.dumps(Path(outside, "moved").read_text()))
"""
    assert child(script) == "write"


@pytest.mark.skipif(ABI < 3, reason="truncation is governed from ABI 3 on")
def test_nothing_is_truncated_outside(child, places):
    script = """
restrict(read=[read], write=[write])
print(json.dumps([tried(os.truncate, place + "/file", 0) for place in (read, outside)]))
"""
    assert child(script) == [errno.EACCES] * 2
    assert Path(places[2], "file").read_text() == "outside"


@pytest.mark.skipif(ABI < 4, reason="TCP is governed from ABI 4 on")
def test_there_is_no_tcp(child):
    script = """
address = ("127.0.0.1", int(sys.argv[2]))
socket.create_connection(address).close()
restrict(read=[], write=[])
print(json.dumps([tried(socket.create_connection, address), tried(socket.socket().bind, ("127.0.0.1", 0))]))
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert child(script, server.getsockname()[1]) == [errno.EACCES] * 2


@pytest.mark.skipif(ABI < 6, reason="signals and abstract sockets are scoped from ABI 6 on")
def test_signals_and_abstract_sockets_stay_inside(child):
    script = """
name = "\\0" + sys.argv[2]
socket.socket(socket.AF_UNIX).connect(name)
restrict(read=system, write=[])
inside = socket.socket(socket.AF_UNIX); inside.bind(name + "-inside"); inside.listen()
sleeper = subprocess.Popen(["sleep", "100"])
seen = [tried(os.kill, os.getppid(), 0), tried(socket.socket(socket.AF_UNIX).connect, name)]
seen += [tried(sleeper.kill), -sleeper.wait(), tried(socket.socket(socket.AF_UNIX).connect, name + "-inside")]
print(json.dumps(seen))
"""
    name = f"turngym-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert child(script, name) == [errno.EPERM, errno.EPERM, 0, 9, 0]


@pytest.mark.skipif(ABI < 6, reason="signals are scoped from ABI 6 on")
def test_children_of_one_ruleset_are_strangers(child):
    script = """
ruleset = landlock.landlock_ruleset(read=[], write=[write])
end, stop = os.pipe()
ready, go = os.pipe()
first = os.fork()
if not first:
    os.close(stop)
    landlock.enforce_landlock(ruleset)
    os.write(go, b"x"); os.read(end, 1); os._exit(0)
os.read(ready, 1)
second = os.fork()
if not second:
    landlock.enforce_landlock(ruleset)
    gone = tried(os.fstat, ruleset)
    print(json.dumps([tried(os.kill, first, 0), gone, tried(Path(write, "new").touch)]), flush=True)
    os._exit(0)
os.waitpid(second, 0)
os.close(stop)
os.waitpid(first, 0)
"""
    assert child(script) == [errno.EPERM, errno.EBADF, 0]


def test_restrictions_add_up(child):
    script = """
restrict(read=[read], write=[write])
restrict(read=[write], write=[])
refused = [tried(Path(write, "file").write_text, "x"), tried(Path(read, "file").read_text)]
print(json.dumps([refused, Path(write, "file").read_text()]))
"""
    assert child(script) == [[errno.EACCES] * 2, "write"]


def test_a_file_can_be_named(child, places):
    script = """
restrict(read=[read + "/file"], write=[write + "/file"])
Path(write, "file").write_text("changed")
refused = [tried(os.listdir, read), tried(Path(write, "new").touch), tried(Path(read, "file").write_text, "x")]
print(json.dumps([Path(read, "file").read_text(), refused]))
"""
    assert child(script) == ["read", [errno.EACCES] * 3]
    assert Path(places[1], "file").read_text() == "changed"


@pytest.mark.parametrize("version", range(1, ABI + 1))
def test_the_ruleset_of_every_older_version_is_accepted(monkeypatch, places, version):
    monkeypatch.setattr(landlock, "landlock_version", lambda: version)
    ruleset = landlock.landlock_ruleset(
        read=[places[0], places[0] + "/file"], write=[places[1], "/dev/null"]
    )
    assert not os.get_inheritable(ruleset)
    os.close(ruleset)


def test_an_absent_path_is_named_and_nothing_stays_open(places):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for lists in (
        {"read": [places[0], "/nowhere/at/all"], "write": []},
        {"read": [], "write": ["/nowhere/at/all"]},
    ):
        with pytest.raises(FileNotFoundError, match="/nowhere/at/all"):
            landlock.landlock_ruleset(**lists)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_no_ruleset_is_refused(child):
    script = """
try:
    landlock.enforce_landlock(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(json.dumps([error.errno, error.strerror]))
"""
    number, message = child(script)
    assert number in (errno.EBADF, errno.EBADFD)
    assert "Landlock" in message


def test_a_kernel_without_landlock_is_named(monkeypatch):
    monkeypatch.setattr(landlock, "landlock_version", lambda: 0)
    with pytest.raises(OSError, match="no Landlock") as caught:
        landlock.landlock_ruleset(read=[], write=[])
    assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.slow
def test_a_work_folder_that_is_deep_and_closed_is_removed(ok, until):
    tool = PythonTool(timeout=30.0, level="landlock")
    ok(
        tool,
        "import os\nfor _ in range(1100): os.mkdir('d'); open('d/file', 'w').close(); os.chdir('d')\nos.umask(0o777)",
    )
    ok(tool, "os.mkdir('closed')\nos.symlink('/', 'link')")
    folder = Path(tool._session.group.folder).parent
    assert folder.is_dir()
    tool.close()
    assert until(lambda: not folder.exists())
