from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.training.data.batch import Now
from turngym.training.loss.objective import objective, start_terms
from turngym.training.loss.surrogates import mismatch
from turngym.training.methods.surrogate.tis import tis

INF = float("inf")
ROLL = [-0.3, -2.6, -0.7, -1.2, -2.25]
TOKEN = [1.105171, 3.004166, 1.0, 1.349859, 0.951229]


@pytest.fixture
def example(sheet):
    batch, current, advantage = sheet
    return replace(batch, logp_roll=torch.tensor(ROLL, dtype=torch.float64)), current, advantage


def shaped(batch, advantage=None, **parameters):
    plain = start_terms(torch.ones_like(batch.logp_old) if advantage is None else advantage)
    return tis(**parameters).shape(plain, batch, Now.at_start(batch), {})


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"high": INF}, TOKEN),
        ({}, [1.105171, 2.0, 1.0, 1.349859, 0.951229]),
        ({"level": "sequence"}, [2.0] * 3 + [1.284025] * 2),
        ({"level": "geometric"}, [1.491825] * 3 + [1.133148] * 2),
        ({"low": 1.0, "high": 1.2}, [1.105171, 1.2, 1.0, 1.2, 1.0]),
        ({"outside": "mask", "low": 0.5, "high": 2.0}, [1.105171, 0, 1.0, 1.349859, 0.951229]),
        (
            {"outside": "mask", "by": "geometric", "low": 0.999, "high": 1.2},
            [0, 0, 0, 1.349859, 0.951229],
        ),
        ({"outside": "mask", "level": "sequence"}, [0] * 3 + [1.284025] * 2),
    ],
    ids=[
        "raw",
        "token",
        "sequence",
        "geometric",
        "two-sided",
        "icepop",
        "seq-mask",
        "mask-sequence",
    ],
)
def test_sheet_examples_of_the_weights_section_10(example, parameters, expected) -> None:
    terms = shaped(example[0], **parameters)
    assert terms.weight.tolist() == pytest.approx(expected, abs=1e-6)
    assert terms.scale.tolist() == [1] * 5  # what is masked still counts


def test_sheet_example_of_the_weighted_loss_section_10(example) -> None:
    batch, current, advantage = example
    terms = shaped(batch, advantage)
    assert objective(current, batch, terms, 5).item() == pytest.approx(-0.399662, abs=1e-6)


def test_rejected_tokens_leave_the_token_mean(example) -> None:
    batch, current, advantage = example
    terms = shaped(batch, advantage, outside="reject")
    kept = [0, 2, 3, 4]
    ppo = [-1.105171, -1.2, -0.740818, 0.8, 1.349859]
    expected = np.mean([ppo[slot] * TOKEN[slot] for slot in kept])
    assert objective(current, batch, terms, 5).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("outside", ["mask", "reject"])
@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_with_all_rejected_the_loss_is_zero(example, outside, level) -> None:
    batch, current, advantage = example
    terms = shaped(batch, advantage, outside=outside, level=level, low=50.0, high=60.0)
    assert objective(current, batch, terms, 5).item() == 0
    assert torch.isfinite(terms.scale).all()


def test_normalized_weights_have_mean_one_over_tokens_or_paths(example) -> None:
    batch = example[0]
    assert shaped(batch, normalize=True).weight.mean().item() == pytest.approx(1, abs=1e-12)
    sequence = shaped(batch, level="sequence", normalize=True).weight
    assert (sequence[0] + sequence[3]).item() / 2 == pytest.approx(1, abs=1e-12)
    assert (sequence[0] / sequence[3]).item() == pytest.approx(2 / 1.284025, abs=1e-6)
    nothing = shaped(batch, outside="mask", low=50.0, high=60.0, normalize=True)
    assert nothing.weight.tolist() == [0] * 5


def test_ratios_agree_with_their_definitions_path_by_path(toy) -> None:
    batch = toy.batch
    gap, path = (batch.logp_old - batch.logp_roll).numpy(), batch.path.numpy()
    for level, of in (("sequence", np.sum), ("geometric", np.mean)):
        expected = [np.exp(of(gap[path == one])) for one in path]
        assert mismatch(level, batch).tolist() == pytest.approx(expected, abs=1e-12)
    assert mismatch("token", batch).tolist() == pytest.approx(np.exp(gap).tolist(), abs=1e-12)


def test_value_and_gradient_agree_with_the_equation(toy, numeric_gradient) -> None:
    ratios = np.exp((toy.batch.logp_old - toy.batch.logp_roll).numpy())
    weights = np.minimum(ratios, 1.1) / np.minimum(ratios, 1.1).mean()
    advantage = toy.batch.turns.score[toy.batch.row].nan_to_num(0.0)

    def loss(at):
        r = (toy.current(at).logp - toy.batch.logp_old).exp()
        values = torch.minimum(r * advantage, r.clamp(0.8, 1.2) * advantage)
        return -(torch.from_numpy(weights) * values).mean().item()

    value, gradient = toy.learn(tis(high=1.1, normalize=True), {})
    assert value == pytest.approx(loss(toy.logits), abs=1e-12)
    assert torch.allclose(gradient, numeric_gradient(loss, toy.logits), atol=1e-8)


def test_only_the_policy_term_is_weighted(example) -> None:
    terms = shaped(example[0])
    assert terms.entropy_coef.tolist() == terms.kl_coef.tolist() == [0] * 5
    assert tis().sets == frozenset()


def test_a_far_gap_stays_finite_and_no_slots_are_no_weights(batch_of) -> None:
    far = batch_of([[2], [0]], logp_old=[-1.0, -1.0], logp_roll=[-900.0, -900.0])
    for level in ("token", "sequence", "geometric"):
        weight = shaped(far, level=level, high=INF).weight
        assert weight.tolist() == pytest.approx([np.exp(20.0)] * 2)
    empty = batch_of([[0]])
    for parameters in ({"normalize": True}, {"outside": "reject", "level": "sequence"}):
        assert shaped(empty, **parameters).weight.tolist() == []


def test_where_sampler_and_learner_agree_every_weight_is_one(batch_of) -> None:
    batch = batch_of([[2], [1]], logp_old=[-1.0, -0.5, -2.0])
    for level in ("token", "sequence", "geometric"):
        assert shaped(batch, level=level, normalize=True).weight.tolist() == [1, 1, 1]
