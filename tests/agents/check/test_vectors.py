import multiprocessing
import os
import time

import pytest

from turngym.agents.check import copies
from turngym.agents.check.episodes import Broken, Case
from turngym.envs import Reply


@pytest.fixture
def vector(problem):
    """What is wrong with vectors of an environment, in both modes; no process is left."""

    def vector(maker):
        found = problem("vector", maker)
        assert multiprocessing.active_children() == []
        return found

    return vector


def test_infos_that_a_vector_cannot_hold_are_seen(world, broken):
    class Mixed(world):
        """Its info has a number where that of another task has text."""

        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(reply.text, reply.reward, reply.stop, info={"mood": "bad" if self.number % 2 else 1})

    problems = broken(Mixed)
    assert set(problems) == {"vector"} and "invalid literal for int()" in problems["vector"]


def test_what_only_a_worker_process_does_is_seen(world, vector):
    class Parental(world):
        def on_step(self, text):
            text = "of a child" if multiprocessing.current_process().daemon else text
            return super().on_step(text)

    assert "is another episode in a vector in async mode: at turn 1" in vector(Parental)


def test_what_raises_in_a_worker_process_is_seen(world, vector):
    class Parental(world):
        def on_step(self, text):
            if multiprocessing.current_process().daemon:
                raise AssertionError("daemonic processes are not allowed to have children")
            return super().on_step(text)

    assert "daemonic processes" in vector(Parental)


def test_what_does_not_answer_is_left_and_ended(world, vector, monkeypatch):
    class Sleeping(world):
        def on_step(self, text):
            if multiprocessing.current_process().daemon:
                time.sleep(600)
            return super().on_step(text)

    monkeypatch.setattr(copies, "SECONDS", 0.5)
    assert vector(Sleeping) == "a vector in async mode did not answer within 0.5 s"


def test_an_observation_over_the_limit_of_the_space_is_seen_in_its_place(world, vector):
    class Capital(world):
        """In the process of the test it keeps to the space."""

        def on_step(self, text):
            reply = super().on_step(text)
            long = os.getpid() != here and not reply.stop
            return Reply("x" * 70_000 if long else reply.text, reply.reward, reply.stop, info=reply.info)

    here = os.getpid()
    assert "does not fit in TextSpace(max_bytes=65536)" in vector(Capital)


def test_a_reset_in_a_vector_that_is_another_is_seen(world, vector):
    class Restless(world):
        """Where an episode is begun again without a seed, a worker process begins another."""

        def on_reset(self, rng, options):
            if self.resets and multiprocessing.current_process().daemon:
                rng.random()
            self.resets += 1
            return super().on_reset(rng, options)

        resets = 0

    assert "in async mode" in vector(Restless)


def test_good_ones_keep_the_clause_in_both_modes(world, quiz, register):
    for maker in (world, quiz):
        case = Case(register(maker), {})
        assert copies.check_vector(case) == f"{max(len(p.actions) for p in case.scenarios[1:3]) + 2} rounds of 2 " + (
            "environments in 2 modes"
        )


def test_options_reach_the_environments_of_a_vector(world, register):
    class Option(world):
        def __init__(self, fine=True):
            super().__init__()
            self.fine = fine

        def on_reset(self, rng, options):
            unlike = not self.fine and multiprocessing.current_process().daemon
            return super().on_reset(rng, options) + ("!" if unlike else "")

    env_id = register(Option)
    copies.check_vector(Case(env_id, {}))
    with pytest.raises(Broken, match="in async mode: at reset"):
        copies.check_vector(Case(env_id, {"fine": False}))
