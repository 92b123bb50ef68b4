"""The same code gives the same random numbers, whenever numpy is imported."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import turngym
from turngym.tools import PythonTool, ToolFailure


@pytest.fixture
def warm(descendants, server_pid):
    """`warm()` are the processes of the warm interpreters: those children of the server that have children."""

    def warm() -> set[int]:
        return {pid for pid in descendants(server_pid()) if descendants(pid)}

    return warm


# In two parts, since a program that speaks of a library gets an interpreter that has it.
READY = "import sys\n[name in sys.modules for name in ('num' + 'py', 'sym' + 'py', 'decimal', 'statistics')]"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", [False, False]),
        ("numpy", [True, False]),
        ("sympy", [False, True]),
        ("numpy, sympy", [True, True]),
    ],
)
def test_an_interpreter_has_ready_what_its_program_speaks_of(
    comment: str, expected: list[bool], ok
):
    tool = PythonTool(timeout=30.0)
    assert ok(tool, f"# {comment}\n{READY}") == f"{[*expected, True, True]}\n"
    tool.close()


def test_a_small_interpreter_has_nothing_of_this_package_s_own_imports(python: PythonTool, ok):
    """Each page of memory that a warm interpreter holds is paid for with every fork."""
    names = (
        "('asyncio', 'ssl', '_hashlib', 'importlib.metadata', 'subprocess', 'logging', 'tempfile')"
    )
    assert ok(python, f"import sys\n[name for name in {names} if name in sys.modules]") == "[]\n"


def test_libraries_can_be_imported_and_used(python: PythonTool, fresh: PythonTool, ok):
    assert (
        ok(fresh, "import numpy as np\nprint(int(np.arange(4).sum()), np.random.rand())")
        == "6 0.5488135039273248\n"
    )
    assert (
        ok(fresh, "import sympy\nx = sympy.Symbol('x')\nprint(sympy.factor(x**2 - 5*x + 6))")
        == "(x - 3)*(x - 2)\n"
    )
    # Without having spoken of it before.
    assert ok(python, "x = 1") == ""
    assert ok(python, "import numpy as np\nint(np.linalg.det(np.eye(3)))") == "1\n"


def test_a_worker_has_nothing_of_the_warm_interpreter(python: PythonTool, ok):
    assert (
        ok(python, "import threading\n[thread.name for thread in threading.enumerate()]")
        == "['MainThread']\n"
    )
    assert ok(python, "import os\nos.getcwd(), os.environ['HOME'], sorted(globals())[:3]") == (
        "('/tmp/home', '/tmp/home', ['__builtins__', '__doc__', '__loader__'])\n"
    )
    assert ok(python, "import random; random.random()") == "0.8444218515250481\n"
    assert ok(python, "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [])") == "set()\n"


def test_a_warm_interpreter_that_died_is_replaced(
    python: PythonTool, ok, warm, gone, settled, descendants, server_pid
):
    """As when the machine's memory is used up and the kernel ends the largest process."""
    ok(PythonTool(persistent=False), "1")
    assert settled()
    ok(python, "x = 1")
    assert settled(
        sessions=1
    )  # a boundary that is being made would die, too, and one of its kind stay in the queue
    old, below = warm(), descendants(server_pid())
    assert old
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    assert all(map(gone, below))  # until then the server may end what the next tool has just taken
    with pytest.raises(ToolFailure, match="died"):
        python.call({"code": "x"})
    for _ in range(6):
        tool = PythonTool(timeout=30.0, persistent=False)
        assert ok(tool, "print(6 * 7)") == "42\n"
    assert not old & warm()
    assert ok(python, "6 * 7") == "42\n"
    python.close()
    assert settled()


def test_workers_are_reaped(fresh: PythonTool, ok, run, settled):
    for code in ("1", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"):
        run(fresh, code)
    assert settled()
    for _ in range(20):
        ok(fresh, "import os\nfor _ in range(3):\n    if not os.fork(): os._exit(0)")
    assert settled()


DRAW = "import numpy.random as r\nprint(r.rand(), r.randint(1000))"


def draw(before: str, after: str = "") -> str:
    """What a fresh interpreter draws that seeds numpy, without what the package's root imports."""
    root = str(Path(turngym.__file__).parent)
    bare = f"import sys, types\nroot = sys.modules['turngym'] = types.ModuleType('turngym')\nroot.__path__ = [{root!r}]"
    load = f"{bare}\nfrom turngym.tools.python.server.worker_factory import _seed_numpy\n"
    code = f"{load}{before}\n_seed_numpy()\n{after}\n{DRAW}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    ).stdout


@pytest.mark.slow
def test_numpy_is_seeded_whether_it_is_there_or_imported_later():
    assert draw("import numpy") == draw("", "import math") == draw("", "import numpy as np")


def test_a_program_that_needs_no_numpy_loads_none():
    code = draw("import sys", "assert not any(name.startswith('numpy') for name in sys.modules)")
    assert code.count("\n") == 1


def test_the_module_is_imported_as_ever():
    lines = (
        "import numpy.random as r\nprint(r.__spec__.name, r.__name__, len(sys.meta_path) == before)"
    )
    out = draw("import sys\nbefore = len(sys.meta_path)", lines)
    assert out.startswith("numpy.random numpy.random True\n")
