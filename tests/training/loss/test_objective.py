""""""

from __future__ import annotations

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.data.batch import Current, Penalty
from turngym.training.data.packing import Packed, pack
from turngym.training.loss.kl import k1, k3, log_ratio
from turngym.training.loss.objective import BadUpdate, check, objective, start_terms
from turngym.training.loss.surrogates import (
    dual_clip,
    hold,
    ppo,
    ratio,
    score_function,
    sequence_clip,
    weight_clip,
)

ADVANTAGE = (
    1.5,
    -0.7,
    0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.3,
    -0.3,
    0.5,
    1.0,
    -1.0,
    0.8,
    0.9,
    -0.4,
    1.1,
    -1.2,
    0.6,
    0.2,
)


def shaped(toy, **columns):
    """Return the toy's terms with mixed advantages and `columns`, all of which vary from slot to slot."""
    slots = toy.batch.n_slots
    terms = start_terms(torch.tensor(ADVANTAGE[:slots], dtype=torch.float64))
    ramp = torch.linspace(0.5, 1.5, slots, dtype=torch.float64)
    return replace(
        terms, scale=ramp.flip(0), **{name: value * ramp for name, value in columns.items()}
    )


def reference(toy, terms, logits):
    """Return the loss from its equation, in NumPy, slot by slot."""
    column = {
        name: value.numpy()
        for name, value in vars(terms).items()
        if isinstance(value, torch.Tensor)
    }
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
def test_value_and_gradient_of_each_term_agree_with_the_equation(
    toy, numeric_gradient, columns
) -> None:
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
    assert objective(current, batch, start_terms(advantage), 5).item() == pytest.approx(
        -0.179226, abs=1e-6
    )


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
    assert objective(current, batch, terms, batch.n_slots).item() == pytest.approx(
        expected.item(), abs=1e-12
    )


def test_a_penalty_is_summed_with_its_own_coefficient(sheet) -> None:
    batch, current, advantage = sheet
    coef = torch.tensor([0.0, 0.5, 0.0, 0.0, 2.0], dtype=torch.float64)
    penalty = Penalty("surprise", coef, lambda now, batch, terms: -now.logp)
    terms = start_terms(0 * advantage)
    loss = objective(current, batch, replace(terms, penalties=(penalty, penalty)), 5)
    assert loss.item() == pytest.approx(2 * (0.5 * 1.1 + 2 * 2.0), abs=1e-12)


def test_a_batch_without_slots_has_no_loss(batch_of) -> None:
    batch = batch_of([[0]])
    assert (
        objective(
            Current(batch.logp_old, batch.entropy), batch, start_terms(batch.logp_old), 0
        ).item()
        == 0
    )


def test_a_kl_coefficient_without_a_reference_is_refused(batch_of) -> None:
    batch = batch_of([[1]])
    terms = start_terms(torch.ones(1, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"Batch\.logp_ref is None but a control set kl_coef"):
        objective(
            Current(batch.logp_old, batch.entropy), batch, replace(terms, kl_coef=terms.weight), 1
        )


def test_shapes_in_signatures_are_checked_when_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError):
        start_terms(torch.ones(2, 3))


INF = float("inf")


def clipped(advantage, low, high):
    return hold(start_terms(advantage), low, high)


def weights(surrogate, current, batch, terms):
    """Return the values of a surrogate and its derivative in each logp."""
    logp = current.logp.clone().requires_grad_()
    value = surrogate(Current(logp, current.entropy), batch, terms)
    value.sum().backward()
    return value.tolist(), logp.grad.tolist()


def test_sheet_example_of_the_ratio(sheet) -> None:
    batch, current, _ = sheet
    expected = [1.105171, 1.491825, 0.740818, 0.670320, 1.349859]
    assert ratio(current, batch).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("high", "losses", "mean"),
    [
        (0.2, [-1.105171, -1.2, -0.740818, 0.8, 1.349859], -0.179226),
        (0.28, [-1.105171, -1.28, -0.740818, 0.8, 1.349859], -0.195226),
        (INF, [-1.105171, -1.491825, -0.740818, 0.8, 1.349859], -0.237591),
    ],
)
def test_sheet_examples_of_ppo_with_clip_higher_and_without_upper_bound(
    sheet, high, losses, mean
) -> None:
    batch, current, advantage = sheet
    loss = -ppo(current, batch, clipped(advantage, 0.2, high))
    assert loss.tolist() == pytest.approx(losses, abs=1e-6)
    assert loss.mean().item() == pytest.approx(mean, abs=1e-6)


