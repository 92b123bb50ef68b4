"""Clip-Cov, KL-Cov, FlowRL, SimKO and EVOL-RL beside their equations in plain Python, and what they are made of."""

from dataclasses import replace
from itertools import pairwise
from math import exp, inf, log

import numpy as np
import pytest
import torch

from turngym.agents.evaluation.votes import spelled_alike
from turngym.agents.trajectory import Tree
from turngym.tests.support.toy import now_of
from turngym.training.control.chain import chain
from turngym.training.data.batch import At, Now, Terms
from turngym.training.data.packing import pack
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.contrib.evol_rl import similarities, voted, worth
from turngym.training.methods.contrib.seed_grpo import spread
from turngym.training.methods.kl.sent import spreads
from turngym.training.methods.reward.empo import agreed
from turngym.training.methods.reward.ettrl import voted as elected
from turngym.training.methods.surrogate.simko import likely

ADVANTAGE = (
    [0.5] * 3 + [-0.5] * 3 + [-0.25] * 5 + [0.25] * 4 + [0.0] * 4
)  # of the toy's slots, less the group's mean
LEARNED = 15  # the toy's last path earned no score


def agree(toy, numeric_gradient, method, loss, **parameters) -> None:
    control = chain(METHODS["grpo"](normalize="none"), METHODS[method](**parameters))
    value, gradient = toy.learn(control, [{}, {}])
    assert value == pytest.approx(loss(toy.logits), abs=1e-12)
    assert torch.allclose(gradient, numeric_gradient(loss, toy.logits), atol=1e-7)


def covariances(toy) -> list[float]:
    logp = toy.batch.logp_old.tolist()[:LEARNED]
    means = [sum(column[:LEARNED]) / LEARNED for column in (ADVANTAGE, logp)]
    return [(a - means[0]) * (own - means[1]) for a, own in zip(ADVANTAGE, logp)]


def test_kl_cov_agrees_with_the_equation(toy, numeric_gradient) -> None:
    cov = covariances(toy)
    held = sorted(range(LEARNED), key=lambda slot: -cov[slot])[: int(0.2 * LEARNED)]

    def loss(at):
        gap = (toy.current(at).logp - toy.batch.logp_old).tolist()
        each = [
            -exp(x) * a + (0.7 * abs(x) if slot in held else 0)
            for slot, (x, a) in enumerate(zip(gap, ADVANTAGE))
        ]
        return sum(each) / len(each)

    agree(toy, numeric_gradient, "kl-cov", loss, coef=0.7, share=0.2)


def test_flowrl_agrees_with_the_equation(toy, numeric_gradient) -> None:
    ends = [0, 3, 6, 11, 15]  # of the paths that earned a score

    def loss(at):
        current = toy.current(at)
        total = 0.0
        for start, stop in pairwise(ends):
            gap = (current.logp - toy.batch.logp_ref)[start:stop].mean().item()
            delta = current.extras["log-z"][start].item() + gap - 2 * ADVANTAGE[start]
            total += delta**2 / 4
        return total

    current = toy.current(toy.logits)
    assert current.logp.shape == toy.batch.logp_old.shape
    agree(toy, numeric_gradient, "flowrl", loss, beta=2.0, clip=0.0)


def test_simko_agrees_with_the_equation(toy, numeric_gradient) -> None:
    batch, top = toy.batch, toy.batch.extras["simko-likely"]
    unsure = torch.cat(
        [
            batch.entropy[batch.path == p] > batch.entropy[batch.path == p].quantile(0.4)
            for p in range(5)
        ]
    )
    now = (toy.current(toy.logits).logp - batch.logp_old).exp().tolist()

    def loss(at):
        current, total = toy.current(at), 0.0
        for slot, a in enumerate(ADVANTAGE):
            r = (current.logp - batch.logp_old)[slot].exp().item()
            if unsure[slot] and batch.turns.score[batch.row[slot]] >= 1:
                others = (current.extras["simko-likely"] - top)[slot, -3:].exp().tolist()
                start = (
                    (toy.current(toy.logits).extras["simko-likely"] - top)[slot, -3:].exp().tolist()
                )
                r = 0.8 * r + 0.2 / 3 * sum(
                    now[slot] / (was + 1e-8) * is_ for was, is_ in zip(start, others)
                )
            a = 1.1 * a if unsure[slot] and top[slot, 0] and a < 0 else a
            total -= min(r * a, min(max(r, 0.8), 1.2) * a)
        return total / len(ADVANTAGE)

    agree(toy, numeric_gradient, "simko", loss, quantile=0.4, share=0.2)


