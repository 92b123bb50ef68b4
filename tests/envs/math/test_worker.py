import subprocess
import sys
from pathlib import Path

from turngym.envs.math import worker
from turngym.tools import process


def ask(**request):
    child = process.Child([sys.executable, "-I", worker.__file__, process.__file__])
    try:
        return child.request(request, 60)
    finally:
        child.close()


def test_it_compares_and_says_why_it_cannot():
    assert ask(gold=r"\frac{\sqrt{8}}{2}", answer=r"\sqrt{2}") == {"equal": True}
    assert ask(gold=r"\sqrt{3}", answer=r"\sqrt{2}") == {"equal": False}


def test_it_needs_nothing_of_the_package():
    code = f"import runpy, sys; runpy.run_path({worker.__file__!r}); print('turngym' in sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert run.stdout == "False\n"
