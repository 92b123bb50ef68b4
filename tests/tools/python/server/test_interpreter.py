import subprocess
import sys

import pytest

from turngym.tools import PythonTool, Status, ToolResult


def test_output_is_what_is_printed_and_the_last_value(python: PythonTool, ok):
    assert ok(python, "print('a')\n1 + 1") == "a\n2\n"
    assert ok(python, "x = 3") == ""
    assert ok(python, "None") == ""
    assert (
        ok(python, "import sys\nprint('out', end='')\nprint('err', file=sys.stderr)\nprint('out')")
        == "outerr\nout\n"
    )
    assert ok(python, "__name__, sys.argv, input.__name__") == "('__main__', [''], 'input')\n"


def test_variables_functions_and_imports_persist(python: PythonTool, run, ok):
    ok(python, "import math\ndef f(x):\n    return math.sqrt(x) + y")
    ok(python, "y = 1")
    assert ok(python, "f(16)") == "5.0\n"
    python.reset()
    assert "NameError: name 'f' is not defined" in run(python, "f(16)").text


def test_tracebacks_show_only_the_agents_lines(python: PythonTool, run, ok):
    ok(python, "def inverse(x):\n    return 1 / x\n")
    result = run(
        python,
        "import json\n\ntry:\n    inverse(0)\nexcept ZeroDivisionError:\n    json.loads('{')",
    )
    assert result.status is Status.ERROR
    assert result.text.count('File "<python>"') == 3
    assert result.text.count("File ") == 3
    assert 'File "<python>", line 2, in inverse\n    return 1 / x' in result.text
    assert "During handling of the above exception" in result.text
    assert result.text.endswith("(char 1)\n")
    result = run(python, "x = 1\nx = = 2")
    assert result == ToolResult(
        Status.ERROR,
        '  File "<python>", line 2\n    x = = 2\n        ^\nSyntaxError: invalid syntax\n',
    )
    assert "RecursionError" in run(python, "def f(): f()\nf()").text
    evil = run(python, "class E(Exception):\n    def __str__(self): raise self\nraise E")
    assert (evil.status, "<exception str() failed>" in evil.text) == (Status.ERROR, True)


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("import sys; sys.exit()", Status.OK, ""),
        ("import sys; sys.exit(0)", Status.OK, ""),
        ("import sys; sys.exit(3)", Status.ERROR, "SystemExit: 3\n"),
        ("exit('bye')", Status.ERROR, "SystemExit: bye\n"),
        ("raise KeyboardInterrupt", Status.ERROR, "KeyboardInterrupt"),
        ("input()", Status.ERROR, "EOFError"),
    ],
)
def test_leaving_by_exception_keeps_the_session(
    python: PythonTool, code: str, status: Status, text: str, run, ok
):
    ok(python, "x = 7")
    result = run(python, code)
    assert result.status is status
    assert text in result.text
    assert ok(python, "x") == "7\n"


def test_any_characters_may_be_printed(python: PythonTool, ok):
    assert ok(python, "print('π ≈ 3 😀', '\\ud800')") == "π ≈ 3 😀 \\ud800\n"
    assert ok(python, "import os\n_ = os.write(1, bytes([65, 255, 66]))") == "A\ufffdB"
    assert ok(python, "#" * 2**20) == ""


def test_a_fresh_session_gives_the_same_text_for_the_same_code(
    python: PythonTool, fresh: PythonTool, ok
):
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'}, hash('text'))"
    first = ok(python, code)
    python.reset()
    assert ok(python, code) == ok(fresh, code) == first
    # Not only within one server: a plain interpreter with hash seed 0 agrees.
    plain = subprocess.run(
        [sys.executable, "-c", f"import random; random.seed(0)\n{code}"],
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout == first


def test_streams_that_code_closed_or_replaced_are_back_in_the_next_call(python: PythonTool, ok):
    assert ok(python, "import os\nprint('seen')\nfor fd in (0, 1, 2): os.close(fd)") == "seen\n"
    assert (
        ok(python, "import io, sys\nsys.stdout = sys.stderr = io.StringIO()\nprint('hidden')") == ""
    )
    assert ok(python, "print('back')") == "back\n"


def test_a_call_of_a_session_waits_for_its_threads_and_exit_handlers(python: PythonTool, ok):
    late = "import threading\ngo = threading.Event()\nthreading.Timer(0.05, lambda: print('late')).start()\nprint('soon')"
    assert ok(python, late) == "soon\nlate\n"
    assert (
        ok(python, "import atexit\n_ = atexit.register(print, 'at exit')\nprint('first')")
        == "first\nat exit\n"
    )
    assert ok(python, "print('second')") == "second\n"
    daemon = (
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('not awaited')"
    )
    assert ok(python, daemon) == "not awaited\n"


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("print(1)\n2", Status.OK, "1\n2\n"),
        ("exit()", Status.OK, ""),
        ("exit(False)", Status.OK, ""),
        ("exit(1)", Status.ERROR, ""),
        ("exit(3)", Status.ERROR, "[exit code 3]"),
        ("exit(256)", Status.OK, ""),
        ("exit(-1)", Status.ERROR, "[exit code 255]"),
        ("print('a', end='')\nexit('bye')", Status.ERROR, "abye\n"),
        ("exit(1.5)", Status.ERROR, "1.5\n"),
        ("import os; os._exit(3)", Status.ERROR, "[exit code 3]"),
        ("import os; os._exit(0)", Status.OK, ""),
        ("import os; os._exit(1)", Status.ERROR, ""),
        (
            "import os; print('x', end='', flush=True); os._exit(9)",
            Status.ERROR,
            "x\n[exit code 9]",
        ),
        ("import os; os.abort()", Status.KILLED, "[the process died (SIGABRT)]"),
        ("import os; os.kill(os.getpid(), 9)", Status.KILLED, "[the process died (SIGKILL)]"),
        ("import ctypes; ctypes.string_at(0)", Status.KILLED, "[the process died (SIGSEGV)]"),
        ("import os; os.kill(os.getpid(), 40)", Status.KILLED, "[the process died (signal 40)]"),
    ],
)
def test_the_end_of_the_process_is_the_status_of_a_fresh_program(
    fresh: PythonTool, code: str, status: Status, text: str, run
):
    assert run(fresh, code) == ToolResult(status, text)


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt\n"),
        ("x = = 1", "SyntaxError: invalid syntax\n"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded\n"),
    ],
)
def test_errors_of_a_fresh_program_are_told_by_their_traceback(
    fresh: PythonTool, code: str, last: str, run
):
    result = run(fresh, code)
    assert result.status is Status.ERROR
    assert result.text.endswith(last)
    assert "turngym" not in result.text


