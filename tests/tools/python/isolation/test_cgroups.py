"""Groups that the kernel limits; it is imitated here, since what groups there are is the machine's."""

import os
from pathlib import Path

import pytest

from turngym.tests.support import control_groups
from turngym.tools import PythonTool, Status
from turngym.tools.python import memory_mode
from turngym.tools.python.isolation import cgroups
from turngym.tools.python.isolation.cgroups import SLACK, Groups, find_divisible_group
from turngym.tools.python.isolation.file_view import DISK
from turngym.tools.python.isolation.levels import MAX_PROCESSES
from turngym.tools.python.server import client as server
from turngym.tools.python.server.client import was_killed_for_own_limit

KILLED = "low 0\nhigh 0\nmax 7\noom {oom}\noom_kill {kills}\noom_group_kill 1\n"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A tree of groups in which this process is in `above/own`, and only `above` has none in itself."""
    monkeypatch.setattr(cgroups, "os", cgroups.os)
    control_groups.imitate(cgroups)
    for name in ("tree", "tree/above", "tree/above/own"):
        control_groups.make(str(tmp_path / name))
        if name != "tree/above":
            refuse(tmp_path / name)
    (tmp_path / "own").write_text("1:name=systemd:/\n0::/above/own\n")
    return tmp_path / "tree"


def refuse(group: Path) -> None:
    """Let nobody divide a group, as where processes are in it."""
    (group / "cgroup.subtree_control").unlink()
    (group / "cgroup.subtree_control").mkdir()


def own(root: Path) -> Path:
    return root.parent / "own"


def test_the_nearest_group_that_can_be_divided_is(root):
    assert find_divisible_group(root, own(root)) == root / "above"
    assert (root / "above/cgroup.subtree_control").read_text() == "+memory +pids"
    (root / "above/own/cgroup.subtree_control").rmdir()
    (root / "above/own/cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_divisible_group(root, own(root)) == root / "above/own"
    assert (root / "above/own/cgroup.subtree_control").read_text() == "cpu memory pids\n"


@pytest.mark.parametrize(
    ("file", "text", "binds"),
    [
        ("memory.max", "1073741824\n", True),
        ("cpu.max", "50000 100000\n", True),
        ("cpuset.cpus", "0-3\n", True),
        ("cpuset.cpus", "\n", False),
        ("cpu.max", "max 100000\n", False),
        ("pids.max", "4915\n", False),
    ],
)
def test_no_limit_of_memory_or_processors_is_escaped(file, text, binds, root):
    (root / "above/own" / file).write_text(text)
    if binds:
        with pytest.raises(OSError, match="above/own upwards can be divided"):
            find_divisible_group(root, own(root))
    else:
        assert find_divisible_group(root, own(root)) == root / "above"


def test_it_is_said_why_there_are_no_groups(root, tmp_path):
    with pytest.raises(OSError, match="is not cgroup v2"):
        find_divisible_group(tmp_path, own(root))
    refuse(root / "above")
    with pytest.raises(OSError, match="can be divided"):
        find_divisible_group(root, own(root))
    own(root).write_text("0::/../elsewhere\n")
    with pytest.raises(OSError, match="can be divided"):
        find_divisible_group(root, own(root))


def test_a_session_has_its_limits_and_its_group_goes_with_it(root):
    groups = Groups(root, own(root))
    (folder,) = (root / "above").glob("python-tool-*")
    join, events = groups.make(1)
    groups.limit(1, 2**20)
    assert (folder / "1/memory.max").read_text() == str(2**20 + DISK + SLACK)
    assert [
        (folder / "1" / name).read_text().strip() for name in ("memory.oom.group", "pids.max")
    ] == [
        "1",
        str(MAX_PROCESSES + 2),
    ]
    os.write(join, b"0")
    assert (folder / "1/cgroup.procs").read_text() == "0"
    assert not was_killed_for_own_limit(events)
    (folder / "1/busy").touch()
    groups.remove(1)
    assert (folder / "1").is_dir()
    (folder / "1/busy").unlink()
    groups.make(2)
    groups.remove(2)
    assert not (folder / "1").exists() and not (folder / "2").exists()
    groups.make(3)
    groups.close()
    assert not folder.exists()


def test_what_a_dead_server_left_behind_is_removed_and_nothing_else(root):
    left = Groups(root, own(root))
    left.make(1)
    os.close(left.folder)  # as when the process has ended
    lives = Groups(root, own(root))
    assert [path.name for path in (root / "above").glob("python-tool-*")] == [lives.name]
    lives.make(1)
    another = Groups(root, own(root))
    assert {path.name for path in (root / "above").glob("python-tool-*")} == {
        lives.name,
        another.name,
    }


@pytest.mark.parametrize(
    ("oom", "kills", "ours"), [(0, 0, False), (3, 9, True), (0, 9, False), (2, 0, False)]
)
def test_only_a_kill_for_the_limit_of_the_session_counts(oom, kills, ours, tmp_path):
    """One for the limit of a group above, or of the machine, says nothing about the program."""
    (tmp_path / "events").write_text(KILLED.format(oom=oom, kills=kills))
    assert was_killed_for_own_limit(os.open(tmp_path / "events", os.O_RDONLY)) is ours


@pytest.mark.parametrize("level", ["namespaces", "landlock", "rlimits-only"])
def test_a_session_whose_group_was_killed_is_out_of_memory(
    level, root, run, ok, until, monkeypatch
):
    """The server imitates the kernel, too; a program that kills itself stands for the kernel's killing."""
    (root / "above/cgroup.subtree_control").write_text("memory pids")
    imitate = (
        f"from pathlib import Path; import turngym.tools.python.isolation.cgroups as group\n"
        f"exec(open({control_groups.__file__!r}).read())\nimitate(group)\n"
        f"group.Groups.__init__.__defaults__ = Path({str(root)!r}), Path({str(own(root))!r})\n"
    )
    monkeypatch.setattr(
        server,
        "_BOOT",
        server._BOOT.replace("from {package}.super", imitate + "from {package}.super"),
    )
    monkeypatch.setattr(server, "_servers", {})
    tool = PythonTool(timeout=30.0, memory_mb=100, level=level)
    assert ok(tool, "x = 1") == ""
    assert memory_mode(level) == "limited by the kernel, and counted twenty times a second"
    twin = tool.fork()
    assert ok(twin, "x") == "1\n"
    (folder,) = (root / "above").glob("python-tool-*")
    serial = tool._session.group.serial
    group = folder / str(serial)
    assert (group / "cgroup.procs").read_text() == "0"
    assert until(lambda: (group / "memory.max").read_text() == str(200 * 2**20 + DISK + SLACK))
    (group / "memory.events").write_text(KILLED.format(oom=1, kills=2))
    assert run(tool, "import os\nos.kill(os.getpid(), 9)").status is Status.MEMORY
    assert run(twin, "x").status is Status.MEMORY  # the family has ended
    assert until(lambda: not group.exists())
    assert run(tool, "import os\nos.kill(os.getpid(), 9)").status is Status.KILLED
    twin.close()
    tool.close()
    server._servers[level].child.close()
    assert until(lambda: not folder.exists())