def test_gradient_passes_only_where_the_bound_does_not_hold(sheet) -> None:
    batch, current, advantage = sheet
    logp = current.logp.clone().requires_grad_()
    (-ppo(Current(logp, current.entropy), batch, clipped(advantage, 0.2, 0.2))).sum().backward()
    expected = [-1.105171, 0.0, -0.740818, 0.0, 1.349859]
    assert logp.grad.tolist() == pytest.approx(expected, abs=1e-6)


def test_at_the_start_the_gradient_is_the_advantage(sheet) -> None:
    batch, current, advantage = sheet
    logp = batch.logp_old.clone().requires_grad_()
    ppo(Current(logp, current.entropy), batch, start_terms(advantage)).sum().backward()
    assert torch.equal(logp.grad, advantage)


def one_slot(batch_of, advantage, log_ratio):
    batch = batch_of([[1]])
    return (
        Current(torch.tensor([log_ratio], dtype=torch.float64).requires_grad_(), batch.entropy),
        batch,
        clipped(torch.tensor([advantage], dtype=torch.float64), 0.2, 0.2),
    )


def test_sheet_example_of_dual_clip(batch_of) -> None:
    current, batch, terms = one_slot(batch_of, -1.0, 1.3862943611198906)  # ratio 4
    assert -ppo(current, batch, terms).item() == pytest.approx(4.0, abs=1e-6)
    loss = -dual_clip(3.0)(current, batch, terms)
    assert loss.item() == pytest.approx(3.0, abs=1e-6)
    loss.sum().backward()
    assert current.logp.grad.item() == 0


@pytest.mark.parametrize(
    ("log_ratio", "advantage"), [(1.3862943611198906, 1.0), (0.5, -1.0), (-0.5, -1.0), (0.0, 0.0)]
)
def test_dual_clip_is_ppo_where_its_floor_is_not_reached(batch_of, log_ratio, advantage) -> None:
    current, batch, terms = one_slot(batch_of, advantage, log_ratio)
    assert torch.equal(dual_clip(3.0)(current, batch, terms), ppo(current, batch, terms))


def test_dual_clip_refuses_a_limit_an_unchanged_policy_reaches() -> None:
    with pytest.raises(ValueError, match=r"dual_clip limit is 1\.0; it must exceed 1"):
        dual_clip(1.0)


def test_dual_clip_without_a_limit_is_ppo() -> None:
    assert dual_clip(INF) is ppo


def test_the_score_function_weighs_every_token_by_its_advantage(sheet) -> None:
    batch, current, advantage = sheet
    value, gradient = weights(score_function, current, batch, clipped(advantage, 0.0, 0.0))
    assert value == (advantage * current.logp).tolist()
    assert gradient == advantage.tolist()


def test_sheet_example_of_the_sequence_ratio_section_8(sheet) -> None:
    batch, current, advantage = sheet
    value, gradient = weights(sequence_clip, current, batch, clipped(advantage, 3e-4, 4e-4))
    assert [-one for one in value] == pytest.approx([-1.0004] * 3 + [0.9997] * 2, abs=1e-6)
    assert gradient == [0] * 5
    value, gradient = weights(sequence_clip, current, batch, clipped(advantage, INF, INF))
    assert value == pytest.approx([1.068939] * 3 + [-0.951229] * 2, abs=1e-6)
    assert gradient == pytest.approx(value, abs=1e-12)  # s·A on each token


def test_the_sequence_ratio_is_capped_and_paths_without_slots_do_not_matter(batch_of) -> None:
    batch = batch_of([[1], [0], [2]])
    far = Current(torch.tensor([30.0, 0.1, 0.3], dtype=torch.float64), batch.entropy)
    value, gradient = weights(
        sequence_clip, far, batch, clipped(torch.ones(3, dtype=torch.float64), INF, INF)
    )
    assert value == pytest.approx([22026.465795, 1.221403, 1.221403], abs=1e-6)  # exp(10), exp(0.2)
    assert gradient[0] == 0


def test_sheet_examples_of_the_clipped_weight_section_9(sheet) -> None:
    batch, current, advantage = sheet
    value, gradient = weights(weight_clip, current, batch, clipped(advantage, 0.2, 0.28))
    assert [-one for one in value] == pytest.approx([0.110517, 1.408, 0.8, -1.04, -2.56], abs=1e-6)
    assert -sum(value) / 5 == pytest.approx(-0.256297, abs=1e-6)
    assert gradient == pytest.approx([1.105171, 1.28, 0.8, -0.8, -1.28], abs=1e-6)
    value, gradient = weights(
        weight_clip, current, batch, clipped(advantage, 1.0, 1.0)
    )  # TRL: no more than 2
    assert -sum(value) / 5 == pytest.approx(-0.215758, abs=1e-6)
    assert gradient == pytest.approx(
        (ratio(current, batch).clamp(max=2.0) * advantage).tolist(), abs=1e-12
    )


