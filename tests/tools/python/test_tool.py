import json
from pathlib import Path

import pytest

import turngym
from turngym.tools import PythonTool, Status, Tool, ToolResult


def test_it_is_a_tool_with_one_string_argument():
    tool = PythonTool(timeout=3)
    assert isinstance(tool, Tool)
    function = tool.schema["function"]
    assert function["name"] == tool.name == "python"
    assert function["parameters"]["required"] == ["code"]
    assert "3 seconds" in function["description"]
    assert tool.call({"code": 3}) == ToolResult(Status.ERROR, "argument 'code' of python is 3; expected a string")
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


def test_a_session_that_is_not_persistent_forgets(run, ok):
    tool = PythonTool(timeout=20.0, persistent=False)
    ok(tool, "x = 1")
    assert run(tool, "x").status is Status.ERROR
    assert "starts afresh" in tool.schema["function"]["description"]


def test_a_timeout_keeps_what_was_printed_and_restarts_the_session(run):
    tool = PythonTool(timeout=0.5)
    result = run(
        tool, "x = 1\nprint('begun', end='')\nwhile True:\n    try:\n        while True: pass\n    except: pass"
    )
    assert result == ToolResult(Status.TIMEOUT, "begun\n[timed out after 0.5 s; the session was restarted]")
    tool.timeout = 20.0
    assert run(tool, "x").status is Status.ERROR
    tool.close()


def test_memory_is_limited(python: PythonTool, run, ok):
    assert ok(python, "b = bytearray(100 * 2**20); len(b)") == "104857600\n"
    result = run(python, "a = bytearray(600 * 2**20)")
    assert result.status is Status.MEMORY
    assert result.text.endswith("MemoryError\n")
    assert ok(python, "len(b)") == "104857600\n"


def test_a_session_filled_to_the_brim_is_replaced_or_recovers(run):
    tool = PythonTool(timeout=20.0, memory_mb=64)
    result = run(tool, "a = []\nwhile True: a.append(bytes(1000))")
    assert result.status in (Status.MEMORY, Status.KILLED)
    result = run(tool, "a = None\nprint(6 * 7)")
    assert result.text == "42\n" or run(tool, "print(6 * 7)").text == "42\n"
    tool.close()


def test_output_is_cut_to_its_head_and_tail(ok):
    tool = PythonTool(timeout=20.0, max_output=100)
    assert ok(tool, "print('a' * 99)") == "a" * 99 + "\n"
    assert ok(tool, "print('é' * 60 + 'b' * 60)") == "é" * 50 + "\n… [21 characters cut] …\n" + "b" * 49 + "\n"
    tool.close()


def test_a_flood_of_output_is_stopped(run, ok):
    tool = PythonTool(timeout=60.0, max_output=64)
    for stream in ("stdout", "stderr"):
        result = run(tool, f"import sys\nfor _ in range(64): sys.{stream}.write('x' * 2**20)")
        assert result.status is Status.OUTPUT
        assert result.text == (
            "x" * 32
            + "\n… [1048512 characters cut] …\n"
            + "x" * 32
            + "\n[stopped after 1048576 bytes of output; the session was restarted]"
        )
    assert ok(tool, "1") == "1\n"
    tool.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os.closerange(3, 64)\nwhile True: pass", "SIGKILL"),
        ("import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'forged!!')\n  except OSError: pass", "SIGKILL"),
    ],
)
def test_a_dead_process_is_told_and_replaced(python: PythonTool, code: str, reason: str, run, ok):
    result = run(python, "print('before')\n" + code)
    assert result.status is Status.KILLED
    assert result.text.startswith("before\n")
    assert result.text.endswith(f"[the process died ({reason}); the session was restarted]")
    assert ok(python, "print(6 * 7)") == "42\n"


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
    twin = PythonTool(timeout=2.0, memory_mb=100, max_output=99, persistent=False).fork()
    assert (twin.timeout, twin.memory_mb, twin.max_output, twin.persistent) == (2.0, 100, 99, False)


def test_recorded_benign_programs_do_what_they_should(ok):
    path = Path(turngym.__file__).parent.parent / "shared" / "corpora" / "hostile_programs.jsonl"
    if not path.exists():
        pytest.skip("../shared/corpora is absent")
    rows = [row for row in map(json.loads, path.read_text().splitlines()) if row["category"] == "ok"]
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
