import os
import sys
from pathlib import Path

import pytest

import turngym
from turngym.tools.python import root

SCRIPT = """
from turngym.tools import PythonTool
tool = PythonTool(timeout=30.0)
code = '''{code}'''
once = PythonTool(timeout=30.0, persistent=False)
print(json.dumps([tool.call({{"code": code}}).text, once.call({{"code": code}}).text]))
tool.close()
"""


def test_the_interpreter_and_the_system_are_visible_and_no_folder_above_them():
    paths = list(root.visible())
    assert "/usr" in paths
    assert all(Path(path).exists() for path in paths)
    assert not any(Path(path).is_symlink() for path in ("/bin", "/lib") if path in paths)
    assert len(paths) == len(set(paths))
    library = Path(os.__file__)
    assert any(library.is_relative_to(path) for path in paths)
    for hidden in ("/", "/home", "/root", "/tmp", "/etc", "/var", str(Path.home()), sys.prefix, sys.base_prefix):
        assert hidden not in paths or hidden == "/usr", hidden
    assert not any(Path("/etc/passwd").is_relative_to(path) for path in paths)


def test_of_an_environment_only_its_parts_are_visible(monkeypatch: pytest.MonkeyPatch, tmp_path):
    for name in ("bin", "lib", "secrets"):
        (tmp_path / name).mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    paths = set(root.visible.__wrapped__())
    assert {path for path in paths if Path(path).is_relative_to(tmp_path)} == {
        str(tmp_path / name) for name in ("bin", "lib", "pyvenv.cfg")
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
    assert bare(SCRIPT.format(code=code), python=user, cwd="/") == ["1000 2 False False\nrefused\n"] * 2


MASK = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0, "unshare"
assert libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None) == 0, "private"
assert libc.mount(b"tmpfs", b"/proc/sys", b"tmpfs", 0, None) == 0, "mask"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mask a part of /proc")
def test_a_machine_that_masks_its_processes_gives_an_empty_proc(bare):
    """As containers do: the kernel then refuses a /proc of one's own."""
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
    assert bare(READ_ONLY + SCRIPT.format(code=code), env={**os.environ, "TMPDIR": "/dev/shm"}) == ["x\n"] * 2
