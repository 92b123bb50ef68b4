import pytest
import torch

from turngym.training.control.chain import chain
from turngym.training.control.control import Control
from turngym.training.methods.entropy.entropy_bonus import entropy_bonus


def test_the_loss_falls_by_the_coefficient_times_the_mean_entropy(toy) -> None:
    plain, _ = toy.learn(Control(name="nothing"), {})
    loss, _ = toy.learn(entropy_bonus(0.3), {})
    assert loss - plain == pytest.approx(
        -0.3 * toy.current(toy.logits).entropy.mean().item(), abs=1e-12
    )


def test_the_gradient_is_that_of_the_softmax_entropy(toy) -> None:
    """∂H/∂z_v = -π_v (log π_v + H), base sheet section 0."""
    _, plain = toy.learn(Control(name="nothing"), {})
    _, gradient = toy.learn(entropy_bonus(0.3), {})
    logp = toy.logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1, keepdim=True)
    expected = 0.3 * logp.exp() * (logp + entropy) / toy.batch.n_slots
    assert torch.allclose(gradient - plain, expected, atol=1e-14)


def test_bonuses_add_up(toy) -> None:
    twice = chain(entropy_bonus(0.1), entropy_bonus(0.2))
    assert toy.learn(twice, twice.init())[0] == pytest.approx(
        toy.learn(entropy_bonus(0.3), {})[0], abs=1e-12
    )


@pytest.mark.parametrize("coef", [-0.1, float("nan"), float("inf")])
def test_a_negative_or_unbounded_coefficient_is_refused(coef) -> None:
    with pytest.raises(ValueError, match=f"entropy-bonus: coef is {coef}; it must be 0 or more"):
        entropy_bonus(coef)
