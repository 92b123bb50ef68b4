"""`turngym doctor`: what it finds here, and on machines that lack something."""

import builtins
import importlib.util
import tempfile
import tomllib
from pathlib import Path

import pytest

import turngym
from turngym import __main__ as cli
from turngym import __version__
from turngym.agents.check import machine as doctor
from turngym.agents.cli import terminal
from turngym.envs.math.grading.grader import Grade, GraderFailure
from turngym.tools import Status, ToolFailure, ToolResult
from turngym.tools.python import LEVELS, try_levels


@pytest.fixture(autouse=True)
def no_torch(monkeypatch):
    """Whether torch is there is looked at in a test of its own."""
    monkeypatch.setattr(doctor, "_accelerator", lambda: doctor.Finding("accelerator", "", False))


@pytest.fixture
def ask(capsys, monkeypatch):
    monkeypatch.setattr(terminal.console, "width", 240)

    def run():
        with pytest.raises(SystemExit) as left:
            cli.main(["doctor"])
        *lines, last = capsys.readouterr().out.splitlines()
        return left.value.code, {line[1:24].strip(): line[24:].split() for line in lines}, last

    return run


def found():
    return {finding.what: finding for finding in doctor.findings()}


def test_it_says_what_there_is_and_leaves_with_0_where_nothing_is_lacking(ask):
    status, said, last = ask()
    reasons = try_levels()
    assert (
        status
        == (reasons["namespaces"] is not None)
        == (not last.startswith("turngym has all that it needs"))
    )
    assert said["turngym"][0] == __version__
    for level in LEVELS:
        assert said[f"isolation: {level}"][0] == ("yes" if reasons[level] is None else "no")
    assert (
        "default" in said["isolation: namespaces"] and "default" not in said["isolation: landlock"]
    )
    assert {
        said[what][0] for what in ("Python tool", "math-verify", "temporary files", "shared memory")
    } == {"yes"}
    assert "gymnasium" in said["packages"] and "torch" in said["packages of [train]"]


def test_a_default_level_that_cannot_be_had_is_status_1_and_the_tool_is_tried_at_a_weaker_one(
    ask, monkeypatch
):
    reasons = {
        "namespaces": "they are [off] here",
        "landlock": "the kernel is too old",
        "rlimits-only": None,
    }
    monkeypatch.setattr(doctor, "try_levels", lambda: reasons)
    status, said, last = ask()
    assert status == 1 and last.startswith("turngym lacks 1 of what it needs")
    assert " ".join(said["isolation: namespaces"]) == "no they are [off] here; the default"
    assert " ".join(said["Python tool"]).startswith("yes a call at rlimits-only took ")


def test_a_weaker_level_that_cannot_be_had_is_no_fault(monkeypatch):
    monkeypatch.setattr(
        doctor, "try_levels", lambda: {**dict.fromkeys(LEVELS), "landlock": "the kernel is too old"}
    )
    finding = found()["isolation: landlock"]
    assert (finding.works, finding.needed) == (False, False)


def test_no_call_is_tried_where_no_level_can_be_had(monkeypatch):
    monkeypatch.setattr(doctor, "try_levels", lambda: dict.fromkeys(LEVELS, "another system"))
    assert "Python tool" not in found()


def test_a_tool_that_cannot_run_or_gives_something_else_does_not_work(monkeypatch):
    monkeypatch.setattr(doctor.PythonTool, "call", lambda *_: ToolResult(Status.KILLED, "no"))
    tool = found()["Python tool"]
    assert (tool.works, tool.needed) == (False, True) and "gives killed: 'no'" in tool.about

    def fail(*_):
        raise ToolFailure("no session")

    monkeypatch.setattr(doctor.PythonTool, "call", fail)
    tool = found()["Python tool"]
    assert (tool.works, tool.about) == (False, "no session")


