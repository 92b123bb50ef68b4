"""What every method promises, as checks of a case on the toy; each returns whether the promise is kept."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from turngym.tests.support.toy import make_toy
from turngym.tests.verify.methods.cases import Case
from turngym.training.control.control import Control, Stats, advantages, scored
from turngym.training.data.batch import Batch, Now, Terms
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods import METHODS

NOTHING = Control(name="nothing")
CUTS = (
    (0, 2, 5),
    (0, 1, 2, 3, 4, 5),
    (0, 0, 4, 5),
)  # where micro-batches of the toy's five paths end
ORDER = (3, 0, 4, 2, 1)
ROLLS = ("select", "sample")  # hooks of the rollout that every control has
Learned = tuple[float, Tensor]  # a loss and its gradient


def neutral(case: Case) -> bool:
    """Neutral parameters change no bit; a method without them is one that replaces a part of the loss."""
    if case.neutral is None:
        return bool(case.control().sets & {"surrogate", "aggregation"})
    control = replace(METHODS[case.method](**case.neutral), credit=None)
    return _same(make_toy().learn(control, case.state), make_toy().learn(NOTHING, {}))


def acts(case: Case) -> bool:
    """Active parameters change the gradient, unless the method acts on the rollout alone; then it has a plan."""
    toy, control = make_toy(), case.control()
    same = torch.allclose(toy.learn(control, case.state)[1], toy.learn(NOTHING, {})[1])
    rolls = (
        control.plan
        or control.order
        or any(getattr(control, part) is not getattr(NOTHING, part) for part in ROLLS)
    )
    return same == case.samples and (
        not same or bool(rolls) or bool(control.observe(Stats(0, "update"), case.state)[1])
    )


def masked(case: Case) -> bool:
    """Tokens that the policy did not draw, however large their logits, change neither loss nor gradient."""
    toy, control = make_toy(), case.control()
    batch = scored(control, toy.batch, case.state)
    mask = torch.zeros(toy.batch.n_paths, 8, dtype=torch.bool)
    for path in range(toy.batch.n_paths):
        mask[path, path : path + int((toy.batch.path == path).sum())] = True

    def among(seed: int, size: float) -> Learned:
        rng = torch.Generator().manual_seed(seed)
        padded = size * torch.randn(
            *mask.shape, toy.logits.shape[1], generator=rng, dtype=torch.float64
        )
        padded[mask] = toy.logits
        padded.requires_grad_()
        loss = objective(toy.current(padded[mask]), batch, terms_of(case, toy.batch), batch.n_slots)
        (gradient,) = torch.autograd.grad(loss, padded)
        return loss.item(), gradient

    quiet, loud = among(1, 1.0), among(2, 1000.0)
    leaks = bool(quiet[1][~mask].any())
    return (
        _same(quiet, loud)
        and not leaks
        and _close((quiet[0], quiet[1][mask]), toy.learn(control, case.state))
    )


def split(case: Case) -> bool:
    """How paths are cut into micro-batches changes neither loss nor gradient: statistics are the step's."""
    toy = make_toy()
    whole = toy.learn(case.control(), case.state)
    cuts = [[range(start, stop) for start, stop in pairwise(ends)] for ends in CUTS]
    return all(_close(toy.learn(case.control(), case.state, cut), whole) for cut in cuts)


def order(case: Case) -> bool:
    """The order of paths changes neither loss nor gradient."""
    other = make_toy(ORDER)
    loss, gradient = other.learn(case.control(), case.state)
    back = torch.cat(
        [gradient[other.batch.path == ORDER.index(path)] for path in range(len(ORDER))]
    )
    return _close((loss, back), make_toy().learn(case.control(), case.state))


def pure(case: Case) -> bool:
    """`shape` and `credit` leave what they are given as it is."""
    control, batch, state = case.control(), make_toy().batch, copy.deepcopy(case.state)
    terms, now = start_terms(advantages(control, batch, state)), Now.at_start(batch)
    given = [vars(part) for part in (terms, batch, batch.turns, now)]
    before = copy.deepcopy(given)
    control.shape(terms, batch, now, state)
    advantages(control, batch, state)
    columns = [
        (old[name], new[name])
        for old, new in zip(before, given)
        for name in old
        if _is_tensor(old[name])
    ]
    alike = all(torch.equal(old.nan_to_num(7.0), new.nan_to_num(7.0)) for old, new in columns)
    return alike and state == case.state and terms.penalties == ()