def test_likely_tokens_stay_those_of_the_start() -> None:
    logits, token = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
    before = likely(2, logits, token, None)
    assert before[0, :3].tolist() == [1, 0, 1]
    after = likely(2, logits.flip(1), token, before)
    assert after[0, :3].tolist() == [1, 0, 1]
    assert after[0, 3:].tolist() == pytest.approx(
        [-2 - log(1 + exp(-1) + exp(-2)), -1 - log(1 + exp(-1) + exp(-2))]
    )


def test_clip_cov_leaves_out_other_tokens_in_another_optimizer_step(toy) -> None:
    control = METHODS["clip-cov"](share=0.2, low=-9.0, high=9.0, clip_low=9.0, clip_high=9.0)

    def left(at: At) -> list[float]:
        batch = replace(toy.batch, at=at)
        terms = control.shape(
            start_terms(torch.tensor(ADVANTAGE).double()),
            batch,
            now_of(toy.current(toy.logits)),
            {},
        )
        assert int((terms.weight == 0).sum()) == int(0.2 * batch.n_slots)
        return terms.weight.tolist()

    assert left(At(1, 2, 9, 0)) == left(At(1, 2, 9, 0))
    assert (
        len(
            {
                tuple(left(at))
                for at in (At(1, 2, 9, 0), At(2, 2, 9, 0), At(1, 3, 9, 0), At(1, 2, 9, 1))
            }
        )
        == 4
    )


def answering(tree: Tree, answers: list[str | None]) -> Tree:
    leaves = [
        replace(leaf, info={} if own is None else {"answer": own})
        for leaf, own in zip(tree.leaves, answers)
    ]
    turns = [replace(turn, text=f"{turn.text} {place}") for place, turn in enumerate(tree.turns)]
    return replace(tree, turns=turns, leaves=leaves)


def test_a_vote_says_who_is_right_and_becomes_the_score(tree_of) -> None:
    tree = answering(tree_of([[[1.0]]] * 4, [0.0] * 4), ["7", "8", "7", None])
    scores = voted(tree)
    assert scores[0] > 0.5 and scores[2] > 0.5 and scores[1] == -0.5 and scores[3] == -1
    control = METHODS["evol-rl"]()
    batch = pack([tree], control.needs.columns).batch
    assert control.reward(batch, {}).tolist() == pytest.approx(scores)
    assert METHODS["evol-rl"](mix=0.0).needs.columns == {}


def test_answers_of_any_kind_are_voted_on(tree_of) -> None:
    assert voted(answering(tree_of([[[1.0]]] * 3), [["7"], ["8"], ["7"]]))[1] == -0.5


def test_votes_at_the_edges(tree_of) -> None:
    tree = tree_of([[[1.0]]] * 3)
    assert voted(answering(tree, [None] * 3)) == [-1] * 3
    assert (
        voted(answering(tree, ["7", None, None])) == [-1] * 3
    )  # one alone among paths without an answer
    assert voted(answering(tree_of([[[1.0]]]), ["7"])) == [0.5]
    assert worth([True, True], similarities(["same words", "same words"])) == [0.75, 0.75]


def test_texts_are_alike_by_what_they_have_in_common() -> None:
    alike = similarities(["one two three", "one two four", "", "xyz"])
    assert (
        alike[0, 0] == pytest.approx(1)
        and 0.3 < alike[0, 1] < 1
        and alike[0, 3] == 0
        and not alike[2].any()
    )


HALVES = ["½", "3", "0.5", "3", "\\frac12", None]
VALUE = {"½": 0.5, "0.5": 0.5, "\\frac12": 0.5, "3": 3.0}


def same_value(first: str, second: str) -> bool:
    return VALUE[first] == VALUE[second]


