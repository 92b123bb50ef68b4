"""DART-GUI: the worked example of agentic.md, section J1, its edge cases, and the equations once more in NumPy."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree
from turngym.envs import Outcome
from turngym.training.control.control import Verdict, advantages
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods.advantage.dart import dart, step_advantage


def shaped(batch, control):
    terms = start_terms(torch.ones(batch.n_slots, dtype=torch.float64))
    return control.shape(terms, batch, Now.at_start(batch), {})


def tree(*scores: float) -> Tree:
    leaves = [Leaf(0, branch, Outcome.DONE, "", score) for branch, score in enumerate(scores)]
    return Tree((0, 0, 0), 0, "task", [], leaves)


def test_a_group_of_equal_scores_is_dropped() -> None:
    trees = [tree(1, 0), tree(1, 1), tree(1), tree()]
    assert dart().select(trees, {}) == [Verdict.KEEP, Verdict.DROP, Verdict.DROP, Verdict.DROP]
    assert dart(drop=False).select(trees, {}) == [Verdict.KEEP] * 4


def test_equal_scores_give_no_advantage(batch_of) -> None:
    batch = batch_of([[1, 1], [1], [1]], scores=[0.1, 0.1, 0.7], groups=[0, 0, 1])
    assert advantages(dart(), batch, {}).tolist() == [0.0] * 4


def test_the_quantile_is_of_the_group(batch_of) -> None:
    batch = batch_of([[1, 1, 1], [1, 1, 1]], entropy=[0.1, 0.2, 0.3, 1.0, 2.0, 3.0], groups=[0, 1])
    assert shaped(batch, dart(limit=0.0)).weight.tolist() == [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]


def test_of_single_turns_the_quantile_is_over_paths(batch_of) -> None:
    batch = batch_of([[2], [1], [1], [1], [1]], entropy=[0.0, 0.2, 0.2, 0.3, 0.4, 0.5])
    assert shaped(batch, dart(limit=0.0)).weight.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_steps_of_equal_entropy_are_all_kept(batch_of) -> None:
    batch = batch_of([[3], [7], [1]])
    batch = replace(batch, entropy=torch.full((11,), 0.1))
    assert shaped(batch, dart(limit=0.0)).weight.tolist() == [1.0] * 11


def test_a_step_that_is_not_learned_from_has_neither_policy_term_nor_kl(batch_of) -> None:
    batch = batch_of([[1, 1]], entropy=[0.1, 0.2], logp_ref=[0.0, 0.0])
    terms = shaped(batch, dart())
    assert terms.weight.tolist() == [0.0, 1.0]
    assert terms.kl_coef.tolist() == [0.0, 0.1]
    assert terms.scale.tolist() == [1.0, 1.0]


def test_the_importance_weight_is_truncated(batch_of) -> None:
    batch = batch_of([[3]], logp_old=[-1.0, -1.0, -1.0], logp_roll=[-0.5, -1.5, -1.0])
    assert shaped(batch, dart()).weight.tolist() == pytest.approx([0.606531, 1.0, 1.0], abs=1e-6)
    assert shaped(batch, dart(limit=1.2)).weight.tolist() == pytest.approx(
        [0.606531, 1.2, 1.0], abs=1e-6
    )
    assert shaped(batch, dart(limit=inf)).weight.tolist() == pytest.approx(
        [0.606531, 1.648721, 1.0], abs=1e-6
    )


def test_statistics_over_the_kept_steps_only(batch_of) -> None:
    batch = batch_of([[1, 1], [1, 1, 1]], entropy=[0.1, 0.9, 0.9, 0.9, 0.9], scores=[1.0, 0.0])
    kept = advantages(dart(over="kept"), batch, {}).tolist()
    std = (0.25 * 0.75) ** 0.5
    assert kept == pytest.approx([0.75 / std] * 2 + [-0.25 / std] * 3)
    assert kept != pytest.approx(advantages(dart(), batch, {}).tolist())


def test_votes_are_those_of_the_voters_alone() -> None:
    score, group = torch.tensor([1.0, 0.0, 5.0]), torch.tensor([3, 3, 3])
    voters = torch.tensor([True, True, False])
    assert step_advantage(score, group, voters).tolist() == pytest.approx([1.0, -1.0, 9.0])


def test_steps_without_a_token_and_failed_paths_have_no_vote(batch_of) -> None:
    ends = [Outcome.DONE, Outcome.DONE, Outcome.INFRA_ERROR]
    entropy = [0.5, 0.2, 0.4, 0.0, 0.0]
    batch = batch_of(
        [[1, 0], [1, 0, 1], [2]], entropy=entropy, scores=[1.0, 0.0, float("nan")], ends=ends
    )
    assert advantages(dart(), batch, {}).tolist() == pytest.approx(
        [2**0.5, -(2**-0.5), -(2**-0.5), 0.0, 0.0]
    )
    assert shaped(batch, dart(limit=0.0)).weight[:3].tolist() == [1.0, 0.0, 1.0]


def test_defaults_of_the_loss(batch_of) -> None:
    control = dart()
    terms = shaped(batch_of([[2]], logp_ref=[0.0, 0.0]), control)
    assert terms.clip_low.tolist() == pytest.approx([0.2] * 2)
    assert terms.clip_high.tolist() == pytest.approx([0.28] * 2)
    assert terms.kl_coef.tolist() == [0.1] * 2
    assert (control.sets, control.needs.logp_ref) == ({"credit", "clip"}, True)
    assert dart(clip_high=0.2, kl_coef=0.0).sets == {"credit"}
    assert not dart(kl_coef=0.0).needs.logp_ref


def reference(toy, logits, skip, limit, kl_coef):
    """Return the loss by the equations in NumPy; the fifth path has failed and is left out of the policy term."""
    batch, value = toy.batch, logits.numpy()
    logp = value - np.log(np.exp(value).sum(-1, keepdims=True))
    logp = logp[np.arange(len(logp)), toy.drawn.numpy()]
    old, roll, ref = batch.logp_old.numpy(), batch.logp_roll.numpy(), batch.logp_ref.numpy()
    path, row, group = batch.path.numpy(), batch.row.numpy(), batch.turns.group[batch.row].numpy()
    score, entropy = batch.turns.score[batch.row].numpy(), batch.entropy.numpy()
    total = 0.0
    for slot in range(len(path)):
        ratio, kl = (
            np.exp(logp[slot] - old[slot]),
            np.exp(ref[slot] - logp[slot]) - ref[slot] + logp[slot] - 1,
        )
        if path[slot] == 4:
            total += kl_coef * kl
            continue
        rows = np.unique(row[(group == group[slot]) & (path < 4)])
        scores = np.array([score[row == r][0] for r in rows])
        levels = np.array([entropy[row == r].mean() for r in rows])
        if entropy[row == row[slot]].mean() < np.quantile(levels, skip):
            continue
        advantage = (score[slot] - scores.mean()) / scores.std()
        policy = min(ratio * advantage, np.clip(ratio, 0.8, 1.28) * advantage)
        total += kl_coef * kl - min(np.exp(old[slot] - roll[slot]), limit) * policy
    return total / len(path)


def test_loss_and_gradient_agree_with_the_equations(toy, numeric_gradient) -> None:
    settings = {"skip": 0.3, "limit": 1.0, "kl_coef": 0.1}
    loss, gradient = toy.learn(dart(**settings), {})
    assert loss == pytest.approx(reference(toy, toy.logits, **settings), abs=1e-12)
    assert torch.allclose(
        gradient, numeric_gradient(lambda at: reference(toy, at, **settings), toy.logits), atol=1e-8
    )
