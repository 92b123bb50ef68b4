import json
import re
from pathlib import Path

import pytest

import turngym
from turngym.tools import PythonTool, Status, Tool, ToolResult
from turngym.tools.python import CannotFork


def test_it_is_a_tool_with_one_string_argument():
    tool = PythonTool(timeout=3)
    assert isinstance(tool, Tool)
    function = tool.schema["function"]
    assert function["name"] == tool.name == "python"
    assert function["parameters"]["required"] == ["code"]
    assert "3 seconds" in function["description"]
    assert tool.call({"code": 3}) == ToolResult(
        Status.ERROR, "argument 'code' of python is 3; expected a string"
    )
    assert tool.call({}).status is Status.ERROR


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"timeout": 0}, "timeout is 0; it must be 0.01 to 3600 seconds"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"memory_mb": 8}, "memory_mb is 8; it must be 64 to"),
        ({"max_output": 0}, "max_output is 0; it must be 64 to"),
    ],
)
def test_limits_out_of_range_are_refused(limits: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PythonTool(**limits)


def test_a_tool_that_is_not_persistent_says_so_and_forgets(fresh: PythonTool, run, ok):
    ok(fresh, "x = 1")
    assert run(fresh, "x").status is Status.ERROR
    assert "starts afresh" in fresh.schema["function"]["description"]
    assert "are kept" in PythonTool().schema["function"]["description"]


STUBBORN = """
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
x = 1
print('begun', end='')
while True:
    try:
        while True: pass
    except: pass
"""


@pytest.mark.parametrize("persistent", [True, False])
def test_a_timeout_keeps_what_was_printed(persistent: bool, run, ok):
    tool = PythonTool(timeout=0.3, persistent=persistent)
    result = run(tool, STUBBORN)
    restarted = "; the session was restarted" if persistent else ""
    assert result == ToolResult(Status.TIMEOUT, f"begun\n[timed out after 0.3 s{restarted}]")
    tool.timeout = 20.0
    assert run(tool, "x").status is Status.ERROR
    assert ok(tool, "print(6 * 7)") == "42\n"
    tool.close()


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(1000)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import threading; threading.Thread(target=threading.Event().wait).start()",
        "import atexit, time; _ = atexit.register(time.sleep, 1000)",
        "import os\nif os.fork(): os.wait()\nelse:\n    while True: pass",
        "class A:\n    def __del__(self):\n        while True: pass\na = A()",
    ],
)
def test_a_program_that_does_not_end_times_out(code: str, run):
    assert run(PythonTool(timeout=0.3, persistent=False), code).status is Status.TIMEOUT


def test_a_program_has_ended_when_its_process_has(fresh: PythonTool, ok, settled):
    """Whatever it leaves behind, with the descriptors of its output, is not awaited but ended."""
    code = "import os\nif not os.fork():\n    while True: os.write(1, b'')\nprint('done')"
    assert ok(fresh, code) == "done\n"
    assert (
        ok(fresh, "import subprocess\np = subprocess.Popen(['sleep', '1000'])\nprint('done')")
        == "done\n"
    )
    assert settled()


def test_memory_is_limited(python: PythonTool, run, ok):
    assert ok(python, "b = bytearray(100 * 2**20); len(b)") == "104857600\n"
    result = run(python, "a = bytearray(600 * 2**20)")
    assert result.status is Status.MEMORY
    assert result.text.endswith("MemoryError\n")
    assert ok(python, "len(b)") == "104857600\n"


@pytest.mark.parametrize("persistent", [True, False])
def test_a_session_filled_to_the_brim_is_replaced_or_recovers(persistent: bool, run):
    tool = PythonTool(timeout=20.0, memory_mb=64, persistent=persistent)
    result = run(tool, "a = []\nwhile True: a.append(bytes(1000))")
    assert result.status is Status.MEMORY
    result = run(tool, "a = None\nprint(6 * 7)")
    assert result.text == "42\n" or run(tool, "print(6 * 7)").text == "42\n"
    tool.close()


def test_output_is_cut_to_its_head_and_tail(ok):
    tool = PythonTool(timeout=20.0, max_output=100)
    assert ok(tool, "print('a' * 99)") == "a" * 99 + "\n"
    assert (
        ok(tool, "print('é' * 60 + 'b' * 60)")
        == "é" * 50 + "\n… [21 characters cut] …\n" + "b" * 49 + "\n"
    )
    tool.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_flood_of_output_is_stopped(persistent: bool, run, ok):
    tool = PythonTool(timeout=60.0, max_output=64, persistent=persistent)
    restarted = "; the session was restarted" if persistent else ""
    for stream in ("stdout", "stderr"):
        result = run(tool, f"import sys\nwhile True: sys.{stream}.write('x' * 2**20)")
        assert result.status is Status.OUTPUT
        assert result.text == (
            "x" * 32
            + "\n… [1048512 characters cut] …\n"
            + "x" * 32
            + f"\n[stopped after 1048576 bytes of output{restarted}]"
        )
    assert ok(tool, "print('x' * (2**20 - 2))").count("x") == 63
    tool.close()


