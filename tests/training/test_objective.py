from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch

from turngym.training.columns import Current, Penalty
from turngym.training.objective import objective, start_terms

ADVANTAGE = (1.5, -0.7, 0.0, 1.0, -1.0, 2.0, -2.0, 0.3, -0.3, 0.5, 1.0, -1.0, 0.8, 0.9, -0.4, 1.1, -1.2, 0.6, 0.2)


def shaped(toy, **columns):
    """Return the toy's terms with mixed advantages and `columns`, all of which vary from slot to slot."""
    slots = toy.batch.n_slots
    terms = start_terms(torch.tensor(ADVANTAGE[:slots], dtype=torch.float64))
    ramp = torch.linspace(0.5, 1.5, slots, dtype=torch.float64)
    return replace(terms, scale=ramp.flip(0), **{name: value * ramp for name, value in columns.items()})


def reference(toy, terms, logits):
    """Return the loss from its equation, in NumPy, slot by slot."""
    column = {name: value.numpy() for name, value in vars(terms).items() if isinstance(value, torch.Tensor)}
    old, ref = toy.batch.logp_old.numpy(), toy.batch.logp_ref.numpy()
    total = 0.0
    for s, row in enumerate(logits.numpy()):
        p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        logp = np.log(p[toy.drawn[s]])
        r, advantage = np.exp(logp - old[s]), column["advantage"][s]
        held = min(max(r, 1 - column["clip_low"][s]), 1 + column["clip_high"][s])
        policy = -column["weight"][s] * min(r * advantage, held * advantage)
        kl = column["kl_coef"][s] * (np.exp(ref[s] - logp) + logp - ref[s] - 1)
        bonus = column["entropy_coef"][s] * (p * np.log(p)).sum()
        total += column["scale"][s] * (policy + kl + bonus)
    return total / len(old)


@pytest.mark.parametrize(
    "columns",
    [
        {"weight": 1.0},
        {"weight": 0.0, "kl_coef": 0.4},
        {"weight": 0.0, "entropy_coef": 0.3},
        {"weight": 1.0, "kl_coef": 0.4, "entropy_coef": 0.3},
    ],
    ids=["policy", "kl", "entropy", "all"],
)
def test_value_and_gradient_of_each_term_agree_with_the_equation(toy, numeric_gradient, columns) -> None:
    terms = shaped(toy, **columns)
    logits = toy.logits.clone().requires_grad_()
    loss = objective(toy.current(logits), toy.batch, terms, toy.batch.n_slots)
    loss.backward()
    assert loss.item() == pytest.approx(reference(toy, terms, toy.logits), abs=1e-12)
    expected = numeric_gradient(lambda at: reference(toy, terms, at), toy.logits)
    assert torch.allclose(logits.grad, expected, atol=1e-8)
    assert logits.grad.abs().max() > 1e-3


def test_sheet_example_of_token_mean_loss(sheet) -> None:
    batch, current, advantage = sheet
    assert objective(current, batch, start_terms(advantage), 5).item() == pytest.approx(-0.179226, abs=1e-6)


def test_sheet_example_of_seq_mean_token_mean_loss(sheet) -> None:
    batch, current, advantage = sheet
    scale = torch.tensor([5 / 6] * 3 + [5 / 4] * 2, dtype=torch.float64)
    terms = replace(start_terms(advantage), scale=scale)
    assert objective(current, batch, terms, 5).item() == pytest.approx(0.0298, abs=1e-6)


def test_the_mask_is_applied_by_packing_alone(toy) -> None:
    """A padded tensor with garbage on masked positions, masked by the textbook formula, gives the packed loss."""
    terms = shaped(toy, weight=1.0, kl_coef=0.4, entropy_coef=0.3)
    current, batch = toy.current(toy.logits), toy.batch
    mask = torch.zeros(batch.n_paths, 9, dtype=torch.bool)
    for path in range(batch.n_paths):
        mask[path, path % 3 : path % 3 + int((batch.path == path).sum())] = True

    def padded(column):
        full = torch.full(mask.shape, 777.0, dtype=torch.float64)
        full[mask] = column
        return full

    logp, ref, a = padded(current.logp), padded(batch.logp_ref), padded(terms.advantage)
    r = torch.exp((logp - padded(batch.logp_old)).clamp(-20, 20))
    held = r.clamp(1 - padded(terms.clip_low), 1 + padded(terms.clip_high))
    loss = -padded(terms.weight) * torch.minimum(r * a, held * a)
    loss = loss + padded(terms.kl_coef) * (torch.exp(ref - logp) + logp - ref - 1)
    loss = padded(terms.scale) * (loss - padded(terms.entropy_coef) * padded(current.entropy))
    expected = torch.where(mask, loss, 0.0).sum() / mask.sum()
    assert objective(current, batch, terms, batch.n_slots).item() == pytest.approx(expected.item(), abs=1e-12)


def test_a_penalty_is_summed_with_its_own_coefficient(sheet) -> None:
    batch, current, advantage = sheet
    coef = torch.tensor([0.0, 0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
    penalty = Penalty("surprise", coef, lambda now, batch: -now.logp)
    terms = start_terms(0 * advantage)
    loss = objective(current, batch, replace(terms, penalties=(penalty, penalty)), 5)
    assert loss.item() == pytest.approx(2 * (0.5 * 1.1 + 2 * 2.0), abs=1e-12)


def test_a_batch_without_slots_has_no_loss(batch_of) -> None:
    batch = batch_of([[0]])
    assert objective(Current(batch.logp_old, batch.entropy), batch, start_terms(batch.logp_old), 0).item() == 0


def test_a_kl_coefficient_without_a_reference_is_refused(batch_of) -> None:
    batch = batch_of([[1]])
    terms = start_terms(torch.ones(1, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"Batch\.logp_ref is None but a control set kl_coef"):
        objective(Current(batch.logp_old, batch.entropy), batch, replace(terms, kl_coef=terms.weight), 1)


def test_shapes_in_signatures_are_checked_when_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError):
        start_terms(torch.ones(2, 3))
