"""ActFocus: the plausible reading in agentic.md, section J2, which has no worked example of its own."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import PHASES
from turngym.training.control.control import Control
from turngym.training.data.batch import Now
from turngym.training.loss.aggregation import softmax_by
from turngym.training.loss.objective import start_terms
from turngym.training.methods.contrib.actfocus import actfocus, free_energy
from turngym.training.model.chunked_head import token_stats

THINK, CALL, ANSWER = (PHASES.index(name) for name in ("think", "call", "answer"))


def weights(batch, control) -> list[float]:
    terms = start_terms(torch.ones(batch.n_slots, dtype=batch.entropy.dtype))
    return control.shape(terms, batch, Now.at_start(batch), {}).weight.tolist()


def acting(batch, phases):
    return replace(batch, phase=torch.tensor(phases))


@pytest.fixture
def example(batch_of):
    """A turn of a thought and a call of two tokens, and one of a thought and an answer of three."""
    batch = batch_of([[3, 4]], entropy=[9.0, 0.0, np.log(3), 9.0, 0.5, 0.5, 0.5 + np.log(2)])
    return acting(batch, [THINK, CALL, CALL, THINK, ANSWER, ANSWER, ANSWER])


def test_section_j2_weights_by_entropy(example) -> None:
    assert weights(example, actfocus()) == pytest.approx(
        [0.5, 0.5, 1.5, 0.5, 0.75, 0.75, 1.5], abs=1e-12
    )


def test_the_mean_weight_of_a_turns_action_is_one(example) -> None:
    for tau in (0.1, 1.0, 30.0):
        found = weights(example, actfocus(tau=tau))
        assert sum(found[1:3]) == pytest.approx(2.0)
        assert sum(found[4:]) == pytest.approx(3.0)


def test_a_turn_without_action_has_the_weight_of_thought_throughout(batch_of) -> None:
    batch = acting(batch_of([[2, 1]], entropy=[0.1, 0.9, 0.5]), [THINK, THINK, CALL])
    assert weights(batch, actfocus(thought=0.2)) == [0.2, 0.2, 1.0]
    assert weights(acting(batch, [THINK] * 3), actfocus(thought=0.2)) == [0.2] * 3


def test_a_turn_of_action_alone_has_no_thought_to_weaken(batch_of) -> None:
    batch = acting(batch_of([[2]], entropy=[0.3, 0.3]), [CALL, CALL])
    assert weights(batch, actfocus(thought=0.0)) == [1.0, 1.0]


def test_even_shares_are_exactly_one(batch_of) -> None:
    batch = acting(batch_of([[49]], entropy=np.linspace(0, 3, 49).tolist()), [CALL] * 49)
    assert weights(batch, actfocus(tau=inf)) == [1.0] * 49


def test_a_small_tau_gives_all_to_the_most_uncertain_token_and_stays_finite(batch_of) -> None:
    batch = acting(batch_of([[3]], entropy=[0.0, 50.0, 40.0]), [CALL] * 3)
    assert weights(batch, actfocus(tau=1e-3)) == [0.0, 3.0, 0.0]


def test_the_denominator_of_the_loss_stays(example) -> None:
    control = actfocus(thought=0.0)
    terms = control.shape(start_terms(torch.ones(7).double()), example, Now.at_start(example), {})
    assert terms.scale.tolist() == [1.0] * 7


def test_by_free_energy(example) -> None:
    control = actfocus(energy="free")
    energy = torch.tensor([0.0, 1.0, 1.0 + np.log(3), 0.0, -2.0, -2.0, -2.0], dtype=torch.float64)
    batch = replace(example, extras=dict.fromkeys(control.needs.functionals, energy))
    assert weights(batch, control) == pytest.approx([0.5, 0.5, 1.5, 0.5, 1.0, 1.0, 1.0], abs=1e-12)
    assert not actfocus().needs.functionals


def test_the_head_computes_free_energy() -> None:
    logits, token = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.arange(4)
    needed = actfocus(energy="free").needs.functionals
    _, _, extras = token_stats(logits, lambda hidden: hidden, token, torch.ones(4), 6, needed)
    expected = -np.log(np.exp(logits.numpy().astype(float)).sum(-1))
    assert extras["free-energy"].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    peaked = free_energy(torch.tensor([[9.0, 0.0], [0.0, 0.0]]), token[:2], None)
    assert peaked[0] < peaked[1]


def test_focus_is_a_softmax_within_each_turn() -> None:
    level, turn = torch.tensor([0.3, 1.0, -2.0, 0.1, 0.2]).double(), torch.tensor([7, 2, 7, 2, 7])
    found = softmax_by(turn, level)
    for label in (2, 7):
        mine = turn == label
        assert torch.allclose(found[mine], mine.sum() * level[mine].softmax(0), atol=1e-12)


def test_the_gradient_is_that_of_the_weighted_policy_term(toy, numeric_gradient) -> None:
    phases = torch.arange(toy.batch.n_slots) % 3
    toy.batch = replace(toy.batch, phase=phases)
    entropy, row = toy.batch.entropy.numpy(), toy.batch.row.numpy()
    act = phases.numpy() != THINK
    weight = np.full(len(row), 0.3)
    for slot in np.flatnonzero(act):
        mine = act & (row == row[slot])
        weight[slot] = mine.sum() * np.exp(entropy[slot] / 0.5) / np.exp(entropy[mine] / 0.5).sum()
    score = toy.batch.turns.score[toy.batch.row].nan_to_num(0.0).numpy()

    def loss(logits) -> float:
        ratio = np.exp((toy.current(logits).logp - toy.batch.logp_old).numpy())
        return -(weight * np.minimum(ratio * score, ratio.clip(0.8, 1.2) * score)).mean()

    found, gradient = toy.learn(actfocus(thought=0.3, tau=0.5), {})
    assert found == pytest.approx(loss(toy.logits), abs=1e-12)
    assert torch.allclose(gradient, numeric_gradient(loss, toy.logits), atol=1e-8)
    assert found != toy.learn(Control(name="nothing"), {})[0]
