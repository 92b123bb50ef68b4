"""What is idle, and what is more than that."""

import os
import subprocess

import pytest

from turngym.tests.verify.sandbox import idle, proc
from turngym.tests.verify.sandbox.idle import WARM, Idle
from turngym.tests.verify.sandbox.surroundings import Surroundings


@pytest.fixture(scope="module")
def world():
    with Surroundings(0) as world:
        yield world


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_what_is_kept_ready_is_idle(world, sleeper, monkeypatch):
    monkeypatch.setattr(idle, "STEADY", 0.0)
    calls, known = [], Idle()
    known.warm(calls.append, world)
    assert tuple(calls) == WARM and known.shape == [1]
    assert (
        known.more_processes(known.settle())
        == known.more_descriptors()
        == known.more_files(world)
        == []
    )


def test_what_is_more_than_idle_is_told(world, sleeper, monkeypatch):
    monkeypatch.setattr(idle, "SETTLE", 0.1)
    known, ends = Idle(descriptors=idle.host.descriptors()), os.pipe()
    (world.scratch / "more").touch()
    assert "processes are left: [1]" in known.more_processes(known.settle())[0]
    assert "'pipe': 2" in known.more_descriptors()[0] and "more" in known.more_files(world)[0]
    known.widen(world)
    assert (
        known.more_processes(proc.descendants())
        == known.more_descriptors()
        == known.more_files(world)
        == []
    )
    world.clear()
    for end in ends:
        os.close(end)
