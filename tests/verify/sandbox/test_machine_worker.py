"""The visitor of a faked machine follows a refusal to the level that it names."""

import pytest

from turngym.tests.verify.sandbox import machine_worker
from turngym.tools import Status, ToolFailure, ToolResult


@pytest.fixture
def machine(monkeypatch):
    """Make a machine on which the levels of `refused` fail with a message, and programs reach `reached`."""

    def make(refused, reached=""):
        class Tool:
            def __init__(self, level, **limits):
                self.level = level

            def call(self, arguments):
                if self.level in refused:
                    raise ToolFailure(refused[self.level])
                return ToolResult(
                    Status.OK, "42\n" if "6*7" in arguments["code"] else f"{reached}\n"
                )

            def close(self):
                pass

        monkeypatch.setattr(machine_worker, "PythonTool", Tool)
        monkeypatch.setattr(machine_worker.time, "sleep", lambda seconds: None)
        return machine_worker.report("namespaces", "/secret", 1)

    return make


def test_a_refusal_is_followed_to_the_level_it_names(machine):
    first = "the level namespaces cannot be had: no user namespaces; allow landlock"
    second = "the level landlock cannot be had: no landlock; allow rlimits-only"
    report = machine({"namespaces": first, "landlock": second}, reached="reads connects")
    assert (
        report["level"] == "rlimits-only"
        and len(report["refusals"]) == 2
        and report["reached"] == ""
    )


def test_of_several_levels_that_a_refusal_names_the_strongest_is_taken(machine):
    assert (
        machine({"namespaces": "no namespaces; allow rlimits-only or landlock"})["level"]
        == "landlock"
    )


@pytest.mark.parametrize("refused", [{}, {"namespaces": "namespaces: no; allow landlock"}])
def test_a_level_that_does_not_keep_what_it_promises_is_told(machine, refused):
    assert machine(refused, reached="reads connects")["reached"] == "reads and connects"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("no user namespaces", "does not name the level"),
        ("namespaces cannot be had", "names no weaker level"),
    ],
)
def test_a_refusal_that_does_not_help_is_told(machine, message, problem):
    assert problem in machine({"namespaces": message})["error"]
