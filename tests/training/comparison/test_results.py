""""""

from __future__ import annotations

import json
import math
from statistics import mean, stdev, variance

import pytest

from turngym.agents.evaluation.scores import interval
from turngym.agents.evaluation.statistics import Estimate, mean_of, t_quantile
from turngym.training.comparison.plan import Comparison, Trial
from turngym.training.comparison.results import (
    Entropy,
    History,
    MethodResult,
    Spent,
    Validation,
    method_results,
    read_history,
)
from turngym.training.runs.config import TrainConfig


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
    step(
        4,
        turns=None,
        paths=0,
        **{"entropy_turn/0": 0.4, "entropy_turn/1": 0.65},
        tokens=50,
        **valid(0.5),
    ),
]


@pytest.fixture
def history(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return read_history(tmp_path)


def test_what_is_spent_adds_up_and_steps_whose_time_is_lost_are_counted(history):
    assert history.spent == Spent(steps=4, tokens=350, tool_calls=20, turns=36, seconds=6.0)


def test_validations_know_what_was_spent_by_then(history):
    assert [
        (found.spent.tokens, found.success, found.episodes) for found in history.validations
    ] == [
        (0, 0.3, 10),
        (200, 0.6, 5),
        (350, 0.5, 10),
    ]
    assert [found.won for found in history.validations] == [3, 3, 5]


@pytest.mark.parametrize(
    ("success", "tokens"), [(0.2, 0), (0.3, 0), (0.5, 200), (0.6, 200), (0.61, None)]
)
def test_a_success_is_reached_at_the_first_validation_that_shows_it(history, success, tokens):
    spent = history.reached(success)
    assert (spent and spent.tokens) == tokens or (spent is None and tokens is None)


def test_entropy_is_told_by_turn_over_the_steps_that_came_so_far(history):
    assert list(history.entropy) == [0, 1]
    first, second = history.entropy.values()
    assert first.values == {1: 0.5, 2: 0.7, 3: 0.6, 4: 0.4} and second.values == {
        1: 0.25,
        3: 0.45,
        4: 0.65,
    }
    assert first.mean == pytest.approx(0.55) and first.variance == pytest.approx(
        variance([0.5, 0.7, 0.6, 0.4])
    )
    assert first.jumps == pytest.approx((0.2**2 + 0.1**2 + 0.2**2) / 3 / 2)
    assert second.jumps == pytest.approx(0.2**2 / 2)  # steps 1 and 3 do not follow each other


def test_a_trend_is_in_the_variance_and_not_in_the_jumps():
    """Of noise alone both are its variance."""
    trend = Entropy({step: 0.01 * step for step in range(101)})
    assert trend.variance == pytest.approx(1e-4 * 101 * 102 / 12) and trend.jumps == pytest.approx(
        5e-5
    )
    wave = Entropy({step: math.sin(2.399963 * step**2) for step in range(2000)})
    assert wave.jumps == pytest.approx(wave.variance, rel=0.1)


def test_one_step_has_no_variance():
    assert (
        Entropy({3: 0.5}).variance,
        Entropy({3: 0.5}).jumps,
        Entropy({3: 0.5, 5: 0.6}).jumps,
    ) == (None, None, None)


def spent(steps, tokens):
    return Spent(steps, tokens, tokens // 10, tokens // 5, steps * 2.0)


def history_of(*found, entropy=None):
    """A history whose validations are (tokens, success), one a step, of 20 episodes each."""
    valid = tuple(
        Validation(spent(step, tokens), success, 20) for step, (tokens, success) in enumerate(found)
    )
    return History(valid, valid[-1].spent, entropy or {0: Entropy({1: 0.5, 2: 0.7})})


GRPO = {
    0: history_of((0, 0.3), (100, 0.5), (200, 0.6)),
    1: history_of((0, 0.2), (100, 0.8), (220, 0.7)),
}
EPO = {
    0: history_of((0, 0.3), (90, 0.65), (210, 0.7)),
    1: history_of((0, 0.2), (100, 0.4), (190, 0.6)),
    2: history_of(
        (0, 0.4), (100, 0.9), entropy={0: Entropy({1: 0.4, 2: 0.4}), 3: Entropy({2: 0.1})}
    ),
}


@pytest.fixture
def found(monkeypatch, tmp_path) -> dict[str, MethodResult]:
    """The method_results after three seeds, of which grpo has finished two."""
    histories = {("grpo", seed): one for seed, one in GRPO.items()} | {
        ("epo", seed): one for seed, one in EPO.items()
    }
    monkeypatch.setattr(
        Trial, "finished", property(lambda trial: (trial.method, trial.config.seed) in histories)
    )
    monkeypatch.setattr(
        "turngym.training.comparison.results.read_history",
        lambda folder: histories[folder.parent.name, int(folder.name[5:])],
    )
    folder = tmp_path / "grpo" / "seed-2"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(
        '{"step": 0}\n{"step": 1, "refused": "the loss is not finite"}\n{"step": 2, '
    )
    return method_results(comparison(tmp_path))


def comparison(folder):
    epo = TrainConfig().changed(method="grpo,epo", updates=2)
    configs = {"grpo": TrainConfig().changed(method="grpo"), "epo": epo}
    return Comparison(folder, "math-python", configs, (0, 1, 2))


def test_success_is_a_mean_over_the_seeds_that_finished(found):
    assert found["grpo"].success(0) == Estimate(
        0.25, pytest.approx(12.7062 * math.sqrt(0.005 / 2), rel=1e-4), 2
    )
    assert found["epo"].success(-1).value == pytest.approx((0.7 + 0.6 + 0.9) / 3)
    assert found["epo"].success(-1).n == 3


def test_episodes_of_all_seeds_are_pooled(found):
    assert found["epo"].pooled(-1) == (interval([1.0] * 44 + [0.0] * 16, 60), 44, 60)
    z, n, p = (
        1.959964,
        59,
        44 / 60,
    )  # Wilson's interval, at the n - 1 that independent tasks are worth
    centre, half = (
        (p + z**2 / 2 / n) / (1 + z**2 / n),
        z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + (z / 2 / n) ** 2),
    )
    pooled = found["epo"].pooled(-1)[0]
    assert (pooled.low, pooled.high) == pytest.approx((centre - half, centre + half), abs=1e-6)


def test_what_lies_ahead_is_pairwise_by_seed(found):
    """Seed 2 has no peer yet."""
    assert found["epo"].ahead == Estimate(
        pytest.approx(0.0), pytest.approx(12.7062 * 0.1, rel=1e-4), 2
    )
    assert found["grpo"].ahead == Estimate(0.0, 0.0, 2)


def test_costs_count_up_to_the_end_and_up_to_the_references_final_success(found):
    assert found["epo"].cost("tokens").value == pytest.approx(500 / 3)
    assert (
        found["epo"].reached == {0: spent(1, 90)} and found["epo"].compared == 2
    )  # seed 1 never came to 0.7
    assert found["epo"].cost_until("tool_calls") == Estimate(9.0, None, 1)
    assert found["grpo"].reached == {0: spent(2, 200), 1: spent(1, 100)}
    assert found["grpo"].cost_until("steps").value == 1.5


def test_entropy_is_by_turn_over_the_seeds_that_came_so_far(found):
    assert found["epo"].turns == [0, 3]
    assert found["epo"].entropy(0, "mean").value == pytest.approx((0.6 + 0.6 + 0.4) / 3)
    assert found["epo"].entropy(3, "mean") == Estimate(0.1, None, 1)
    assert found["epo"].entropy(3, "variance") is None
    assert found["epo"].entropy(0, "jumps").value == pytest.approx(2 * 0.2**2 / 2 / 3)


def test_an_unfinished_seed_is_counted_and_says_how_far_it_came(found):
    assert found["grpo"].unfinished == {
        2: "1 steps taken, the last refused: the loss is not finite"
    }
    assert found["epo"].unfinished == {}
    data = found["grpo"].to_json()
    assert data["finished"] == [0, 1] and list(data["unfinished"]) == ["2"]


def test_all_numbers_are_json_data_with_their_denominators(found):
    data = json.loads(json.dumps(found["epo"].to_json(), allow_nan=False))
    assert data["after"]["pooled"].items() >= {"won": 44, "episodes": 60}.items()
    assert data["until_success_of_reference"].items() >= {"reached": 1, "of": 2}.items()
    assert data["until_success_of_reference"]["tokens"] == {"value": 90.0, "half": None, "n": 1}
    assert [run["spent"]["tokens"] for run in data["runs"].values()] == [210, 190, 100]


def test_what_methods_share_is_told_once(tmp_path):
    what = comparison(tmp_path).described()
    assert what["methods"] == {
        "grpo": {"method": "grpo", "updates": 1},
        "epo": {"method": "grpo,epo", "updates": 2},
    }
    assert what["shared"]["lr"] == TrainConfig().lr and not {"seed", "out", "method"} & set(
        what["shared"]
    )
    assert (what["seeds"], what["reference"]) == ([0, 1, 2], "grpo")


def test_nothing_finished_is_no_number():
    empty = MethodResult({}, {0: "not begun"}, None, {}, 0)
    assert (empty.success(0), empty.pooled(-1), empty.cost("tokens"), empty.turns) == (
        None,
        None,
        None,
        [],
    )
    assert json.dumps(empty.to_json(), allow_nan=False)


TABLE = {
    1: 12.7062,
    2: 4.3027,
    3: 3.1824,
    4: 2.7764,
    5: 2.5706,
    7: 2.3646,
    10: 2.2281,
    29: 2.0452,
    120: 1.9799,
}


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_are_those_of_printed_tables(freedom):
    """Two-sided 95 % points of Student's distribution, as in any textbook."""
    assert t_quantile(freedom) == pytest.approx(TABLE[freedom], abs=5e-5)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.99])
def test_one_and_two_degrees_of_freedom_have_closed_forms(confidence):
    assert t_quantile(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2), rel=1e-9)
    assert t_quantile(2, confidence) == pytest.approx(
        confidence * math.sqrt(2 / (1 - confidence**2)), rel=1e-9
    )


def test_many_degrees_of_freedom_come_to_the_normal_distribution():
    assert t_quantile(100_000) == pytest.approx(1.959964, abs=1e-4)


def test_a_mean_has_the_half_width_of_its_interval():
    values = [0.5, 0.75, 0.7]
    found = mean_of(values)
    assert found == Estimate(
        mean(values), pytest.approx(4.30265273 * stdev(values) / math.sqrt(3)), 3
    )


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert mean_of([0.25]) == Estimate(0.25, None, 1)
    assert mean_of([]) is None
