"""Names of turngym in tests and benchmarks, imported or written in strings, are names that exist."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import turngym
from turngym.tests.support.pages import names_of

ROOT = Path(turngym.__file__).parent
FILES = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])


def names(path):
    """Return the dotted names of turngym in a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("turngym."):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("turngym.")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"\bturngym(?:\.[A-Za-z_]\w*)+(?![\w/])", node.value))
    return found


def missing(name):
    """Return whether nothing has this name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        module, _, last = name.rpartition(".")
        if ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py").is_file():
            return (error.name or "").partition(".")[0] != "openenv"
        return (error.name or "").partition(".")[0] != "openenv" or last not in names_of(module)
    return False


def test_every_name_exists():
    found = {str(path.relative_to(ROOT)): names(path) for path in FILES}
    known = {name: not missing(name) for name in set().union(*found.values())}
    stale = {path: sorted(name for name in used if not known[name]) for path, used in found.items()}
    assert {path: used for path, used in stale.items() if used} == {}


def test_a_stale_name_would_be_seen(tmp_path):
    path, stale = (
        tmp_path / "a.py",
        [f"turngym.{name}" for name in ("envs.None_", "house", "envs.core.Lost.call")],
    )
    path.write_text(
        f"from turngym.envs import TextEnv, None_\nimport {stale[1]}\nx = '{stale[2]}'\n"
    )
    assert sorted(name for name in names(path) if missing(name)) == sorted(stale)


@pytest.mark.parametrize("folder", ["verify", "support"])
def test_every_module_can_be_imported(folder):
    for path in (ROOT / "tests" / folder).rglob("*.py"):
        if not path.name.startswith(("test_", "conftest")):
            importlib.import_module(
                ".".join(("turngym", *path.relative_to(ROOT).with_suffix("").parts))
            )