@pytest.mark.parametrize("surrogate", [score_function, sequence_clip, weight_clip])
def test_a_surrogate_of_no_slots_is_empty(batch_of, surrogate) -> None:
    batch = batch_of([[0], [0]])
    assert weights(
        surrogate, Current(batch.logp_old, batch.entropy), batch, clipped(batch.logp_old, 0.1, 0.1)
    ) == (
        [],
        [],
    )


def test_a_far_token_stays_finite_in_float32(batch_of) -> None:
    batch = batch_of([[1]])
    batch = replace(batch, logp_old=torch.tensor([-500.0]))
    terms = clipped(torch.tensor([-1.0]), 0.2, 0.2)
    assert torch.isfinite(ppo(Current(torch.tensor([-0.1]), torch.zeros(1)), batch, terms)).all()


LOGP = torch.tensor([-0.1, -1.1, -1.0], dtype=torch.float64)
REF = torch.tensor([-0.3, -1.2, -0.8], dtype=torch.float64)


def test_sheet_examples_of_the_estimators() -> None:
    assert k1(LOGP, REF).tolist() == pytest.approx([0.2, 0.1, -0.2], abs=1e-6)
    assert k3(LOGP, REF).tolist() == pytest.approx([0.018731, 0.004837, 0.021403], abs=1e-6)


def test_sheet_example_of_the_mean_k3(sheet) -> None:
    batch, current, _ = sheet
    assert k3(current.logp, batch.logp_ref).mean().item() == pytest.approx(0.022712, abs=1e-6)


def test_gradient_of_k3_is_one_minus_the_inverse_ratio() -> None:
    logp = LOGP.clone().requires_grad_()
    k3(logp, REF).sum().backward()
    assert torch.allclose(logp.grad, 1 - torch.exp(REF - LOGP))


def test_k3_in_expectation_is_the_kl_divergence() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    exact = (p * (p / q).log()).sum()
    assert torch.allclose((p * k3(p.log(), q.log())).sum(), exact)
    assert torch.allclose((p * k1(p.log(), q.log())).sum(), exact)


def test_log_ratio_is_held_so_that_nothing_overflows() -> None:
    far = torch.tensor([0.0, -500.0])
    assert log_ratio(far, far.flip(0)).tolist() == [20.0, -20.0]
    assert torch.isfinite(k3(far, far.flip(0))).all()


def test_small_differences_keep_their_digits_in_float32() -> None:
    x = torch.tensor([1e-4], dtype=torch.float32)
    assert k3(x, torch.zeros(1)).item() == pytest.approx(5e-9, rel=1e-2, abs=1e-8)
    assert k3(x, torch.zeros(1)).item() >= 0


@pytest.fixture
def packed() -> Packed:
    """Two paths of one turn each; the second is longer."""
    tree = Tree((4, 2, 9), 9, "nine")
    tree.add(Turn.unsampled(-1, "user", "?", np.arange(2, dtype=np.int32)))
    for branch, size in enumerate((2, 3)):
        ones = np.ones(size, np.float32)
        tree.add(Turn(0, "assistant", "!", np.arange(size, dtype=np.int32), ones > 0, -ones, ones))
        tree.leaves.append(Leaf(branch + 1, branch, Outcome.DONE, "answered", float(branch)))
    return pack([tree])


def test_what_is_finite_passes_and_so_do_bounds_that_hold_nothing(packed):
    terms = start_terms(torch.zeros(5))
    check(terms, packed)
    check(
        replace(terms, clip_low=torch.full((5,), torch.inf), clip_high=torch.full((5,), torch.inf)),
        packed,
    )


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("weight", torch.nan),
        ("clip_low", torch.nan),
        ("clip_high", -torch.inf),
        ("scale", torch.inf),
    ],
)
def test_the_sample_of_the_first_number_that_is_not_is_named_with_its_key(packed, what, value):
    terms = start_terms(torch.zeros(5))
    column = getattr(terms, what).clone()
    column[2:] = value
    with pytest.raises(BadUpdate, match=rf"^nine branch 1: the .* is {value}$") as refused:
        check(replace(terms, **{what: column}), packed)
    assert refused.value.key == (4, 2, 9, 1)


def test_a_reward_of_a_turn_and_the_reference_are_looked_at_too(packed):
    terms, batch = start_terms(torch.zeros(5)), packed.batch
    turns = replace(batch.turns, reward=torch.tensor([0.0, torch.inf]))
    with pytest.raises(BadUpdate, match="nine branch 1: the reward of a turn is inf"):
        check(terms, replace(packed, batch=replace(batch, turns=turns)))
    with pytest.raises(BadUpdate, match="nine branch 0: the reference's log-probability is nan"):
        check(terms, replace(packed, batch=replace(batch, logp_ref=torch.full((5,), torch.nan))))
