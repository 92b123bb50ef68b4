import pytest
import torch

from turngym.training.control.chain import chain
from turngym.training.data.batch import Now
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.surrogate.cispo import cispo

ADVANTAGE = (
    [0.5] * 3 + [-0.5] * 3 + [-0.25] * 5 + [0.25] * 4 + [0.0] * 4
)  # of the toy's slots, less the group's mean


@pytest.mark.parametrize(
    ("bounds", "losses", "mean"),
    [
        ({"lo": 0.0, "hi": 2.0}, [0.110517, 1.641007, 0.740818, -0.871416, -2.699718], -0.215758),
    ],
    ids=["trl"],
)
def test_sheet_examples_of_section_9(sheet, bounds, losses, mean) -> None:
    batch, current, advantage = sheet
    terms = cispo(**bounds).shape(start_terms(advantage), batch, Now.at_start(batch), {})
    assert (-terms.surrogate(current, batch, terms)).tolist() == pytest.approx(losses, abs=1e-6)
    assert objective(current, batch, terms, 5).item() == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(("lo", "hi"), [(0.0, 1.2), (0.8, 1.2), (0.9, float("inf"))])
def test_value_and_gradient_agree_with_the_equation(toy, numeric_gradient, lo, hi) -> None:
    frozen = [
        min(max(r, lo), hi)
        for r in (toy.current(toy.logits).logp - toy.batch.logp_old).exp().tolist()
    ]

    def loss(at):
        logp = toy.current(at).logp.tolist()
        return -sum(w * a * own for w, a, own in zip(frozen, ADVANTAGE, logp)) / toy.batch.n_slots

    value, gradient = toy.learn(
        chain(METHODS["grpo"](normalize="none"), cispo(lo=lo, hi=hi)), [{}, {}]
    )
    assert value == pytest.approx(loss(toy.logits), abs=1e-12)
    assert torch.allclose(gradient, numeric_gradient(loss, toy.logits), atol=1e-8)
    assert (
        gradient[:15].abs().sum(-1) > 0
    ).all()  # no token of a path with an advantage is without