def finite(case: Case) -> bool:
    """Terms keep shape and type, are finite and carry no gradient."""
    batch = make_toy().batch
    columns = {name: getattr(batch, name).float() for name in ("logp_old", "logp_roll", "entropy")}
    batch = replace(batch, **columns)
    plain = start_terms(torch.ones_like(batch.logp_old))
    terms = case.control().shape(plain, batch, Now.at_start(batch), case.state)
    found = [column for column in vars(terms).values() if isinstance(column, Tensor)]
    return all(
        (column.shape, column.dtype) == (plain.weight.shape, torch.float32)
        and bool(torch.isfinite(column).all())
        and not column.requires_grad
        for column in [*found, *(penalty.coef for penalty in terms.penalties)]
    )


def saved(case: Case) -> bool:
    """A state is JSON, and the method goes on from what was loaded to the bit."""
    toy, control = make_toy(), case.control()
    state = control.init()
    for step in range(4):
        entropy = 0.3 + 0.1 * step
        stats = Stats(
            step, "update", entropy=0.1 * step, entropy_nested=entropy, reward=0.5, success=0.5
        )
        state, _ = control.observe(
            Stats(step, "rollout"), state
        )  # of a step with nothing to learn from
        state, requests = control.observe(stats, state)
        state, _ = control.observe(
            replace(stats, phase="rollout", entropy_turns=(entropy, 0.2)), state
        )
        loaded = json.loads(json.dumps(state, allow_nan=False))
        if loaded != state or not isinstance(requests, frozenset):
            return False
        if not _same(toy.learn(control, state), toy.learn(case.control(), loaded)):
            return False
    return True


def needed(case: Case) -> bool:
    """Entropy is asked to carry a gradient where that makes a difference, and only there."""
    toy, control = make_toy(), case.control()
    attached, detached = (
        toy.learn(control, case.state, attached=flag)[1] for flag in (True, False)
    )
    return torch.equal(attached, detached) != control.needs.entropy_grad


def unscored(case: Case) -> bool:
    """Paths that earned no score have no advantage and do not influence the others."""
    batch, control = make_toy().batch, case.control()
    turns, earned = batch.turns, batch.turns.rewarded[batch.row]
    other = replace(
        batch, turns=replace(turns, score=torch.where(turns.rewarded, turns.score, 99.0))
    )
    ours, theirs = (advantages(control, one, case.state) for one in (batch, other))
    return (
        torch.equal(ours, theirs)
        and bool(torch.isfinite(ours).all())
        and not bool(ours[~earned].any())
    )


def entropy_moves(case: Case) -> bool:
    """A step of what the method adds to the loss moves the mean entropy the way that it promises."""
    toy = make_toy()
    added = toy.learn(case.control(), case.state)[1] - toy.learn(NOTHING, {})[1]
    before, after = (
        toy.current(logits).entropy.mean() for logits in (toy.logits, toy.logits - 0.01 * added)
    )
    return bool((after - before) * case.entropy > 0)


def advantage_moves(case: Case) -> bool:
    """A step of its policy term raises what was drawn where weight and advantage say so, and lowers it elsewhere."""
    toy = make_toy()
    logits = toy.logits.clone().requires_grad_()
    current = toy.current(logits)
    batch = replace(toy.batch, logp_old=current.logp.detach(), entropy=current.entropy.detach())
    terms = terms_of(case, batch)
    zeros = torch.zeros_like(terms.advantage)
    terms = replace(terms, kl_coef=zeros, entropy_coef=zeros, penalties=())
    (gradient,) = torch.autograd.grad(objective(current, batch, terms, batch.n_slots), logits)
    moved = toy.current(toy.logits - 1e-3 * gradient).logp - batch.logp_old
    wanted = (terms.scale * terms.weight * terms.advantage).sign()
    return torch.equal(torch.where(moved.abs() < 1e-12, 0.0, moved).sign(), wanted)


def terms_of(case: Case, batch: Batch) -> Terms:
    """Return the terms of a case at the start of an update."""
    control = case.control()
    terms = start_terms(advantages(control, batch, case.state))
    return control.shape(terms, scored(control, batch, case.state), Now.at_start(batch), case.state)


CHECKS: Mapping[str, Callable[[Case], bool]] = {
    check.__name__: check
    for check in (neutral, acts, masked, split, order, pure, finite, saved, needed, unscored)
}
DIRECTIONS: Mapping[str, Callable[[Case], bool]] = {
    check.__name__: check for check in (advantage_moves, entropy_moves)
}


def directions(case: Case) -> list[str]:
    """Return which of `DIRECTIONS` a case promises."""
    return ["advantage_moves", *(["entropy_moves"] if case.entropy else [])]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _same(one: Learned, other: Learned) -> bool:
    return one[0] == other[0] and torch.equal(one[1], other[1])


def _close(one: Learned, other: Learned) -> bool:
    return abs(one[0] - other[0]) < 1e-12 and torch.allclose(one[1], other[1], rtol=0, atol=1e-13)
