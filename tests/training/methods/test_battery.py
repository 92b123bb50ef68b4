"""What every row of `METHODS` promises. A new method adds a case; the checks stay the same."""

import copy
import json
from dataclasses import dataclass, field, replace
from inspect import getmodule
from itertools import pairwise, permutations
from typing import Any

import pytest
import torch

from turngym.training.chain import chain
from turngym.training.columns import Now
from turngym.training.control import Control, Stats, advantages
from turngym.training.methods import METHODS
from turngym.training.objective import objective, start_terms

CARD = ("arXiv", "Knob: ", "Defaults: ", "Evidence: ", "Deviations: ")
NOTHING = Control(name="nothing")


@dataclass(frozen=True)
class Case:
    """A method with parameters under which it acts, and those under which it changes nothing of the loss."""

    method: str
    active: dict[str, Any]
    neutral: dict[str, Any]
    state: Any = field(default_factory=dict)  # in the middle of a run
    entropy: int = 0  # where it promises to move entropy

    def control(self) -> Control:
        return METHODS[self.method](**self.active)


EPO = {"coef": 0.5, "low": 0.8, "high": 1.1, "alpha": 0.3, "steps": 10}
MIDWAY = {"sum": 2.4, "count": 2, "step": 2}
CASES = [
    Case("entropy-bonus", {"coef": 0.5}, {"coef": 0.0}, entropy=1),
    Case("epo", EPO, {"coef": 0.0}, MIDWAY, entropy=1),
    Case("epo", {**EPO, "variant": "code"}, {"coef": 0.0, "variant": "code"}, MIDWAY, entropy=1),
    Case("grpo", {"clip_low": 0.1, "clip_high": 0.4, "kl_coef": 0.2, "aggregation": "turn-mean"}, {}),
    Case("grpo", {"normalize": "none", "ddof": 0, "aggregation": "seq-mean-token-sum-norm", "size": 7}, {}),
]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method}-{CASES.index(case)}")


def close(one: tuple[float, torch.Tensor], other: tuple[float, torch.Tensor]) -> bool:
    return abs(one[0] - other[0]) < 1e-12 and torch.allclose(one[1], other[1], rtol=0, atol=1e-13)


def without_credit(control: Control) -> Control:
    return replace(control, credit=None)


def test_every_method_has_a_case() -> None:
    assert {case.method for case in CASES} == set(METHODS)


@each
def test_neutral_parameters_change_nothing(case, toy) -> None:
    neutral = without_credit(METHODS[case.method](**case.neutral))
    loss, gradient = toy.learn(neutral, case.state)
    expected, expected_gradient = toy.learn(NOTHING, {})
    assert loss == expected
    assert torch.equal(gradient, expected_gradient)


@each
def test_active_parameters_change_the_gradient(case, toy) -> None:
    assert not torch.allclose(toy.learn(case.control(), case.state)[1], toy.learn(NOTHING, {})[1])


@each
def test_masked_tokens_change_neither_loss_nor_gradient(case, toy) -> None:
    mask = torch.zeros(toy.batch.n_paths, 8, dtype=torch.bool)
    for path in range(toy.batch.n_paths):
        mask[path, path : path + int((toy.batch.path == path).sum())] = True

    def masked(seed: int, size: float) -> tuple[float, torch.Tensor]:
        rng = torch.Generator().manual_seed(seed)
        padded = size * torch.randn(*mask.shape, toy.logits.shape[1], generator=rng, dtype=torch.float64)
        padded[mask] = toy.logits
        padded.requires_grad_()
        control, batch = case.control(), toy.batch
        terms = start_terms(advantages(control, batch, case.state))
        terms = control.shape(terms, batch, Now.at_start(batch), case.state)
        loss = objective(toy.current(padded[mask]), batch, terms, batch.n_slots)
        loss.backward()
        assert padded.grad[~mask].abs().max() == 0
        return loss.item(), padded.grad[mask]

    quiet, loud = masked(1, 1.0), masked(2, 1000.0)
    assert quiet[0] == loud[0]
    assert torch.equal(quiet[1], loud[1])
    assert close(quiet, toy.learn(case.control(), case.state))


@each
@pytest.mark.parametrize("ends", [(0, 2, 5), (0, 1, 2, 3, 4, 5), (0, 0, 4, 5)])
def test_a_cut_into_micro_batches_changes_neither_loss_nor_gradient(case, toy, ends) -> None:
    cuts = [range(start, stop) for start, stop in pairwise(ends)]
    assert close(toy.learn(case.control(), case.state, cuts), toy.learn(case.control(), case.state))


