from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.methods.base_algorithms.reinforce_pp import reinforce_pp


def reference(batch, gamma, beta):
    """Return the advantages, token by token in NumPy."""
    returns = {}
    rewarded = batch.turns.rewarded[batch.row].tolist()
    gap = (batch.logp_old - batch.logp_ref).tolist()
    for path in range(batch.n_paths):
        slots = [
            slot for slot in range(batch.n_slots) if batch.path[slot] == path and rewarded[slot]
        ]
        total = batch.turns.score[batch.row[slots[-1]]].item() if slots else 0.0
        for last, slot in enumerate(reversed(slots)):
            total = (gamma * total if last else total) - beta * gap[slot]
            returns[slot] = total
    values = np.array(list(returns.values()))
    white = (values - values.mean()) / np.sqrt(values.var(ddof=1) + 1e-8)
    result = np.zeros(batch.n_slots)
    result[list(returns)] = white
    return result


@pytest.mark.parametrize(("gamma", "beta"), [(1.0, 0.0), (0.9, 0.0), (0.8, 0.3)])
def test_advantages_agree_with_the_equations(toy, gamma, beta) -> None:
    ours = advantages(reinforce_pp(gamma=gamma, kl_reward=beta), toy.batch, {})
    assert ours.tolist() == pytest.approx(reference(toy.batch, gamma, beta).tolist(), abs=1e-12)


def test_value_and_gradient_agree_with_the_clipped_term(toy, numeric_gradient) -> None:
    advantage = torch.from_numpy(reference(toy.batch, 0.9, 0.1))

    def loss(at):
        ratio = (toy.current(at).logp - toy.batch.logp_old).exp()
        return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean().item()

    value, gradient = toy.learn(reinforce_pp(gamma=0.9, kl_reward=0.1), {})
    assert value == pytest.approx(loss(toy.logits), abs=1e-12)
    assert torch.allclose(gradient, numeric_gradient(loss, toy.logits), atol=1e-8)


def test_kl_lowers_the_returns_before_a_token_and_not_behind_it(batch_of) -> None:
    batch = batch_of([[3]], logp_old=[-1.0, -1.0, -1.0], logp_ref=[-1.0, -2.0, -1.0])
    first, second, third = advantages(reinforce_pp(kl_reward=0.5), batch, {}).tolist()
    assert first == second < third


@pytest.mark.parametrize("baseline", ["none", "group"])
def test_edge_cases_of_whitening_give_zero(batch_of, baseline) -> None:
    control, failed = reinforce_pp(baseline=baseline), [Outcome.INFRA_ERROR]
    for batch in (
        batch_of([[3], [2]], scores=[0.1, 0.1]),  # no variance
        batch_of([[1]], scores=[5.0]),  # one token
        batch_of([[0], [0]], scores=[1.0, 0.0]),  # none
        batch_of([[2]], scores=[float("nan")], ends=failed),  # all failed
    ):
        assert advantages(control, batch, {}).tolist() == [0] * batch.n_slots


def test_a_group_of_one_keeps_its_score_before_whitening(batch_of) -> None:
    batch = batch_of([[1], [1], [1]], scores=[1, 1, 0], groups=[0, 1, 1])
    centred = np.array([1, 0.5, -0.5])
    expected = (centred - centred.mean()) / centred.std(ddof=1)
    ours = advantages(reinforce_pp(baseline="group"), batch, {}).tolist()
    assert ours == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_reference_is_needed_only_for_its_kl(toy) -> None:
    assert not reinforce_pp().needs.logp_ref
    assert reinforce_pp(kl_reward=0.1).needs.logp_ref
    with pytest.raises(ValueError, match=r"Batch\.logp_ref is None, but kl_reward is set"):
        advantages(reinforce_pp(kl_reward=0.1), replace(toy.batch, logp_ref=None), {})
