"""Bi-level GAE: the worked example of agentic.md, section J3, its edge cases, and the equations once more in NumPy."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.control.control import Control, advantages
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods.advantage.bilevel_gae import (
    bilevel_advantage,
    bilevel_gae,
    turn_ends,
    turn_reward,
)
from turngym.training.methods.base_algorithms.ppo import ppo, value_head

VALUES = [0.3, 0.4, 0.5, 0.6, 0.7]
SHEET = partial(bilevel_advantage, 1.0, 1.0, 0.95)


def paying(batch, reward):
    return replace(
        batch, turns=replace(batch.turns, reward=torch.tensor(reward, dtype=torch.float64))
    )


@pytest.fixture
def example(batch_of):
    """The row of the sheet: turns of three and two tokens, with an observation in between, that earn 0.1 and 1."""
    return paying(batch_of([[3, 2]], value=VALUES, scores=[1.1]), [0.1, 1.0])


def test_sheet_section_j3_returns_of_turns(example) -> None:
    _, ends = turn_ends(example)
    returns = SHEET(example) + example.extras["value"]
    assert ends.tolist() == [2, 4]
    assert returns[ends].tolist() == pytest.approx([1.05, 1.0], abs=1e-6)


def test_a_turn_that_earns_nothing_ends_all_the_same(batch_of) -> None:
    batch = paying(batch_of([[2, 2]], value=[0.5, 0.5, 0.5, 0.5], scores=[0.0]), [0.0, 0.0])
    turn = 0.0 + 0.95 * 0.5 - 0.5 + 0.95 * (0.0 - 0.5)  # A_e of the first turn
    assert SHEET(batch).tolist() == pytest.approx([turn, turn, -0.5, -0.5], abs=1e-12)


def test_nothing_flows_back_over_a_turn_but_through_its_return(example) -> None:
    later = replace(
        example, extras={"value": torch.tensor([0.3, 0.4, 0.5, 9.0, 0.7], dtype=torch.float64)}
    )
    assert SHEET(later)[:3].tolist() == SHEET(example)[:3].tolist()
    discounted = bilevel_advantage(1.0, 1.0, 0.0, example)  # turns apart
    assert discounted.tolist() == pytest.approx([-0.2, -0.3, -0.4, 0.4, 0.3], abs=1e-12)


def test_of_a_single_turn_it_is_gae_in_it(batch_of) -> None:
    batch = paying(batch_of([[3]], value=[0.5, 0.4, 0.6], scores=[1.0]), [1.0])
    ours = bilevel_advantage(1.0, 0.95, 0.5, batch)
    assert ours.tolist() == pytest.approx([0.451, 0.58, 0.4], abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "reward", "expected"),
    [
        ([1, 0, 1], [0.1, 0.2, 0.4], [0.3, 0.4]),
        ([1, 1, 0, 0], [0.1, 0.2, 0.4, 0.8], [0.1, 1.4]),
        ([0, 1, 1], [0.1, 0.2, 0.4], [0.3, 0.4]),
        ([0, 1, 0], [0.1, 0.2, 0.4], [0.7]),
    ],
)
def test_turns_without_a_token_leave_their_reward_to_a_neighbour(
    batch_of, tokens, reward, expected
) -> None:
    around = [[1], tokens, [0], [1]]  # paths before and behind, one of them without any token
    score = sum(reward)
    batch = paying(batch_of(around, scores=[5.0, score, 9.0, 7.0]), [5.0, *reward, 9.0, 7.0])
    found = turn_reward(batch, turn_ends(batch)[0])
    assert found.tolist() == pytest.approx([5.0, *expected, 7.0], abs=1e-12)


def test_what_the_score_holds_beyond_the_rewards_is_paid_with_the_last_turn(batch_of) -> None:
    batch = paying(batch_of([[1, 1]], scores=[2.0]), [0.5, 1.0])
    assert turn_reward(batch, turn_ends(batch)[0]).tolist() == [0.5, 1.5]


def test_failed_paths_have_no_part_in_mean_and_value_loss(batch_of) -> None:
    ends = [Outcome.DONE, Outcome.INFRA_ERROR]
    options = {"value": [0.1, 0.2, 0.7, 0.9], "scores": [1.0, float("nan")], "ends": ends}
    batch = paying(batch_of([[2], [1, 1]], **options), [1.0, 3.0, 4.0])
    alone = paying(batch_of([[2]], value=[0.1, 0.2], scores=[1.0]), [1.0])
    control = bilevel_gae()
    credit = advantages(control, batch, {})
    assert credit.tolist() == [*advantages(control, alone, {}).tolist(), 0.0, 0.0]
    (penalty,) = control.shape(start_terms(credit), batch, Now.at_start(batch), {}).penalties
    assert penalty.coef.tolist() == [0.125, 0.125, 0.0, 0.0]
    assert torch.isfinite(penalty.value(Now.at_start(batch), batch, start_terms(credit))).all()


def test_a_token_that_paths_share_has_an_advantage_on_each(batch_of) -> None:
    batch = paying(
        batch_of([[1, 1], [1, 1]], value=[0.5, 0.1, 0.5, 0.2], scores=[1.0, 0.0]),
        [0.0, 1.0, 0.0, 0.0],
    )
    shared = replace(
        batch, token=torch.tensor([0, 1, 0, 2]), share=torch.tensor([0.5, 1.0, 0.5, 1.0]).double()
    )
    ours = SHEET(shared)
    assert ours.tolist() == SHEET(batch).tolist()
    assert ours[0] != ours[2]


def reference(toy, logits, gamma, lam, gamma_turn, clip):
    """Return the raw advantages and the value loss by the equations, token by token in NumPy."""
    path, turn = toy.batch.path.numpy(), toy.batch.turn.numpy()
    old, value = toy.batch.extras["value"].numpy(), logits.numpy().mean(-1)
    score = toy.batch.turns.score[toy.batch.row].numpy()
    advantage = np.zeros(len(path))
    for j in range(4):  # the fifth path has failed
        slots = np.flatnonzero(path == j)
        after, carry, worth = 0.0, 0.0, score[slots[-1]]
        for t in reversed(range(turn[slots].max() + 1)):
            mine = slots[turn[slots] == t]
            end = mine[-1]
            delta = worth + gamma_turn * after - old[end]
            carry = delta + gamma_turn * lam * carry
            future, tail, paid = 0.0, 0.0, carry + old[end]
            for slot in reversed(mine):
                tail = paid + gamma * future - old[slot] + gamma * lam * tail
                advantage[slot] = tail
                future, paid = old[slot], 0.0
            after, worth = old[end], 0.0
    returns = old + advantage
    held = old + np.clip(value - old, -clip, clip)
    error = np.maximum((value - returns) ** 2, (held - returns) ** 2)[path < 4]
    return advantage, 0.5 * error.sum() / len(path)


SETTINGS = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7}


def test_advantages_agree_with_the_equations(toy) -> None:
    raw, _ = reference(toy, toy.logits, **SETTINGS, clip=0.1)
    kept = toy.batch.path.numpy() < 4
    assert bilevel_advantage(0.9, 0.8, 0.7, toy.batch)[kept].tolist() == pytest.approx(
        raw[kept].tolist(), abs=1e-12
    )
    whitened = (raw[kept] - raw[kept].mean()) / np.sqrt(raw[kept].var(ddof=1) + 1e-8)
    ours = advantages(bilevel_gae(**SETTINGS), toy.batch, {})
    assert ours.tolist() == pytest.approx([*whitened, *[0.0] * 4], abs=1e-12)


def test_value_loss_and_its_gradient_agree_with_the_equations(toy, numeric_gradient) -> None:
    control = replace(bilevel_gae(**SETTINGS, value_coef=0.7, value_clip=0.1), credit=None)
    plain, plain_gradient = toy.learn(Control(name="nothing"), {})
    loss, gradient = toy.learn(control, {})
    assert loss - plain == pytest.approx(
        0.7 * reference(toy, toy.logits, **SETTINGS, clip=0.1)[1], abs=1e-12
    )
    expected = numeric_gradient(
        lambda at: 0.7 * reference(toy, at, **SETTINGS, clip=0.1)[1], toy.logits
    )
    assert torch.allclose(gradient - plain_gradient, expected, atol=1e-8)
    held = (toy.current(toy.logits).extras["value"] - toy.batch.extras["value"]).abs() > 0.1
    assert 0 < held.sum() < toy.batch.n_slots


def test_its_head_is_that_of_ppo_and_they_do_not_go_together() -> None:
    assert bilevel_gae().needs.modules == {"value": value_head}
    with pytest.raises(ValueError, match="ppo and bilevel-gae both set credit"):
        chain(ppo(), bilevel_gae())
    assert chain(ppo(), bilevel_gae(), ordered=True).needs.modules == {"value": value_head}
