import json
import math
from statistics import variance

import pytest

from turngym.training.comparison.results import Entropy, Spent, read_history


def step(number, **values):
    common = {"tokens": 100, "tool_calls": 5, "turns": 1.5, "paths": 8, "seconds": 2.0}
    return {"step": number, **common, **values}


def valid(success, episodes=10):
    return {"valid/success": success, "valid/episodes": episodes}


LINES = [
    {"step": 0, **valid(0.3)},
    step(1, **{"entropy_turn/0": 0.5, "entropy_turn/1": 0.25}),
    step(2, **{"entropy_turn/0": 0.7}, seconds=None, **valid(0.6, 5)),
    step(3, **{"entropy_turn/0": 0.6, "entropy_turn/1": 0.45, "entropy_turn/2": None}),
    step(4, turns=None, paths=0, **{"entropy_turn/0": 0.4, "entropy_turn/1": 0.65}, tokens=50, **valid(0.5)),
]


@pytest.fixture
def history(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return read_history(tmp_path)


def test_what_is_spent_adds_up_and_steps_whose_time_is_lost_are_counted(history):
    assert history.spent == Spent(steps=4, tokens=350, tool_calls=20, turns=36, seconds=6.0, untimed=1)


def test_validations_know_what_was_spent_by_then(history):
    assert [(found.spent.tokens, found.success, found.episodes) for found in history.validations] == [
        (0, 0.3, 10),
        (200, 0.6, 5),
        (350, 0.5, 10),
    ]
    assert [found.won for found in history.validations] == [3, 3, 5]


@pytest.mark.parametrize(("success", "tokens"), [(0.2, 0), (0.3, 0), (0.5, 200), (0.6, 200), (0.61, None)])
def test_a_success_is_reached_at_the_first_validation_that_shows_it(history, success, tokens):
    spent = history.reached(success)
    assert (spent and spent.tokens) == tokens or (spent is None and tokens is None)


def test_entropy_is_told_by_turn_over_the_steps_that_came_so_far(history):
    assert list(history.entropy) == [0, 1]
    first, second = history.entropy.values()
    assert first.values == {1: 0.5, 2: 0.7, 3: 0.6, 4: 0.4} and second.values == {1: 0.25, 3: 0.45, 4: 0.65}
    assert first.mean == pytest.approx(0.55) and first.variance == pytest.approx(variance([0.5, 0.7, 0.6, 0.4]))
    assert first.jumps == pytest.approx((0.2**2 + 0.1**2 + 0.2**2) / 3 / 2)
    assert second.jumps == pytest.approx(0.2**2 / 2)  # steps 1 and 3 do not follow each other


def test_a_trend_is_in_the_variance_and_not_in_the_jumps():
    """Of noise alone both are its variance."""
    trend = Entropy({step: 0.01 * step for step in range(101)})
    assert trend.variance == pytest.approx(1e-4 * 101 * 102 / 12) and trend.jumps == pytest.approx(5e-5)
    wave = Entropy({step: math.sin(2.399963 * step**2) for step in range(2000)})
    assert wave.jumps == pytest.approx(wave.variance, rel=0.1)


def test_one_step_has_no_variance():
    assert (Entropy({3: 0.5}).variance, Entropy({3: 0.5}).jumps, Entropy({3: 0.5, 5: 0.6}).jumps) == (None, None, None)
