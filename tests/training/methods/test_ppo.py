from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.data.batch import Current, Now
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods.base_algorithms.ppo import (
    ppo,
    value_advantage,
    value_head,
    value_loss,
)

NAN = float("nan")
SETTINGS = {"gamma": 0.9, "lam": 0.8, "value_clip": 0.1, "limit": 1.2, "value_coef": 0.7}


def test_sheet_example_of_the_advantage_section_2(batch_of) -> None:
    batch = batch_of([[2, 1]], scores=[1], value=[0.5, 0.4, 0.6])
    raw = value_advantage(batch, 1.0, 0.95)
    assert raw.tolist() == pytest.approx([0.451, 0.58, 0.4], abs=1e-6)
    assert (raw + batch.extras["value"]).tolist() == pytest.approx([0.951, 0.98, 1.0], abs=1e-6)
    white = advantages(ppo(lam=0.95), batch, {})
    assert white.tolist() == pytest.approx([-0.280251, 1.110225, -0.829974], abs=1e-6)


def test_sheet_example_of_the_value_loss_section_2(batch_of) -> None:
    batch = batch_of([[1]], scores=[1], value=[0.9])
    value = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    current = Current(batch.logp_old, batch.entropy, {"value": value})
    terms = ppo(value_clip=0.2).shape(
        start_terms(0 * batch.logp_old), batch, Now.at_start(batch), {}
    )
    loss = objective(current, batch, terms, 1)
    assert loss.item() == pytest.approx(0.125, abs=1e-6)
    loss.backward()
    assert value.grad.item() == pytest.approx(0.5, abs=1e-12)  # v - R
    value_inside = Current(
        batch.logp_old, batch.entropy, {"value": torch.tensor([1.05], dtype=torch.float64)}
    )
    terms = start_terms(batch.logp_old)
    loss = value_loss(partial(value_advantage, gamma=1.0, lam=1.0), 0.2, value_inside, batch, terms)
    assert loss.item() == pytest.approx(0.05**2, abs=1e-12)


def test_sheet_example_of_the_clipped_term_and_its_dual_clip_section_2(sheet, batch_of) -> None:
    batch, current, advantage = sheet
    batch = replace(batch, extras={"value": 0 * advantage})
    terms = ppo().shape(start_terms(advantage), batch, Now.at_start(batch), {})
    losses = -terms.surrogate(current, batch, terms)
    assert losses.tolist() == pytest.approx([-1.105171, -1.2, -0.740818, 0.8, 1.349859], abs=1e-6)
    one = batch_of([[1]], value=[0.0])
    far = Current(torch.tensor([4.0], dtype=torch.float64).log(), one.entropy)
    for limit, expected in ((3.0, 3.0), (float("inf"), 4.0)):
        terms = ppo(limit=limit).shape(
            start_terms(-torch.ones(1).double()), one, Now.at_start(one), {}
        )
        assert -terms.surrogate(far, one, terms).item() == pytest.approx(expected, abs=1e-6)


def definition(batch, gamma, lam):
    """Return raw advantages of rewarded slots by GAE's backward recursion (the sheet's states), in NumPy."""
    value, row = batch.extras["value"].numpy(), batch.row.numpy()
    result = {}
    for path in range(batch.n_paths):
        slots = np.flatnonzero(batch.path.numpy() == path)
        if not len(slots) or not batch.turns.rewarded[row[slots[-1]]]:
            continue
        after, total = 0.0, 0.0
        for slot in slots[::-1]:
            reward = batch.turns.score[row[slot]].item() if slot == slots[-1] else 0.0
            total = reward + gamma * after - value[slot] + gamma * lam * total
            after = value[slot]
            result[int(slot)] = total
    return result


