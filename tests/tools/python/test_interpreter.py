import subprocess
import sys

import pytest

from turngym.tools import PythonTool, Status, ToolResult


def test_output_is_what_is_printed_and_the_last_value(python: PythonTool, ok):
    assert ok(python, "print('a')\n1 + 1") == "a\n2\n"
    assert ok(python, "x = 3") == ""
    assert ok(python, "None") == ""
    assert (
        ok(python, "import sys\nprint('out', end='')\nprint('err', file=sys.stderr)\nprint('out')") == "outerr\nout\n"
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
    result = run(python, "import json\n\ntry:\n    inverse(0)\nexcept ZeroDivisionError:\n    json.loads('{')")
    assert result.status is Status.ERROR
    assert result.text.count('File "<python>"') == 3
    assert result.text.count("File ") == 3
    assert 'File "<python>", line 2, in inverse\n    return 1 / x' in result.text
    assert "During handling of the above exception" in result.text
    assert result.text.endswith("(char 1)\n")
    result = run(python, "x = 1\nx = = 2")
    assert result == ToolResult(
        Status.ERROR, '  File "<python>", line 2\n    x = = 2\n        ^\nSyntaxError: invalid syntax\n'
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
def test_leaving_by_exception_keeps_the_session(python: PythonTool, code: str, status: Status, text: str, run, ok):
    ok(python, "x = 7")
    result = run(python, code)
    assert result.status is status
    assert text in result.text
    assert ok(python, "x") == "7\n"


def test_any_characters_may_be_printed(python: PythonTool, ok):
    assert ok(python, "print('π ≈ 3 😀', '\\ud800')") == "π ≈ 3 😀 \\ud800\n"
    assert ok(python, "import os\n_ = os.write(1, bytes([65, 255, 66]))") == "A\ufffdB"
    assert ok(python, "#" * 2**20) == ""


def test_code_finds_nothing_of_the_parent(python: PythonTool, monkeypatch: pytest.MonkeyPatch, ok):
    monkeypatch.setenv("CANARY", "secret")
    environment = ok(python, "import os, sys\nprint(sorted(os.environ))")
    assert "CANARY" not in environment
    assert ok(python, "os.listdir('.'), os.getcwd() == os.environ['HOME']") == "([], True)\n"
    kinds = "{stat.S_IFMT(os.stat(fd).st_mode) for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')}"
    assert ok(python, f"import stat\n{kinds} == {{stat.S_IFSOCK, stat.S_IFIFO}}") == "True\n"
    assert ok(python, "os.getpgrp() == os.getsid(0) == os.getpid()") == "True\n"
    assert ok(python, "{'numpy', 'sympy', 'gymnasium', 'turngym', 'turngym.tools'} & set(sys.modules)") == "set()\n"


def test_numpy_and_sympy_can_be_imported(python: PythonTool, ok):
    assert ok(python, "import numpy as np\nint(np.arange(4).sum())") == "6\n"
    assert ok(python, "import sympy\nx = sympy.Symbol('x')\nsympy.factor(x**2 - 5*x + 6)") == "(x - 3)*(x - 2)\n"


def test_a_fresh_session_gives_the_same_text_for_the_same_code(python: PythonTool, ok):
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd', 'e'}, hash('text'))"
    first = ok(python, code)
    python.reset()
    assert ok(python, code) == first
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
    assert ok(python, "import io, sys\nsys.stdout = sys.stderr = io.StringIO()\nprint('hidden')") == ""
    assert ok(python, "print('back')") == "back\n"
