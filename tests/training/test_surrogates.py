from dataclasses import replace

import pytest
import torch

from turngym.training.columns import Current
from turngym.training.objective import (
    dual_clip,
    hold,
    ppo,
    ratio,
    score_function,
    sequence_clip,
    start_terms,
    weight_clip,
)

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
def test_sheet_examples_of_ppo_with_clip_higher_and_without_upper_bound(sheet, high, losses, mean) -> None:
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


@pytest.mark.parametrize(("log_ratio", "advantage"), [(1.3862943611198906, 1.0), (0.5, -1.0), (-0.5, -1.0), (0.0, 0.0)])
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
    value, gradient = weights(sequence_clip, far, batch, clipped(torch.ones(3, dtype=torch.float64), INF, INF))
    assert value == pytest.approx([22026.465795, 1.221403, 1.221403], abs=1e-6)  # exp(10), exp(0.2)
    assert gradient[0] == 0


def test_sheet_examples_of_the_clipped_weight_section_9(sheet) -> None:
    batch, current, advantage = sheet
    value, gradient = weights(weight_clip, current, batch, clipped(advantage, 0.2, 0.28))
    assert [-one for one in value] == pytest.approx([0.110517, 1.408, 0.8, -1.04, -2.56], abs=1e-6)
    assert -sum(value) / 5 == pytest.approx(-0.256297, abs=1e-6)
    assert gradient == pytest.approx([1.105171, 1.28, 0.8, -0.8, -1.28], abs=1e-6)
    value, gradient = weights(weight_clip, current, batch, clipped(advantage, 1.0, 1.0))  # TRL: no more than 2
    assert -sum(value) / 5 == pytest.approx(-0.215758, abs=1e-6)
    assert gradient == pytest.approx((ratio(current, batch).clamp(max=2.0) * advantage).tolist(), abs=1e-12)


@pytest.mark.parametrize("surrogate", [score_function, sequence_clip, weight_clip])
def test_a_surrogate_of_no_slots_is_empty(batch_of, surrogate) -> None:
    batch = batch_of([[0], [0]])
    assert weights(surrogate, Current(batch.logp_old, batch.entropy), batch, clipped(batch.logp_old, 0.1, 0.1)) == (
        [],
        [],
    )


def test_a_far_token_stays_finite_in_float32(batch_of) -> None:
    batch = batch_of([[1]])
    batch = replace(batch, logp_old=torch.tensor([-500.0]))
    terms = clipped(torch.tensor([-1.0]), 0.2, 0.2)
    assert torch.isfinite(ppo(Current(torch.tensor([-0.1]), torch.zeros(1)), batch, terms)).all()