def reference(toy, at):
    batch, current = toy.batch, toy.current(at)
    raw = definition(batch, SETTINGS["gamma"], SETTINGS["lam"])
    mean, std = np.mean(list(raw.values())), np.sqrt(np.var(list(raw.values()), ddof=1) + 1e-8)
    old, value = batch.extras["value"].tolist(), current.extras["value"].tolist()
    total = 0.0
    for slot, r in enumerate((current.logp - batch.logp_old).exp().tolist()):
        if slot not in raw:
            continue
        a = (raw[slot] - mean) / std
        policy = max(-a * r, -a * min(max(r, 0.8), 1.2))
        policy = min(policy, -a * 1.2) if a < 0 else policy
        returns = old[slot] + raw[slot]
        held = old[slot] + min(max(value[slot] - old[slot], -0.1), 0.1)
        total += policy + 0.7 * 0.5 * max((value[slot] - returns) ** 2, (held - returns) ** 2)
    return total / batch.n_slots


def test_value_and_gradient_agree_with_the_equations(toy, numeric_gradient) -> None:
    loss, gradient = toy.learn(ppo(**SETTINGS), {})
    assert loss == pytest.approx(reference(toy, toy.logits), abs=1e-12)
    assert torch.allclose(
        gradient, numeric_gradient(lambda at: reference(toy, at), toy.logits), atol=1e-8
    )
    moved = (toy.current(toy.logits).extras["value"] - toy.batch.extras["value"]).abs()
    assert 0 < (moved > 0.1).sum() < len(moved)  # some values are held and some are not


def test_what_was_read_between_tokens_takes_no_time(batch_of) -> None:
    value = [0.5, 0.4, 0.6]
    one, three = (batch_of([paths], scores=[1], value=value) for paths in ([3], [1, 0, 1, 1]))
    assert torch.equal(value_advantage(one, 0.9, 0.9), value_advantage(three, 0.9, 0.9))


def test_edge_cases_give_zero(batch_of) -> None:
    ends = [Outcome.INFRA_ERROR, Outcome.DONE]
    for batch in (
        batch_of([[2], [1]], scores=[0.3, 0.3], value=[0.0] * 3),  # no variance
        batch_of([[1]], scores=[5], value=[0.1]),  # one token
        batch_of([[0], [0]], scores=[1, 0], value=[]),  # none
        batch_of([[2]], scores=[NAN], value=[0.1, 0.2], ends=ends[:1]),  # all failed
    ):
        assert advantages(ppo(), batch, {}).tolist() == [0] * batch.n_slots


def test_a_failed_path_teaches_the_head_nothing(batch_of) -> None:
    ends = [Outcome.INFRA_ERROR, Outcome.DONE]
    batch = batch_of([[2], [2]], scores=[NAN, 1], value=[9.0, 9.0, 0.1, 0.2], ends=ends)
    terms = ppo().shape(start_terms(0 * batch.logp_old), batch, Now.at_start(batch), {})
    (penalty,) = terms.penalties
    assert penalty.coef.tolist() == [0, 0, 0.125, 0.125]
    current = Current(batch.logp_old, batch.entropy, {"value": batch.extras["value"] + 1})
    assert torch.isfinite(penalty.value(current, batch, terms)).all()


def test_a_slice_has_the_returns_of_the_whole(toy) -> None:
    terms = start_terms(toy.batch.logp_old)
    loss = partial(value_loss, partial(value_advantage, gamma=0.9, lam=0.8), 0.1)
    whole = loss(toy.current(toy.logits), toy.batch, terms)
    span = toy.batch.span(range(1, 4))
    part = loss(toy.current(toy.logits, span), toy.batch.slice(range(1, 4)), terms)
    assert torch.equal(part, whole[span])


def test_the_head_gives_a_number_for_each_token_and_begins_at_zero() -> None:
    head, hidden = value_head(4), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    assert head(hidden).tolist() == [0, 0, 0]
    head(hidden).sum().backward()
    assert torch.allclose(head[0].weight.grad[0], hidden.sum(0))
    assert ppo().needs.modules == {"value": value_head}


def test_only_what_it_replaces_is_claimed() -> None:
    assert ppo().sets == {"credit", "surrogate"}
    assert ppo(limit=float("inf")).sets == {"credit"}
