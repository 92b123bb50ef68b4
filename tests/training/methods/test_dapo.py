from dataclasses import replace
from math import inf

import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree
from turngym.envs import Outcome
from turngym.training.control.control import Verdict, advantages
from turngym.training.data.batch import Current, Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.base_algorithms.dapo import dapo, overlong_penalty

NAN, INF = float("nan"), float("inf")


def tree(*scores, probe=None):
    """Return a tree with a leaf a score; NaN for a failure."""
    ends = [Outcome.INFRA_ERROR if score != score else Outcome.DONE for score in scores]
    leaves = [
        Leaf(0, branch, end, "", score) for branch, (score, end) in enumerate(zip(scores, ends))
    ]
    if probe is not None:
        leaves.append(Leaf(0, len(leaves), Outcome.DONE, "", probe, trained=False))
    return Tree((0, 0, 0), 0, "t", [], leaves)


def test_sheet_example_of_the_dual_clip_with_the_limit_of_the_recipe(batch_of) -> None:
    batch = batch_of([[2]])
    far = Current(torch.tensor([11.0, 9.0], dtype=torch.float64).log(), batch.entropy)
    for limit, expected in ((10.0, [10, 9]), (INF, [11, 9])):
        terms = dapo(limit=limit).shape(
            start_terms(-torch.ones_like(far.logp)), batch, Now.at_start(batch), {}
        )
        assert (-terms.surrogate(far, batch, terms)).tolist() == pytest.approx(expected, abs=1e-12)


def test_sheet_example_of_overlong_shaping() -> None:
    length = torch.tensor([16000.0, 17000.0, 18432.0, 20480.0])
    assert overlong_penalty(length, 20480, 4096, -1.0).tolist() == pytest.approx(
        [0, -0.150391, -0.5, -1], abs=1e-6
    )
    assert overlong_penalty(length, 20480, 4096, -inf).tolist() == pytest.approx(
        [0, -0.150391, -0.5, -1], abs=1e-6
    )
    beyond = torch.tensor([24576.0])
    assert overlong_penalty(beyond, 20480, 4096, -1.0).tolist() == [-1]
    assert overlong_penalty(beyond, 20480, 4096, -inf).tolist() == [-2]


def test_the_length_of_a_path_is_what_was_sampled_in_all_its_turns(batch_of) -> None:
    batch = batch_of(
        [[3, 0, 3], [4], [0], [9]],
        scores=[1, 1, 1, NAN],
        ends=[*[Outcome.DONE] * 3, Outcome.INFRA_ERROR],
    )
    score = dapo(longest=8, cache=4, overlong=2.0).reward(batch, {})
    assert score.nan_to_num(-9.0).tolist() == [
        0,
        0,
        0,
        1,
        1,
        -9,
    ]  # 1 - 2·(6 - 4)/4 on each turn of the first


def test_shaping_comes_before_the_comparison_within_the_group(batch_of) -> None:
    batch = batch_of([[6], [4]], scores=[1, 1])
    assert advantages(dapo(), batch, {}).tolist() == [0] * 10
    short = advantages(dapo(longest=8, cache=4), batch, {}).tolist()
    assert short == pytest.approx([-0.707106] * 6 + [0.707106] * 4, abs=1e-5)


def test_groups_of_equal_scores_are_drawn_anew() -> None:
    trees = [tree(1, 1, 1), tree(0, 0), tree(1, 0), tree(0.1, 0.1, NAN), tree(1, NAN, 0)]
    want, keep = Verdict.MORE, Verdict.KEEP
    assert dapo().select(trees, {}) == [want, want, keep, want, keep]
    assert dapo(dynamic=False).select(trees, {}) == [keep] * 5


def test_edge_cases_of_dynamic_sampling() -> None:
    alone, lost, empty, probed = tree(1), tree(NAN, NAN), tree(), tree(1, 1, probe=0)
    assert dapo().select([alone, tree(1, NAN), lost, empty, probed], {}) == [
        Verdict.KEEP,
        Verdict.KEEP,
        Verdict.MORE,
        Verdict.MORE,
        Verdict.MORE,
    ]
    assert dapo().select([tree(1, 1)] * 3, {}) == [Verdict.MORE] * 3  # all rejected
    assert dapo().select([], {}) == []


def reference(toy, at):
    """Return the loss in loops: group 0 is (1, 0); in group 1 the path of 5 tokens loses (5 - 3)/4 of its 0.5."""
    std = 2**-0.5
    high, low = 1.0 - 0.25, 0.5 - 0.5  # paths of 4 and 5 tokens
    first, second = 1.0, 0.0  # both of 3 tokens
    advantage = {
        0: (first - 0.5) / (std + 1e-6),
        1: (second - 0.5) / (std + 1e-6),
        2: (low - high) / 2 / ((high - low) * std + 1e-6),
        3: (high - low) / 2 / ((high - low) * std + 1e-6),
        4: 0.0,
    }
    total = 0.0
    for r, path in zip(
        (toy.current(at).logp - toy.batch.logp_old).exp().tolist(), toy.batch.path.tolist()
    ):
        a = advantage[path]
        loss = max(-a * r, -a * min(max(r, 0.8), 1.28))
        total += min(loss, -a * 1.5) if a < 0 else loss
    return total / toy.batch.n_slots


def test_value_and_gradient_agree_with_the_equations(toy, numeric_gradient) -> None:
    loss, gradient = toy.learn(dapo(longest=7, cache=4, limit=1.5), {})
    assert loss == pytest.approx(reference(toy, toy.logits), abs=1e-12)
    assert torch.allclose(
        gradient, numeric_gradient(lambda at: reference(toy, at), toy.logits), atol=1e-8
    )


def test_with_its_parts_off_it_is_grpo(toy) -> None:
    off = dapo(clip_high=0.2, limit=INF, overlong=0.0, dynamic=False)
    ours, theirs = toy.learn(off, {}), toy.learn(METHODS["grpo"](), {})
    assert ours[0] == theirs[0]
    assert torch.equal(ours[1], theirs[1])
    assert off.sets == METHODS["grpo"]().sets
    assert dapo().sets == {"credit", "clip", "surrogate"}


def test_a_shorter_dtype_stays(toy) -> None:
    turns = replace(toy.batch.turns, score=toy.batch.turns.score.float())
    assert dapo().reward(replace(toy.batch, turns=turns), {}).dtype == torch.float32
