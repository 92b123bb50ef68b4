"""MT-GRPO: the worked example of agentic.md, section J4, its edge cases, and the equations once more in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.methods.advantage.mt_grpo import mt_grpo


def credit(batch, reward, **options) -> list[float]:
    turns = replace(batch.turns, reward=torch.tensor(reward, dtype=torch.float64))
    return advantages(mt_grpo(**options), replace(batch, turns=turns), {}).tolist()


EARNED, OUTCOME = [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]
PAIRS = [value for pair in zip(EARNED, OUTCOME) for value in pair]
TOTAL = [2.0, 1.0, 1.0, 0.0]


def test_sheet_section_j4_around_the_result(batch_of) -> None:
    advantage = credit(batch_of([[2, 1]] * 4, scores=TOTAL), PAIRS)
    assert advantage[0::3] == advantage[1::3]
    assert advantage[0::3] == pytest.approx([1.731751, 0.0, 0.0, -1.731751], abs=1e-6)
    assert advantage[2::3] == pytest.approx([0.865875, 0.865875, -0.865875, -0.865875], abs=1e-6)


def test_sheet_section_j4_turn_advantage_alone(batch_of) -> None:
    batch = batch_of([[1, 1]] * 4, scores=TOTAL)
    turn = np.subtract(credit(batch, PAIRS)[::2], credit(batch, PAIRS, lam=0.0)[::2])
    assert turn.tolist() == pytest.approx([0.865875, -0.865875, 0.865875, -0.865875], abs=1e-6)
    double = np.subtract(credit(batch, PAIRS, lam=2.0)[::2], credit(batch, PAIRS, lam=0.0)[::2])
    assert double.tolist() == pytest.approx((2 * turn).tolist(), abs=1e-12)


def test_more_turns_are_split_at_the_first_result_only(batch_of) -> None:
    three = credit(
        batch_of([[1, 1, 1], [1, 1, 1]], scores=[2.0, 1.0]), [1.0, 0.4, 0.6, 0.0, 1.0, 0.0]
    )
    half = 0.5**0.5 / (0.5**0.5 + 1e-4) * 0.5**0.5
    assert three == pytest.approx([half, 0.0, 0.0, -half, 0.0, 0.0], abs=1e-12)


def test_without_variance_there_is_no_advantage(batch_of) -> None:
    assert credit(batch_of([[1, 1], [1, 1]], scores=[1.5, 1.5]), [0.5, 1.0, 0.5, 1.0]) == [0.0] * 4


def test_a_path_alone_in_its_group_keeps_its_rewards(batch_of) -> None:
    shrink = 1 + 1e-4
    assert credit(batch_of([[1, 1]], scores=[3.0]), [1.0, 2.0]) == pytest.approx(
        [3 / shrink, 2 / shrink]
    )
    assert credit(batch_of([[1]], scores=[3.0]), [3.0]) == pytest.approx([3 / shrink])


def test_the_reward_of_a_path_without_result_is_all_outcome(batch_of) -> None:
    mixed = credit(batch_of([[1, 1], [1]], scores=[1.0, 1.0]), [1.0, 0.0, 1.0])
    turn, outcome = (
        0.5**0.5 / (0.5**0.5 + 1e-4) * 0.5**0.5,
        -(0.5**0.5) / (0.5**0.5 + 1e-4) * 0.5**0.5,
    )
    assert mixed == pytest.approx([outcome + turn, outcome, 0.0], abs=1e-12)


def test_a_first_turn_without_a_token_still_earns(batch_of) -> None:
    advantage = credit(batch_of([[0, 1], [1, 1]], scores=[1.0, 0.0]), [1.0, 0.0, 0.0, 0.0])
    half = 0.5**0.5 / (0.5**0.5 + 1e-4) * 0.5**0.5
    assert advantage == pytest.approx([0.0, -half, 0.0])


def test_failed_paths_leave_the_group_and_get_zero(batch_of) -> None:
    ends = [Outcome.DONE, Outcome.INFRA_ERROR, Outcome.DONE]
    with_failure = batch_of([[1, 1], [1, 1], [1, 1]], scores=[2.0, float("nan"), 0.5], ends=ends)
    advantage = credit(with_failure, [1.0, 1.0, 9.0, 9.0, 0.5, 0.0])
    plain = credit(batch_of([[1, 1], [1, 1]], scores=[2.0, 0.5]), [1.0, 1.0, 0.5, 0.0])
    assert advantage == [*plain[:2], 0.0, 0.0, *plain[2:]]


def test_it_agrees_with_the_equations(batch_of) -> None:
    rng = np.random.default_rng(5)
    lengths, groups = [3, 1, 2, 2, 4, 1], np.array([0, 0, 0, 1, 1, 1])
    reward = rng.normal(size=sum(lengths))
    parts = np.split(reward, np.cumsum(lengths)[:-1])
    score = np.array([part.sum() for part in parts])
    earned = np.array([part[0] if len(part) > 1 else 0.0 for part in parts])

    def standard(values):
        mean = np.array([values[groups == group].mean() for group in groups])
        return (values - mean) / (
            np.array([values[groups == group].std(ddof=1) for group in groups]) + 1e-4
        )

    outcome, turn, total = standard(score - earned), standard(earned), standard(score)
    expected = []
    for path, length in enumerate(lengths):
        first = outcome[path] + 0.7 * turn[path] if length > 1 else total[path]
        expected += [first] + [outcome[path]] * (length - 1)
    batch = batch_of(
        [[1] * length for length in lengths], scores=score.tolist(), groups=groups.tolist()
    )
    assert credit(batch, reward.tolist(), lam=0.7) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_lam_out_of_range_is_named(value) -> None:
    with pytest.raises(ValueError, match=f"mt-grpo: lam is {value}; it must be 0 or more"):
        mt_grpo(lam=value)
