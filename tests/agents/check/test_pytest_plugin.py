import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import turngym
from turngym.agents.check.clauses import CLAUSES
from turngym.agents.check.pytest_plugin import declared, environment
from turngym.envs.registry import ENVS

WORLDS = """
from turngym.envs import Reply, StopReason, TextEnv

class World(TextEnv):
    def __init__(self, size=1000, price=1.0):
        super().__init__()
        self.size, self.price = size, price

    def on_reset(self, rng, options):
        self.number = str(int(rng.integers(self.size)))
        return f"Say {self.number}."

    def on_step(self, text):
        return Reply(text[:99], self.price * (text == self.number), StopReason.ANSWERED)

    def gold(self):
        return [self.number]
"""
CONFTEST = """
import sys

def pytest_collection_finish(session):
    assert "some_worlds" not in sys.modules
    assert "torch" not in sys.modules

def pytest_sessionstart(session):
    assert "turngym.agents.check.clauses" not in sys.modules
"""
TESTS = """
import pytest

def test_contract(turngym_clause):
    turngym_clause()

@pytest.mark.turngym_env("some/World-v0", size=50)
@pytest.mark.turngym_env("some/World-v0", price=0.5)
def test_marked(turngym_clause):
    turngym_clause()
"""
ENTRY_POINTS = """
[turngym.envs]
some/World-v0 = some_worlds:World
some/Gone-v0 = some_worlds.gone:World
"""


@pytest.fixture
def project(tmp_path):
    """A package with environments, as installed, and its tests."""
    files = {
        "installed/some_worlds.py": WORLDS,
        "installed/some_worlds-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: Some_Worlds\nVersion: 1.0\n",
        "installed/some_worlds-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
        "project/pyproject.toml": '[project]\nname = "some.worlds"\n',
        "project/pytest.ini": "[pytest]\nfilterwarnings = error\n",
        "project/conftest.py": CONFTEST,
        "project/test_worlds.py": TESTS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


def pytest_in(project, *args):
    """Run pytest with this plugin alone."""
    plugins = (
        "-p",
        "turngym.agents.check.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", *plugins, *args],
        cwd=project,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(project.parent / "installed"), *sys.path]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


@pytest.mark.slow
def test_a_package_is_checked_by_its_own_tests(project):
    done = pytest_in(project, "-k", "gold or steps")
    found = re.findall(
        r"^(PASSED|FAILED) test_worlds\.py::test_(\w+)\[some/([^]]*)\]", done.stdout, re.M
    )
    assert sorted((test, case, outcome) for outcome, test, case in found) == [
        ("contract", "Gone-v0-gold", "FAILED"),
        ("contract", "Gone-v0-steps", "FAILED"),
        ("contract", "World-v0-gold", "PASSED"),
        ("contract", "World-v0-steps", "PASSED"),
        ("marked", "World-v0(price=0.5)-gold", "FAILED"),
        ("marked", "World-v0(price=0.5)-steps", "PASSED"),
        ("marked", "World-v0(size=50)-gold", "PASSED"),
        ("marked", "World-v0(size=50)-steps", "PASSED"),
    ], done.stdout + done.stderr
    assert f"{4 * (len(CLAUSES) - 2)} deselected" in done.stdout
    assert (
        "some/World-v0 breaks the clause gold (playing the gold earns a total reward of 1): seed 0"
        in done.stdout
    )
    assert (
        "some/Gone-v0 of the package Some_Worlds 'some_worlds.gone:World': there is no module"
        in done.stdout
    )
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("arguments", [(), ("some/World-v0", 50), (3,)])
def test_what_is_wrong_with_a_mark_is_said(arguments):
    mark = pytest.mark.turngym_env(*arguments, size=3).mark
    with pytest.raises(pytest.UsageError) as caught:
        environment(mark)
    assert (
        str(caught.value)
        == f"the mark turngym_env has the arguments {arguments}; it takes one id, and options by name"
    )
    assert environment(pytest.mark.turngym_env("some/World-v0", size=3).mark) == (
        "some/World-v0",
        {"size": 3},
    )


def test_the_package_under_test_is_the_one_in_the_root_folder(tmp_path):
    assert declared(Path(turngym.__file__).parent) == [
        entry.id for entry in ENVS if not entry.needs
    ]
    with pytest.raises(
        pytest.UsageError,
        match=r"pyproject\.toml names no project, .* mark the test with @pytest\.mark\.",
    ):
        declared(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    with pytest.raises(pytest.UsageError, match="names no project"):
        declared(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    with pytest.raises(
        pytest.UsageError,
        match=r"other is installed without entry points of the group turngym\.envs",
    ):
        declared(tmp_path)


def test_the_plugin_is_declared():
    config = tomllib.loads((Path(turngym.__file__).parent / "pyproject.toml").read_text("utf-8"))
    assert config["project"]["entry-points"]["pytest11"] == {
        "turngym": "turngym.agents.check.pytest_plugin"
    }
