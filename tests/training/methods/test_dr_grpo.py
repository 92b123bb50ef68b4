import pytest
import torch

from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods.base_algorithms.dr_grpo import dr_grpo
from turngym.training.methods.base_algorithms.grpo import grpo

ADVANTAGE = {0: 0.5, 1: -0.5, 2: -0.25, 3: 0.25, 4: 0.0}  # of the toy's paths, by hand


def scaled(batch, size):
    terms = dr_grpo(size=size).shape(start_terms(batch.logp_old), batch, Now.at_start(batch), {})
    return (terms.scale * torch.tensor([1.0, 2, 3, 4, 6])).sum().item() / batch.n_slots


def test_sheet_example_of_its_aggregation_section_1(batch_of) -> None:
    assert scaled(batch_of([[3], [2]]), 3) == pytest.approx(2.666667, abs=1e-6)


def test_a_path_without_a_token_is_counted(batch_of) -> None:
    assert scaled(batch_of([[3], [0], [2]]), 3) == pytest.approx(16 / 9, abs=1e-6)


def reference(toy, at):
    ratio = (toy.current(at).logp - toy.batch.logp_old).exp().tolist()
    total = 0.0
    for r, path in zip(ratio, toy.batch.path.tolist()):
        total += max(-ADVANTAGE[path] * r, -ADVANTAGE[path] * min(max(r, 0.9), 1.3))
    return total / (toy.batch.n_paths * 7)


def test_value_and_gradient_agree_with_the_equation(toy, numeric_gradient) -> None:
    loss, gradient = toy.learn(dr_grpo(size=7, clip_low=0.1, clip_high=0.3), {})
    assert loss == pytest.approx(reference(toy, toy.logits), abs=1e-12)
    assert torch.allclose(
        gradient, numeric_gradient(lambda at: reference(toy, at), toy.logits), atol=1e-8
    )


def test_it_is_the_preset_of_grpo_that_its_card_names(toy) -> None:
    preset = grpo(normalize="none", aggregation="seq-mean-token-sum-norm", size=7, kl_coef=0.1)
    ours, theirs = toy.learn(dr_grpo(size=7, kl_coef=0.1), {}), toy.learn(preset, {})
    assert ours[0] == theirs[0]
    assert torch.equal(ours[1], theirs[1])
    assert dr_grpo(size=7, kl_coef=0.1).sets == preset.sets
    assert dr_grpo(kl_coef=0.1).needs.logp_ref


def test_the_length_of_a_path_does_not_weigh_its_tokens(batch_of) -> None:
    batch = batch_of([[5], [1]])
    terms = dr_grpo(size=10).shape(start_terms(batch.logp_old), batch, Now.at_start(batch), {})
    assert terms.scale.tolist() == pytest.approx([6 / (2 * 10)] * 6)