@each
def test_the_order_of_paths_changes_neither_loss_nor_gradient(case, toy, toy_of) -> None:
    order = (3, 0, 4, 2, 1)
    other = toy_of(order)
    loss, gradient = other.learn(case.control(), case.state)
    back = torch.cat([gradient[other.batch.path == order.index(path)] for path in range(len(order))])
    assert close((loss, back), toy.learn(case.control(), case.state))


@each
def test_shape_and_credit_do_not_modify_what_they_are_given(case, toy) -> None:
    control, batch, state = case.control(), toy.batch, copy.deepcopy(case.state)
    terms, now = start_terms(advantages(control, batch, state)), Now.at_start(batch)
    before = copy.deepcopy([vars(terms), vars(batch), vars(batch.turns), vars(now)])
    control.shape(terms, batch, now, state)
    advantages(control, batch, state)
    assert state == case.state
    for old, new in zip(before, [vars(terms), vars(batch), vars(batch.turns), vars(now)]):
        for name, column in old.items():
            if isinstance(column, torch.Tensor):
                assert torch.equal(column.nan_to_num(7.0), new[name].nan_to_num(7.0)), name
    assert terms.penalties == ()


@each
def test_terms_keep_shape_and_dtype_and_are_finite(case, toy) -> None:
    control, batch = case.control(), toy.batch
    batch = replace(batch, logp_old=batch.logp_old.float(), entropy=batch.entropy.float())
    plain = start_terms(torch.ones_like(batch.logp_old))
    terms = control.shape(plain, batch, Now.at_start(batch), case.state)
    columns = [column for column in vars(terms).values() if isinstance(column, torch.Tensor)]
    for column in [*columns, *(penalty.coef for penalty in terms.penalties)]:
        assert (column.shape, column.dtype) == (plain.weight.shape, torch.float32)
        assert torch.isfinite(column).all()
        assert not column.requires_grad


@each
def test_the_state_is_json_and_loading_it_continues_to_the_bit(case, toy) -> None:
    control = case.control()
    state = control.init()
    for step in range(4):
        stats = Stats(step, "update", entropy=0.1 * step, entropy_nested=0.3 + 0.1 * step, reward=0.5, success=0.5)
        state, requests = control.observe(stats, state)
        assert isinstance(requests, frozenset)
        loaded = json.loads(json.dumps(state))
        assert loaded == state
        loss, gradient = toy.learn(control, state)
        loss_loaded, gradient_loaded = toy.learn(case.control(), loaded)
        assert loss == loss_loaded
        assert torch.equal(gradient, gradient_loaded)


@each
def test_a_step_moves_entropy_the_promised_way(case, toy) -> None:
    if case.entropy:
        _, gradient = toy.learn(case.control(), case.state)
        _, plain = toy.learn(NOTHING, {})
        before = toy.current(toy.logits).entropy.mean()
        after = toy.current(toy.logits - 0.01 * (gradient - plain)).entropy.mean()
        assert (after - before) * case.entropy > 0


@each
def test_needs_tell_whether_entropy_must_carry_a_gradient(case, toy) -> None:
    control = case.control()
    attached, detached = (toy.learn(control, case.state, attached=flag)[1] for flag in (True, False))
    assert torch.equal(attached, detached) != control.needs.entropy_grad


@each
def test_paths_that_earned_no_score_do_not_influence_the_others(case, toy) -> None:
    turns, kept = toy.batch.turns, toy.batch.turns.rewarded[toy.batch.row]
    other = replace(toy.batch, turns=replace(turns, score=torch.where(turns.rewarded, turns.score, 99.0)))
    ours, theirs = (advantages(case.control(), batch, case.state) for batch in (toy.batch, other))
    assert torch.equal(ours, theirs)
    assert torch.isfinite(ours).all()
    assert ours[~kept].tolist() == [0] * 4


def test_methods_that_set_different_things_commute(toy) -> None:
    for one, other in permutations([CASES[0], CASES[1], CASES[3]], 2):
        there = chain(one.control(), other.control())
        back = chain(other.control(), one.control())
        assert close(toy.learn(there, [one.state, other.state]), toy.learn(back, [other.state, one.state]))


@pytest.mark.parametrize("method", METHODS)
def test_the_card_is_complete(method) -> None:
    card = getmodule(METHODS[method]).__doc__
    assert [part for part in CARD if part not in card] == []