def test_a_grader_that_cannot_start_or_compare_does_not_work(monkeypatch):
    monkeypatch.setattr(doctor.MathGrader, "grade", lambda *_, **__: Grade(0.0, "x", "timeout"))
    assert found()["math-verify"].works is False and "timeout" in found()["math-verify"].about

    def fail(*_, **__):
        raise GraderFailure("sympy is broken")

    monkeypatch.setattr(doctor.MathGrader, "grade", fail)
    assert (found()["math-verify"].works, found()["math-verify"].about) == (
        False,
        "sympy is broken",
    )


def test_a_missing_package_is_named_with_what_brings_it(monkeypatch):
    versions = {"gymnasium": "1", "torch": ""}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, "2"))
    monkeypatch.setattr(doctor, "fits", lambda version, bounds: True)
    packages, extra = found()["packages"], found()["packages of [train]"]
    assert (
        packages.works
        and "gymnasium 1" in packages.about
        and (extra.works, extra.needed) == (False, False)
    )
    assert "not installed: torch (pip install 'turngym[train]')" in extra.about
    versions["numpy"] = ""
    assert (found()["packages"].works, found()["packages"].needed) == (False, True)


def test_what_an_extra_adds_is_said_and_which_are_not_there(ask, monkeypatch):
    versions = {"torch": "", "vllm": ""}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, "2"))
    monkeypatch.setattr(doctor, "fits", lambda version, bounds: True)
    _, said, last = ask()
    assert {
        f"packages of [{extra}]"
        for extra in ("train", "gguf", "tasks", "search", "serve", "report", "vllm")
    } <= said.keys()
    assert " ".join(said["packages of [train]"]).startswith(
        "no policies that run here: training, warm-up, "
    )
    assert " ".join(said["packages of [vllm]"]).endswith(
        "not installed: vllm (pip install 'turngym[vllm]')"
    )
    assert last.endswith(", and does without the extras [train], [vllm]")
    versions.clear()
    assert ask()[2].endswith(", and every extra")


def test_every_extra_of_use_is_reported():
    names = tomllib.loads((Path(turngym.__file__).parent / "pyproject.toml").read_text())
    extras = names["project"]["optional-dependencies"].keys()
    assert extras - doctor.EXTRAS.keys() == {"alfworld", "docs", "dev"}  # of who develops turngym


def test_a_place_that_cannot_be_written_to_does_not_work(monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(doctor.multiprocessing, "RawArray", refuse)
    for what in ("temporary files", "shared memory"):
        assert (found()[what].works, found()[what].needed) == (False, True)


def test_torch_is_not_imported_where_it_is_not_installed(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(builtins, "__import__", None)
    assert "not installed" in doctor._accelerator().about
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "find_spec", importlib.util.find_spec)
    assert doctor._accelerator().what == "accelerator" and not doctor._accelerator().needed


@pytest.mark.parametrize(
    ("version", "bounds", "held"),
    [
        ("0.2.1", ">=0.4", False),
        ("0.4", ">=0.4.0", True),
        ("0.4.1.dev3", ">=0.4", True),
        ("2.13.0+cpu", ">=2.11,<2.14", True),
        ("2.14.0", "<2.14,>=2.11", False),
        ("2.9", ">=2.11", False),
        ("5.20", ">=5.16.1,<5.20", False),
        ("13.0.0", "<13", False),
        ("1.0", "", True),
        ("1.0", "!=1.0", True),  # left to pip
    ],
)
def test_a_version_is_compared_with_its_bounds(version, bounds, held):
    assert doctor.fits(version, bounds) == held


def test_a_version_out_of_bounds_does_not_work(monkeypatch):
    version = doctor.metadata.version
    old = {"openenv": "0.2.1", "torch": "2.9.0+cu130"}
    monkeypatch.setattr(doctor.metadata, "version", lambda name: old.get(name) or version(name))
    lines = found()
    for extra, asked in (("openenv", "openenv >=0.4"), ("train", "torch ")):
        line = lines[f"{doctor.EXTRA}[{extra}]"]
        assert (
            line.works is False and f"of another version than turngym takes: {asked}" in line.about
        )
