"""A pytest plugin for packages that bring environments: the clauses of turngym's contract as tests.

    def test_contract(turngym_clause):
        turngym_clause()

runs every clause on every environment that the package under test declares in the entry-point group `turngym.envs`.
A mark names one instead, with its options; it may be given several times:

    @pytest.mark.turngym_env("mypackage/World-v0", size=3)
    def test_contract(turngym_clause):
        turngym_clause()

The package under test is the one that `pyproject.toml` in pytest's root folder names.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .episodes import Subject

# What a test needs is imported when one needs it: pytest loads this file wherever turngym is installed.

MARK = "turngym_env"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(env_id, **options): the environment that `turngym_clause` checks"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `turngym_clause` one case for each clause of each environment."""
    if "turngym_clause" not in metafunc.fixturenames:
        return
    from .clauses import CLAUSES
    from .episodes import Subject

    marks = metafunc.definition.iter_markers(MARK)
    given = [environment(mark) for mark in marks] or [
        (name, {}) for name in declared(metafunc.config.rootpath)
    ]
    cases = [Subject(env_id, options) for env_id, options in given]
    metafunc.parametrize(
        "turngym_clause",
        [
            pytest.param((clause, case), id=f"{_name(case)}-{clause.name}")
            for case in cases
            for clause in CLAUSES
        ],
        indirect=True,
    )


@pytest.fixture
def turngym_clause(request: pytest.FixtureRequest) -> Callable[[], None]:
    """One clause of turngym's contract for one environment; call it, and the test fails where it is broken."""
    clause, case = request.param

    def hold() -> None:
        __tracebackhide__ = True
        from .clauses import run

        result = run(clause, case)
        if not result.ok:
            what = f"{case.env_id} breaks the clause {result.name} ({result.about})"
            pytest.fail(f"{what}: {result.problem}", pytrace=False)

    return hold


def declared(root: Path) -> list[str]:
    """Return the ids of what the package in `root` declares. Raises pytest.UsageError where that cannot be known."""
    from ...envs.registry import GROUP, entries

    advice = f"mark the test with @pytest.mark.{MARK}(env_id, **options)"
    file = root / "pyproject.toml"
    project = tomllib.loads(file.read_text("utf-8")).get("project", {}) if file.is_file() else {}
    if "name" not in project:
        raise pytest.UsageError(
            f"{file} names no project, so its environments are not known; {advice}"
        )
    name = project["name"]
    same = partial(re.compile(r"[-_.]+").sub, "-")  # names of projects compare so, in any case
    found = [
        one.id
        for one in entries()
        if same(one.package).lower() == same(name).lower() and not one.needs
    ]
    if not found:
        what = f"{name} is installed without entry points of the group {GROUP}"
        raise pytest.UsageError(f"{what}; install it anew, or {advice}")
    return found


def environment(mark: pytest.Mark) -> tuple[str, Mapping[str, Any]]:
    """Return the id and the options that a mark names; raise pytest.UsageError where it does not."""
    if len(mark.args) != 1 or not isinstance(mark.args[0], str):
        raise pytest.UsageError(
            f"the mark {MARK} has the arguments {mark.args}; it takes one id, and options by name"
        )
    return mark.args[0], mark.kwargs


def _name(case: "Subject") -> str:
    options = ", ".join(f"{name}={value!r:.20}" for name, value in case.options.items())
    return f"{case.env_id}({options})" if options else case.env_id
