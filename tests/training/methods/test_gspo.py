import pytest
import torch

from turngym.training.control.chain import chain
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.surrogate.gspo import gspo

ADVANTAGE = {
    0: 0.5,
    1: -0.5,
    2: -0.25,
    3: 0.25,
    4: 0.0,
}  # of the toy's paths, less the mean of the group


def sequence_loss(toy, at, low, high):
    """Return the loss with the ratio of whole paths (Eqs. 5 to 7), whose gradient the token form has, too."""
    gap, path = toy.current(at).logp - toy.batch.logp_old, toy.batch.path
    total = 0.0
    for one, a in ADVANTAGE.items():
        s = gap[path == one].mean().exp().item()
        total += max(-a * s, -a * min(max(s, 1 - low), 1 + high))
    return total / toy.batch.n_paths


@pytest.mark.parametrize(("low", "high"), [(0.03, 0.01), (0.3, 0.4), (2.0, float("inf"))])
def test_value_and_gradient_agree_with_the_equations(toy, numeric_gradient, low, high) -> None:
    control = chain(METHODS["grpo"](normalize="none"), gspo(clip_low=low, clip_high=high))
    loss, gradient = toy.learn(control, [{}, {}])
    assert loss == pytest.approx(sequence_loss(toy, toy.logits, low, high), abs=1e-12)
    expected = numeric_gradient(lambda at: sequence_loss(toy, at, low, high), toy.logits)
    assert torch.allclose(gradient, expected, atol=1e-8)


def test_a_path_is_held_or_free_as_a_whole(toy) -> None:
    control = chain(METHODS["grpo"](normalize="none"), gspo(clip_low=0.03, clip_high=0.01))
    moved = toy.learn(control, [{}, {}])[1].abs().sum(-1) > 0
    by_path = [moved[toy.batch.path == path] for path in range(4)]
    assert all(part.all() or not part.any() for part in by_path)
    assert [bool(part.all()) for part in by_path] == [True, True, False, False]


def test_it_always_averages_by_path_and_a_path_without_tokens_is_not_counted(batch_of) -> None:
    for paths in ([[3], [2]], [[3], [0], [2]]):
        batch = batch_of(paths)
        terms = gspo().shape(
            start_terms(torch.ones_like(batch.logp_old)), batch, Now.at_start(batch), {}
        )
        assert terms.scale.tolist() == pytest.approx([5 / 6] * 3 + [5 / 4] * 2)
    assert gspo().sets == {"clip", "surrogate", "aggregation"}
