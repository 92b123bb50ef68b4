import threading
from pathlib import Path

from turngym.tools import PythonTool, Status, ToolResult

HOLD = "import time\nb = bytearray(b'x') * (40 * 2**20)\ntime.sleep(1000)\n"


def _forks(count: int) -> str:
    body = HOLD.replace("\n", "\n        ").rstrip()
    return f"import os\nfor _ in range({count}):\n    if not os.fork():\n        {body}\n"


def test_processes_together_hold_no_more_than_one_may(run, settled):
    for persistent in (True, False):
        tool = PythonTool(timeout=30.0, memory_mb=100, persistent=persistent)
        result = run(tool, f"print('begun')\n{_forks(8)}{HOLD}")
        restarted = "; the session was restarted" if persistent else ""
        assert result == ToolResult(Status.MEMORY, f"begun\n[out of memory{restarted}]")
        assert settled()


def test_memory_that_is_shared_counts_once(python: PythonTool, ok):
    """A pool of workers that read what their parent made is no fork bomb."""
    code = """
import os, time
block = bytearray(b"x") * (200 * 2**20)
pids = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        total = block[::4096].count(b"x")
        time.sleep(0.3)
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
print("done")
"""
    assert ok(python, code) == "done\n"


def test_memory_of_orphans_counts(run, settled):
    tool = PythonTool(timeout=30.0, memory_mb=100)
    code = "import os, time\nif not os.fork():\n    os.setsid()\n" + "\n".join(
        f"    {line}" for line in _forks(6).split("\n")
    )
    assert run(tool, code + "\n    os._exit(0)\nos.wait()\ntime.sleep(1000)").status is Status.MEMORY
    tool.close()
    assert settled()


def test_a_bomb_of_forks_is_contained(run, ok, settled):
    tool = PythonTool(timeout=1.0, persistent=False)
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    other = PythonTool(timeout=30.0)
    assert run(tool, bomb).status in (Status.TIMEOUT, Status.MEMORY)
    assert ok(other, "6 * 7") == "42\n"
    other.close()
    assert settled()


def test_the_stock_is_filled_up_again(fresh: PythonTool, ok, settled, descendants, server_pid):
    ok(fresh, "1")
    assert settled()
    before = descendants(server_pid())
    for _ in range(3):
        ok(fresh, "1")
    assert settled()
    after = descendants(server_pid())
    assert len(after) == len(before)
    assert len(after - before) >= 4


def test_more_calls_than_are_in_stock_are_served(ok, settled):
    texts: list[str] = []

    def play() -> None:
        tool = PythonTool(timeout=60.0, persistent=False)
        texts.extend(ok(tool, "import time\ntime.sleep(0.01)\nprint(1)") for _ in range(4))

    threads = [threading.Thread(target=play) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["1\n"] * 48
    assert settled()


def test_the_server_keeps_no_descriptor_of_what_has_ended(fresh: PythonTool, ok, settled, until, server_pid):
    def descriptors() -> int:
        return len(list(Path(f"/proc/{server_pid()}/fd").iterdir()))

    ok(fresh, "1")
    assert settled()
    before = descriptors()
    for _ in range(20):
        ok(fresh, "1")
    assert settled()
    assert until(lambda: descriptors() <= before)
