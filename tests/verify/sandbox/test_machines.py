"""Faked machines: their scripts prove what they take away, and reports are judged."""

import pytest

from turngym.tests.verify.sandbox import machines
from turngym.tests.verify.sandbox.machine_worker import NOT_FAKED
from turngym.tests.verify.sandbox.machines import MACHINES, Machine, judged, machine_row, visit
from turngym.tests.verify.sandbox.surroundings import Surroundings

GOOD = {
    "level": "landlock",
    "answer": "42\n",
    "reached": "",
    "left": "",
    "refusals": ["namespaces: none"],
}


@pytest.fixture(scope="module")
def world():
    with Surroundings(0) as world:
        yield world


def test_a_machine_that_is_not_faked_does_not_count(world, monkeypatch):
    monkeypatch.setattr(machines.os, "getuid", lambda: 1000)
    assert (
        NOT_FAKED
        in visit(Machine("nothing gone", (), "! true || gone", user=True), world, "namespaces")[
            "error"
        ]
    )


def test_a_script_that_fails_does_not_count(world):
    assert "ended with 3" in visit(Machine("broken", (), "exit 3"), world, "namespaces")["error"]


def test_files_that_are_left_are_told(world):
    machine = Machine("leaving", (), "touch \"$TMPDIR/left\"; set -- echo '{}'")
    assert "left" in visit(machine, world, "landlock")["error"]
    world.clear()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"error": "no"}, "no"),
        ({"answer": ""}, "answers ''"),
        ({"reached": "reads"}, "a program reads"),
        ({"left": "1 zombies"}, "1 zombies"),
    ],
)
def test_reports_are_judged(change, problem):
    found = judged({**GOOD, **change})
    assert problem in found and bool(found) == bool(change)


def test_all_machines_are_counted(monkeypatch):
    monkeypatch.setattr(
        machines,
        "visit",
        lambda machine, world, level: {"error": "odd"} if machine.name == "root" else GOOD,
    )
    row = machine_row(0, "namespaces")
    assert (row.held, row.of) == (len(MACHINES) - 1, len(MACHINES)) and row.of >= 8
    assert "root: odd" in row.note and "process 1: landlock" in row.note