ENDINGS = {
    "exit handlers, threads": """
import atexit, threading, time
def say(text): print("said", text)
atexit.register(say, 1)
atexit.register(lambda: print("exit", name))
name = "late"
threading.Timer(0.05, say, ["thread"]).start()
threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
print("end")
""",
    "objects": """
class Noisy:
    def __init__(self, name): self.name = name
    def __del__(self): print("gone", self.name, helper())
def helper(): return word
kept, _first = Noisy("kept"), Noisy("first")
cycle = Noisy("cycle"); cycle.self = cycle
word = "with all its globals"
""",
    "a generator": """
def items():
    try: yield 1
    finally: print("closed")
first = next(i := items())
""",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_fresh_program_ends_as_one_of_cpython_does(fresh: PythonTool, code: str, ok):
    plain = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert plain.count("\n") >= 1
    assert ok(fresh, code) == plain


def test_what_fails_at_the_end_of_a_fresh_program_is_told(fresh: PythonTool, run):
    assert (
        "ZeroDivisionError" in run(fresh, "import atexit\n_ = atexit.register(lambda: 1 / 0)").text
    )
    assert (
        "ZeroDivisionError"
        in run(fresh, "import threading\nthreading.Thread(target=lambda: 1 / 0).start()").text
    )


def test_a_memory_error_that_nobody_catches_is_memory(
    fresh: PythonTool, python: PythonTool, run, ok
):
    for tool in (fresh, python):
        result = run(tool, "raise MemoryError")
        assert result.status is Status.MEMORY
        assert result.text.endswith("MemoryError\n")
        assert ok(tool, "try: bytes(2**40)\nexcept MemoryError: print('caught')") == "caught\n"


def test_a_child_that_comes_to_the_end_of_a_program_ends(
    python: PythonTool, fresh: PythonTool, run, ok
):
    code = "import os\nchild = os.fork()\nif child: status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
    assert ok(python, code) == ""
    assert ok(python, "child > 0, status, os.getpid()") == "(True, 0, 2)\n"
    assert run(python, code + "if child: 1 / 0").status is Status.ERROR
    assert "SystemExit: 4" in run(python, code + "exit(4 if child else 0)").text
    assert run(python, code + "if not child: 1 / 0").status is Status.OK
    assert ok(python, "status") == "1\n"
    assert ok(fresh, code + "if child: print(status)") == "0\n"


def test_nothing_of_a_fresh_program_reaches_the_next(fresh: PythonTool, ok):
    ok(
        fresh,
        "import builtins, json, os\nx = 1\nbuiltins.y = 2\njson.z = 3\nos.environ['w'] = '4'\n_ = os.umask(0)",
    )
    ok(
        fresh,
        "open('f', 'w').close(); open('/tmp/g', 'w').close(); open('/dev/shm/h', 'w').close()",
    )
    seen = "import builtins, json, os\nprint('x' in globals(), hasattr(builtins, 'y'), hasattr(json, 'z'))"
    assert ok(fresh, seen) == "False False False\n"
    assert ok(fresh, "import os\nos.environ.get('w'), oct(os.umask(0))") == "(None, '0o77')\n"
    found = "os.listdir('.'), os.path.exists('/tmp/g'), os.listdir('/dev/shm')"
    assert ok(fresh, f"import os\n{found}") == "([], False, [])\n"


SPOIL = """
import builtins, gc, os, sys, threading
for module in (os, sys, gc, threading, builtins):
    for name in list(vars(module)):
        try: delattr(module, name)
        except BaseException: pass
"""


def test_code_that_spoils_its_interpreter_spoils_no_other(
    python: PythonTool, fresh: PythonTool, run, ok
):
    for tool in (python, fresh):
        run(tool, SPOIL)
        tool.reset()
        assert ok(tool, "print(6 * 7)") == "42\n"
