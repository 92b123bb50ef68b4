"""A method's numbers over seeds, from histories that are written down here."""

import json
import math

import pytest

from turngym.agents.scores import interval
from turngym.training.comparison.plan import Comparison, Trial
from turngym.training.comparison.results import (
    Entropy,
    History,
    Mean,
    MethodResult,
    Spent,
    Validation,
    describe,
    method_results,
)
from turngym.training.config import TrainConfig


def spent(steps, tokens):
    return Spent(steps, tokens, tokens // 10, tokens // 5, steps * 2.0, 0)


def history(*found, entropy=None):
    """A history whose validations are (tokens, success), one a step, of 20 episodes each."""
    valid = tuple(Validation(spent(step, tokens), success, 20) for step, (tokens, success) in enumerate(found))
    return History(valid, valid[-1].spent, entropy or {0: Entropy({1: 0.5, 2: 0.7})})


GRPO = {0: history((0, 0.3), (100, 0.5), (200, 0.6)), 1: history((0, 0.2), (100, 0.8), (220, 0.7))}
EPO = {
    0: history((0, 0.3), (90, 0.65), (210, 0.7)),
    1: history((0, 0.2), (100, 0.4), (190, 0.6)),
    2: history((0, 0.4), (100, 0.9), entropy={0: Entropy({1: 0.4, 2: 0.4}), 3: Entropy({2: 0.1})}),
}


@pytest.fixture
def found(monkeypatch, tmp_path) -> dict[str, MethodResult]:
    """The method_results after three seeds, of which grpo has finished two."""
    histories = {("grpo", seed): one for seed, one in GRPO.items()} | {("epo", seed): one for seed, one in EPO.items()}
    monkeypatch.setattr(Trial, "finished", property(lambda trial: (trial.method, trial.config.seed) in histories))
    monkeypatch.setattr(
        "turngym.training.comparison.results.read_history",
        lambda folder: histories[folder.parent.name, int(folder.name[5:])],
    )
    folder = tmp_path / "grpo" / "seed-2"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1, "refused": "the loss is not finite"}\n{"step": 2, ')
    return method_results(comparison(tmp_path))


def comparison(folder):
    configs = {"grpo": TrainConfig().changed(method="grpo"), "epo": TrainConfig().changed(updates=2)}
    return Comparison(folder, "math-python", configs, (0, 1, 2))


def test_success_is_a_mean_over_the_seeds_that_finished(found):
    assert found["grpo"].success(0) == Mean(0.25, pytest.approx(12.7062 * math.sqrt(0.005 / 2), rel=1e-4), 2)
    assert found["epo"].success(-1).value == pytest.approx((0.7 + 0.6 + 0.9) / 3)
    assert found["epo"].success(-1).n == 3


def test_episodes_of_all_seeds_are_pooled(found):
    assert found["epo"].pooled(-1) == (interval([1.0] * 44 + [0.0] * 16, 60), 44, 60)
    z, n, p = 1.959964, 59, 44 / 60  # Wilson's interval, at the n - 1 that independent tasks are worth
    centre, half = (
        (p + z**2 / 2 / n) / (1 + z**2 / n),
        z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + (z / 2 / n) ** 2),
    )
    pooled = found["epo"].pooled(-1)[0]
    assert (pooled.low, pooled.high) == pytest.approx((centre - half, centre + half), abs=1e-6)


def test_what_lies_ahead_is_pairwise_by_seed(found):
    """Seed 2 has no peer yet."""
    assert found["epo"].ahead == Mean(pytest.approx(0.0), pytest.approx(12.7062 * 0.1, rel=1e-4), 2)
    assert found["grpo"].ahead == Mean(0.0, 0.0, 2)


def test_costs_count_up_to_the_end_and_up_to_the_references_final_success(found):
    assert found["epo"].cost("tokens").value == pytest.approx(500 / 3)
    assert found["epo"].reached == {0: spent(1, 90)} and found["epo"].compared == 2  # seed 1 never came to 0.7
    assert found["epo"].cost_until("tool_calls") == Mean(9.0, None, 1)
    assert found["grpo"].reached == {0: spent(2, 200), 1: spent(1, 100)}
    assert found["grpo"].cost_until("steps").value == 1.5


def test_entropy_is_by_turn_over_the_seeds_that_came_so_far(found):
    assert found["epo"].turns == [0, 3]
    assert found["epo"].entropy(0, "mean").value == pytest.approx((0.6 + 0.6 + 0.4) / 3)
    assert found["epo"].entropy(3, "mean") == Mean(0.1, None, 1)
    assert found["epo"].entropy(3, "variance") is None
    assert found["epo"].entropy(0, "jumps").value == pytest.approx(2 * 0.2**2 / 2 / 3)


def test_an_unfinished_seed_is_counted_and_says_how_far_it_came(found):
    assert found["grpo"].unfinished == {2: "1 steps taken, the last refused: the loss is not finite"}
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
    what = describe(comparison(tmp_path))
    assert what["methods"] == {
        "grpo": {"method": "grpo", "updates": 1},
        "epo": {"method": "grpo,epo", "updates": 2},
    }
    assert what["shared"]["lr"] == TrainConfig().lr and not {"seed", "out", "method"} & set(what["shared"])
    assert (what["seeds"], what["reference"]) == ([0, 1, 2], "grpo")


def test_nothing_finished_is_no_number():
    empty = MethodResult({}, {0: "not begun"}, None, {}, 0)
    assert (empty.success(0), empty.pooled(-1), empty.cost("tokens"), empty.turns) == (None, None, None, [])
    assert json.dumps(empty.to_json(), allow_nan=False)
