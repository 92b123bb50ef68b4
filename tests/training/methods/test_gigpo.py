"""GiGPO: the worked example of agentic.md, section J5, its edge cases, and the equations once more in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.loss.credit import paid
from turngym.training.loss.gae import discounted
from turngym.training.methods.advantage.gigpo import gigpo
from turngym.training.methods.base_algorithms.grpo import grpo


def with_turns(batch, *, anchor=None, reward=None):
    turns = batch.turns
    changes = {}
    if anchor is not None:
        changes["anchor"] = torch.tensor(anchor)
    if reward is not None:
        changes["reward"] = torch.tensor(reward, dtype=torch.float64)
    return replace(batch, turns=replace(turns, **changes))


def credit(batch, **options) -> list[float]:
    return advantages(gigpo(**options), batch, {}).tolist()


@pytest.fixture
def example(batch_of):
    """Two paths of the sheet: states s0, s1, s2 and reward 10; states s0, s1, s1 and reward 0; a token a turn."""
    batch = batch_of([[1, 1, 1], [1, 1, 1]], scores=[10.0, 0.0])
    return with_turns(batch, anchor=[0, 1, 2, 0, 1, 1], reward=[0.0, 0.0, 10.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("statistic", ["path", "row"])
def test_sheet_section_j5(example, statistic) -> None:
    episode = credit(example, omega=0.0, statistic=statistic)
    assert episode == pytest.approx([5.0] * 3 + [-5.0] * 3, abs=1e-6)
    both = credit(example, statistic=statistic)
    steps = [total - own for total, own in zip(both, episode)]
    assert steps == pytest.approx([4.5125, 6.333333, 0.0, -4.5125, -3.166667, -3.166667], abs=1e-6)
    assert both == pytest.approx([9.5125, 11.333333, 5.0, -9.5125, -8.166667, -8.166667], abs=1e-6)


def test_sheet_section_j5_returns(example) -> None:
    returns = discounted(paid(example.turns), example.turns.path, 0.95)
    assert returns.tolist() == pytest.approx([9.025, 9.5, 10.0, 0.0, 0.0, 0.0], abs=1e-6)


def test_sheet_section_j5_std_over_rows(example) -> None:
    rows = credit(example, omega=0.0, normalize="std", statistic="row")
    assert rows == pytest.approx([0.912871] * 3 + [-0.912871] * 3, abs=1e-6)
    paths = credit(example, omega=0.0, normalize="std")
    assert paths == pytest.approx([0.707107] * 3 + [-0.707107] * 3, abs=1e-6)


def test_long_paths_weigh_more_by_row_and_not_by_path(batch_of) -> None:
    batch = with_turns(batch_of([[1, 1, 1], [2]], scores=[1.0, 0.0]), anchor=[0, 1, 2, 3])
    assert credit(batch) == pytest.approx([0.5] * 3 + [-0.5] * 2)
    assert credit(batch, statistic="row") == pytest.approx([0.25] * 3 + [-0.75] * 2)


def test_a_turn_alone_with_its_observation_gets_nothing_from_it(example) -> None:
    apart = with_turns(example, anchor=[0, 1, 2, 3, 4, 5])
    for options in ({}, {"normalize": "std"}, {"statistic": "row"}):
        assert credit(apart, **options) == credit(apart, omega=0.0, **options)


def test_a_path_alone_keeps_its_raw_score(batch_of) -> None:
    batch = with_turns(batch_of([[1, 1]], scores=[3.0]), anchor=[0, 1])
    assert credit(batch) == [3.0, 3.0]
    assert credit(batch, normalize="std") == pytest.approx([3.0 / (1 + 1e-6)] * 2)
    assert credit(batch, statistic="row") == [0.0, 0.0]  # two equal votes
    single = batch_of([[2]], scores=[3.0])
    assert credit(single, statistic="row") == [3.0, 3.0]


def test_a_state_seen_twice_by_one_path_compares_it_with_itself(batch_of) -> None:
    batch = with_turns(batch_of([[1, 1]], scores=[1.0]), anchor=[0, 0], reward=[0.0, 1.0])
    assert credit(batch, gamma=0.5) == pytest.approx([1 - 0.25, 1 + 0.25])


def test_equal_observations_of_different_groups_are_not_compared(batch_of) -> None:
    batch = with_turns(
        batch_of([[1], [1], [1], [1]], scores=[1.0, 0.0, 5.0, 5.0], groups=[0, 0, 7, 7]),
        anchor=[4] * 4,
    )
    assert credit(batch) == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_a_turn_without_a_token_earns_for_those_before_it_and_is_compared_with_none(
    batch_of,
) -> None:
    batch = with_turns(
        batch_of([[1, 0], [1, 1], [1, 1]], scores=[1.0, 0.0, 4.0]),
        anchor=[0, 1, 0, 1, 0, 1],
        reward=[0.0, 1.0, 0.0, 0.0, 0.0, 4.0],
    )
    step = [total - own for total, own in zip(credit(batch, gamma=0.5), credit(batch, omega=0.0))]
    first = np.array([0.5, 0.0, 2.0]) - 2.5 / 3
    assert step == pytest.approx([first[0], first[1], -2.0, first[2], 2.0])


def test_failed_paths_leave_both_groups_and_get_zero(batch_of) -> None:
    nan = float("nan")
    ends = [Outcome.DONE, Outcome.INFRA_ERROR, Outcome.DONE]
    batch = with_turns(
        batch_of([[1], [1], [1]], scores=[1.0, nan, 0.0], ends=ends), reward=[1.0, 7.0, 0.0]
    )
    for statistic in ("path", "row"):
        assert credit(batch, statistic=statistic) == pytest.approx([1.0, 0.0, -1.0])
    assert credit(batch_of([[2]], scores=[nan], ends=[Outcome.TOOL_ERROR])) == [0.0, 0.0]


def test_what_the_score_holds_beyond_the_rewards_is_paid_with_the_last_turn(batch_of) -> None:
    batch = with_turns(
        batch_of([[1, 1], [1, 1, 1]], scores=[2.0, 0.3]), reward=[0.5, 1.0, 0.1, 0.1, 0.1]
    )
    assert paid(batch.turns).tolist() == pytest.approx([0.5, 1.5, 0.1, 0.1, 0.1], abs=1e-12)
    narrow = replace(
        batch.turns, score=batch.turns.score.float(), reward=batch.turns.reward.float()
    )
    assert (
        paid(narrow)[2:].tolist() == narrow.reward[2:].tolist()
    )  # rounding of float32 is no reward


def test_without_steps_it_is_grpo(toy) -> None:
    ours = advantages(gigpo(omega=0.0, normalize="std"), toy.batch, {})
    assert torch.equal(ours, advantages(grpo(), toy.batch, {}))


def reference(turns, gamma, omega, spread):
    """Return the advantage of each row by the equations, one vote a path, in NumPy."""
    path, group, anchor = turns.path.numpy(), turns.group.numpy(), turns.anchor.numpy()
    reward, score = turns.reward.numpy(), turns.score.numpy()
    count = len(path)
    returns = [
        sum(gamma ** (k - t) * reward[k] for k in range(t, count) if path[k] == path[t])
        for t in range(count)
    ]

    def relative(value, votes):
        if len(votes) < 2:
            return None
        factor = np.std(votes, ddof=1) + 1e-6 if spread else 1.0
        return (value - np.mean(votes)) / factor

    result = []
    for t in range(count):
        episode = relative(
            score[t], [score[path == p][0] for p in np.unique(path[group == group[t]])]
        )
        step = relative(
            returns[t],
            [returns[k] for k in range(count) if (group[k], anchor[k]) == (group[t], anchor[t])],
        )
        result.append((score[t] if episode is None else episode) + omega * (step or 0.0))
    return result


@pytest.mark.parametrize("spread", [False, True], ids=["none", "std"])
def test_it_agrees_with_the_equations(batch_of, spread) -> None:
    rng = np.random.default_rng(3)
    lengths = [3, 1, 4, 2, 5]
    reward = rng.normal(size=sum(lengths))
    scores = [part.sum() for part in np.split(reward, np.cumsum(lengths)[:-1])]
    batch = batch_of([[1] * length for length in lengths], scores=scores, groups=[0, 0, 0, 1, 1])
    batch = with_turns(batch, anchor=rng.integers(3, size=len(reward)), reward=reward)
    ours = credit(batch, omega=0.6, gamma=0.9, normalize="std" if spread else "none")
    assert ours == pytest.approx(reference(batch.turns, 0.9, 0.6, spread), abs=1e-12)
