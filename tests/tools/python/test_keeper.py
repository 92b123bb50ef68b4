import os

import pytest

from turngym.tools import PythonTool
from turngym.tools.python import keeper
from turngym.tools.python.levels import LEVELS

# Processes in every relation to their session: a child, a grandchild, an orphan, one in a session of its own, a stopped
# one, one that ignores signals, and one that forks without end.
BROOD = """
import contextlib, os, signal, time
def child(do):
    if not os.fork():
        do()
        time.sleep(1000)
        os._exit(0)
def orphan():
    if os.fork(): os._exit(0)
def daemon():
    os.setsid()
    orphan()
def stopped():
    with contextlib.suppress(PermissionError): signal.raise_signal(signal.SIGSTOP)
def deaf():
    for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
def restless():
    while True:
        try:
            if not os.fork(): os._exit(0)
            os.wait()
        except OSError: pass
for do in (lambda: child(deaf), orphan, daemon, stopped, deaf, restless):
    child(do)
time.sleep(0.05)
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("persistent", [True, False])
def test_no_process_outlives_its_boundary(level: str, persistent: bool, ok, settled):
    tool = PythonTool(timeout=30.0, persistent=persistent, level=level)
    assert ok(tool, BROOD + "print('done')") == "done\n"
    tool.close()
    assert settled(level)


@pytest.mark.parametrize("level", LEVELS)
def test_no_zombie_is_left_within_a_boundary(level: str, ok, until, host_pid, descendants):
    tool = PythonTool(timeout=30.0, level=level)
    child = "    if not os.fork():\n        if not os.fork(): os._exit(0)\n        os._exit(0)"
    ok(tool, f"import os\nfor _ in range(5):\n{child}")
    ok(tool, "for _ in range(5): os.wait()")
    assert until(lambda: not descendants(host_pid(tool)))
    tool.close()


def test_a_program_cannot_end_its_keeper(python: PythonTool, ok):
    ok(python, "import os, signal")
    kills = "for number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass"
    assert ok(python, f"{kills}\nprint('here')") == "here\n"
    assert ok(python, "6 * 7") == "42\n"


@pytest.mark.parametrize(
    ("text", "root", "expected"),
    [
        ("         0          0 4294967295\n", 0, "0 0 1\n1000 65534 1\n"),
        ("         0       1000          1\n", 0, "0 0 1\n"),
        ("         0     100000      65536\n", 0, "0 0 1\n1000 65534 1\n"),
        ("         0          0 4294967295\n", 1000, "0 1000 1\n"),
    ],
)
def test_a_second_user_is_mapped_where_there_is_one(tmp_path, monkeypatch, text: str, root: int, expected: str):
    (tmp_path / "uid_map").write_text(text)
    monkeypatch.setattr(os, "geteuid", lambda: root)
    assert keeper._maps(str(tmp_path / "uid_map"), root) == expected
