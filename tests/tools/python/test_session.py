import threading
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status, ToolFailure


def test_a_fork_shares_the_past_and_nothing_after(python: PythonTool, run, ok):
    ok(python, "import os, random\nrandom.seed(5)\nitems = [1]\nopen('note', 'w').write('old')")
    twin = python.fork()
    assert ok(python, "items.append(2); open('note', 'w').write('mine'); items") == "[1, 2]\n"
    assert ok(twin, "items, open('note').read()") == "([1], 'old')\n"
    ok(twin, "items.append(3); open('other', 'w').close()")
    assert ok(python, "items, os.path.exists('other')") == "([1, 2], False)\n"
    assert ok(python, "random.random()") == ok(twin, "random.random()")
    assert run(twin, "os._exit(1)").status is Status.KILLED
    assert ok(python, "items") == "[1, 2]\n"
    twin.close()


def test_a_fork_of_a_fork_outlives_its_origins(python: PythonTool, ok):
    ok(python, "x = 1")
    child = python.fork()
    grandchild = child.fork()
    python.close()
    child.close()
    assert ok(grandchild, "x") == "1\n"
    grandchild.close()


def test_many_threads_use_many_tools_at_once(run):
    results: dict[int, list[str]] = {}

    def play(number: int) -> None:
        tool = PythonTool(timeout=60.0)
        texts = [run(tool, f"x = {number}").text, run(tool, "print(x)").text]
        twin = tool.fork()
        texts += [run(twin, "x += 1; x").text, run(tool, "x").text]
        tool.close()
        twin.close()
        results[number] = texts

    threads = [threading.Thread(target=play, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: ["", f"{n}\n", f"{n + 1}\n", f"{n}\n"] for n in range(8)}


def test_sixty_four_sessions_live_side_by_side(ok):
    tools = [PythonTool(timeout=60.0) for _ in range(64)]
    for number, tool in enumerate(tools):
        ok(tool, f"x = {number}")
    assert [ok(tool, "x") for tool in tools] == [f"{number}\n" for number in range(64)]
    for tool in tools:
        tool.close()


def test_no_process_is_left_when_a_tool_is_closed(python: PythonTool, ok, gone):
    code = "import os, subprocess\nprint(os.getpid(), subprocess.Popen(['sleep', '1000']).pid, os.getcwd())"
    session, helper, directory = ok(python, code).split()
    assert Path(f"/proc/{session}").exists()
    python.close()
    assert gone(helper)
    assert not Path(f"/proc/{session}").exists()
    assert not Path(directory).exists()


def test_a_dropped_tool_leaves_nothing_behind(ok, gone):
    tool = PythonTool(timeout=30.0)
    session, helper = ok(
        tool, "import os, subprocess\nprint(os.getpid(), subprocess.Popen(['sleep', '1000']).pid)"
    ).split()
    del tool
    assert gone(session)
    assert gone(helper)


def test_a_session_whose_process_died_between_calls_is_told(python: PythonTool, run, ok):
    ok(python, "import os, threading\nthreading.Timer(0.05, os._exit, [9]).start()")
    session = python._session
    assert session is not None
    session.sock.settimeout(20.0)
    assert session.sock.recv(1) == b""
    result = run(python, "1")
    assert (result.status, result.text) == (
        Status.KILLED,
        "[the process died (exit code 9); the session was restarted]",
    )


def test_a_session_that_cannot_fork_is_a_failure_of_the_tool(python: PythonTool, ok):
    ok(python, "import os\nos.fork = None")
    with pytest.raises(ToolFailure, match="the Python session cannot be forked"):
        python.fork()
    assert ok(python, "os = 1; os") == "1\n"