def test_control_characters_are_spelled_out(python: PythonTool, ok):
    code = "print(''.join(map(chr, [0, 7, 8, 9, 10, 11, 27, 127, 128, 155, 159, 160, 233])))"
    assert ok(python, code) == "\\x00\\x07\\x08\t\n\\x0b\\x1b\\x7f\\x80\\x9b\\x9f\xa0é\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import os; os.kill(os.getpid(), 11)",
        "import os; os.closerange(3, 4096)\nwhile True: pass",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_a_dead_session_is_told_and_replaced(python: PythonTool, code: str, run, ok):
    ok(python, "x = 1")
    result = run(python, "print('before')\n" + code)
    assert result.status is Status.KILLED
    assert result.text == "before\n[the process died; the session was restarted]"
    assert ok(python, "'x' in globals()") == "False\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1\0", "the code contains a NUL character"),
        ("x = '\ud800'", "the character '\\ud800' at position 5 is a lone surrogate"),
        ("#" * (2**20 + 1), "the code is 1048577 bytes long; at most 1048576 are allowed"),
    ],
)
def test_some_programs_are_not_run_at_all(code: str, reason: str):
    assert PythonTool().call({"code": code}) == ToolResult(Status.REJECTED, f"not run: {reason}")


def test_a_fork_of_an_unused_tool_is_an_unused_tool_with_the_same_limits():
    twin = PythonTool(
        timeout=2.0, memory_mb=100, max_output=99, persistent=False, level="landlock"
    ).fork()
    limits = (twin.timeout, twin.memory_mb, twin.max_output, twin.persistent, twin.level)
    assert limits == (2.0, 100, 99, False, "landlock")


def test_a_session_that_cannot_fork_is_made_anew_only_when_asked(
    python: PythonTool, run, ok, caplog
):
    ok(python, "items = [1]\nfile = open('note', 'w')")
    assert run(python, "items.append(2)\n1 / 0").status is Status.ERROR
    with pytest.raises(CannotFork, match=r"cannot be forked: it has open for writing: .*/note"):
        python.fork()
    assert not caplog.records
    assert ok(python, "items") == "[1, 2]\n"
    twin = python.fork(replay=True)
    (record,) = caplog.records
    assert record.name == "turngym.tools.python.tool"
    assert record.levelname == "WARNING"
    assert re.fullmatch(r".*/note; 3 programs are run again instead", record.message)
    assert ok(twin, "items.append(3); items") == "[1, 2, 3]\n"
    assert ok(python, "items") == "[1, 2]\n"
    again = twin.fork(replay=True)
    assert ok(again, "items") == "[1, 2, 3]\n"
    twin.close()
    again.close()


def test_a_session_that_can_fork_is_not_run_again(python: PythonTool, ok, caplog):
    ok(python, "x = object()")
    twin = python.fork(replay=True)
    assert ok(python, "id(x)") == ok(twin, "id(x)")
    assert not caplog.records
    twin.close()


def test_a_reset_forgets_what_would_be_run_again(python: PythonTool, run, ok):
    ok(python, "x = 1")
    python.reset()
    ok(python, "file = open('note', 'w')")
    twin = python.fork(replay=True)
    assert run(twin, "x").status is Status.ERROR
    twin.close()


def test_recorded_benign_programs_do_what_they_should(ok):
    path = Path(turngym.__file__).parent.parent / "shared" / "corpora" / "hostile_programs.jsonl"
    if not path.exists():
        pytest.skip("../shared/corpora is absent")
    rows = [
        row for row in map(json.loads, path.read_text().splitlines()) if row["category"] == "ok"
    ]
    assert len(rows) == 7
    for row in rows:
        tool = PythonTool(timeout=20.0)
        text = ok(tool, row["code"])
        for promise in row["must_hold"].split("; "):
            kind, _, value = promise.partition("=")
            value = value.replace("\\n", "\n")
            assert kind in ("U", "status", "out_has", "out_eq"), promise
            assert kind != "out_has" or value in text, row["id"]
            assert kind != "out_eq" or text == value, row["id"]
        tool.close()


def test_control_characters_are_spelt_out_but_for_ends_of_lines(python: PythonTool, ok):
    text = "\\0\\x07\\t\\x7f\\x9f\\xa0\\r\\r\\nb\\rc\\r"
    assert ok(python, f"print('{text}')") == "\\x00\\x07\t\\x7f\\x9f\xa0\\x0d\r\nb\\x0dc\r\n"
