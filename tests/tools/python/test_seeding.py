"""The same code gives the same random numbers, whenever numpy is imported."""

import subprocess
import sys

from turngym.tools.python import seeding

DRAW = "import numpy.random as r\nprint(r.rand(), r.randint(1000))"


def draw(before: str, after: str = "") -> str:
    """What a fresh interpreter draws that loads nothing but the module under test."""
    load = (
        "import importlib.util as u\n"
        f"spec = u.spec_from_file_location('seeding', {seeding.__file__!r})\n"
        "seeding = u.module_from_spec(spec); spec.loader.exec_module(seeding)\n"
    )
    code = f"{load}{before}\nseeding.seed_numpy()\n{after}\n{DRAW}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout


def test_numpy_is_seeded_whether_it_is_there_or_imported_later():
    assert draw("import numpy") == draw("", "import math") == draw("", "import numpy as np")


def test_a_program_that_needs_no_numpy_loads_none():
    code = draw("import sys", "assert not any(name.startswith('numpy') for name in sys.modules)")
    assert code.count("\n") == 1


def test_the_module_is_imported_as_ever():
    lines = "import numpy.random as r\nprint(r.__spec__.name, r.__name__, len(sys.meta_path) == before)"
    out = draw("import sys\nbefore = len(sys.meta_path)", lines)
    assert out.startswith("numpy.random numpy.random True\n")