def test_votes_count_answers_that_the_grader_calls_the_same_as_one(tree_of) -> None:
    """Three spellings of a half against two of 3, and a path without an answer."""
    tree = answering(tree_of([[[1.0]]] * 6), HALVES)
    assert agreed(tree, same_value) == pytest.approx([3 / 6, 2 / 6, 3 / 6, 2 / 6, 3 / 6, 0])
    assert elected(tree, same_value) == [1, 0, 1, 0, 1, 0]
    assert [score > 0 for score in voted(tree, same_value)] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    shares = np.array([3, 2, 1]) / 6
    assert spreads(tree, same_value) == pytest.approx([-(shares * np.log(shares)).sum()] * 6)
    logp = np.array([float(tree.turns[leaf.node].logp_roll.sum()) for leaf in tree.leaves])
    p = np.exp(logp) / np.exp(logp).sum()
    mass = [p[[0, 2, 4]].sum(), p[[1, 3]].sum(), p[5]]
    assert spread(tree, same_value) == pytest.approx([-np.mean(np.log(mass)) / np.log(6)] * 6)
    # By their spelling 3 wins.
    assert elected(tree) == [0, 1, 0, 1, 0, 0] and agreed(tree)[0] == pytest.approx(1 / 6)


@pytest.mark.parametrize("name", ["empo", "ettrl", "evol-rl", "sent", "seed-grpo"])
def test_the_columns_of_votes_are_made_with_the_sameness_that_is_given(tree_of, name) -> None:
    tree = answering(tree_of([[[1.0]]] * 6), HALVES)
    control = METHODS[name](**({"measure": 1} if name == "sent" else {}))
    (column,) = control.needs.columns
    found = [
        pack([tree], control.needs.columns, *same).batch.turns.columns[column]
        for same in ((), (same_value,))
    ]
    assert not torch.equal(*found)
    made = torch.tensor(
        [control.needs.columns[column](tree, same) for same in (spelled_alike, same_value)]
    ).float()
    assert torch.equal(torch.stack(found), made)


@pytest.mark.parametrize("name", ["empo", "evol-rl"])
def test_a_mix_of_nothing_keeps_the_score_and_computes_no_other(toy, name) -> None:
    control = METHODS[name](mix=0.0)
    assert not control.needs.columns
    scores = control.reward(toy.batch, {})
    assert torch.allclose(scores, toy.batch.turns.score, rtol=0, atol=0, equal_nan=True)


def test_clip_cov_counts_paths_that_earned_a_score_and_no_others(toy) -> None:
    """The reference, in float64 NumPy, sees only the slots of the toy's first four paths; the fifth has failed."""
    batch = toy.batch
    learned = batch.turns.rewarded[batch.row].numpy()
    assert learned.sum() == LEARNED and not learned.all()
    advantage = torch.linspace(-2, 2, batch.n_slots, dtype=torch.float64)
    advantage[LEARNED:] = 50.0
    logp = toy.current(toy.logits).logp
    a, p = advantage.numpy()[learned], logp.numpy()[learned]
    cov = (a - a.mean()) * (p - p.mean())
    low, high = np.quantile(cov, [0.2, 0.9])
    open_ = [int(place) for place in np.flatnonzero((low < cov) & (cov < high))]
    for share, expected in ((1.0, len(open_)), (0.3, int(0.3 * LEARNED)), (0.01, 1)):
        control = METHODS["clip-cov"](
            share=share, low=float(low), high=float(high), clip_low=inf, clip_high=inf
        )
        terms = control.shape(start_terms(advantage), batch, now_of(toy.current(toy.logits)), {})
        left = np.flatnonzero(terms.weight.numpy() == 0).tolist()
        assert len(left) == expected and set(left) <= set(open_)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("clip-cov", {"share": 0.3, "low": -9.0, "high": 9.0}),
        ("espo", {}),
        ("aepo-advantage", {}),
    ],
)
def test_what_a_failed_path_says_does_not_matter_to_the_others(toy, name, parameters) -> None:
    learned, control = toy.batch.turns.rewarded[toy.batch.row], METHODS[name](**parameters)

    def terms(push: float) -> Terms:
        logp, entropy = toy.batch.logp_old.clone(), toy.batch.entropy.clone()
        logp[~learned] -= push
        entropy[~learned] += push
        batch = replace(toy.batch, logp_old=logp, entropy=entropy)
        advantage = torch.linspace(-2, 2, batch.n_slots, dtype=torch.float64) * learned
        return control.shape(start_terms(advantage), batch, Now.at_start(batch), control.init())

    quiet, loud = terms(0.0), terms(5.0)
    for column in ("advantage", "weight", "clip_low", "clip_high", "scale"):
        assert torch.allclose(
            getattr(quiet, column)[learned], getattr(loud, column)[learned], rtol=0, atol=1e-12
        )
