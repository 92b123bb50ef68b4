from functools import partial

import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.methods import METHODS
from turngym.training.methods.base_algorithms.rloo import leave_one_out, rloo

ADVANTAGE = {0: 1.0, 1: -1.0, 2: -0.5, 3: 0.5, 4: 0.0}  # of the toy's paths, by hand


def advantage(scores, groups=None):
    score = torch.tensor(scores, dtype=torch.float64)
    return leave_one_out(score, torch.tensor(groups or [0] * len(scores))).tolist()


def test_it_is_the_score_less_the_mean_of_the_others() -> None:
    scores = [0.3, 1.7, -2.0, 0.4, 5.0]
    expected = [own - (sum(scores) - own) / 4 for own in scores]
    mixed = advantage([*scores, 9.0, 8.0], [3] * 5 + [1] * 2)
    assert mixed == pytest.approx([*expected, 1.0, -1.0], abs=1e-12)


def test_a_group_of_one_keeps_its_score_and_equal_scores_give_zero() -> None:
    assert advantage([3.0, 0.1, 0.1, 0.1], [5, 2, 2, 2]) == [3.0, 0, 0, 0]
    assert (
        leave_one_out(torch.full((7,), 0.1), torch.zeros(7, dtype=torch.long)).tolist() == [0.0] * 7
    )


def test_failed_paths_are_not_counted(batch_of) -> None:
    ends = [Outcome.DONE, Outcome.INFRA_ERROR, Outcome.DONE]
    batch = batch_of([[1], [1], [1]], scores=[1, float("nan"), 0], ends=ends)
    assert advantages(rloo(), batch, {}).tolist() == [1, 0, -1]


def paper(toy, at):
    logp, batch = toy.current(at).logp, toy.batch
    return (
        -sum(a * logp[batch.path == path].sum().item() for path, a in ADVANTAGE.items())
        / batch.n_paths
    )


def code(toy, at):
    ratio = (toy.current(at).logp - toy.batch.logp_old).exp()
    total = 0.0
    for r, path in zip(ratio.tolist(), toy.batch.path.tolist()):
        total += max(-ADVANTAGE[path] * r, -ADVANTAGE[path] * min(max(r, 0.8), 1.2))
    return total / toy.batch.n_slots


@pytest.mark.parametrize(
    ("method", "equation"), [(rloo, paper), (partial(rloo, variant="code"), code)]
)
def test_value_and_gradient_agree_with_the_equation(
    toy, numeric_gradient, method, equation
) -> None:
    loss, gradient = toy.learn(method(), {})
    assert loss == pytest.approx(equation(toy, toy.logits), abs=1e-12)
    assert torch.allclose(
        gradient, numeric_gradient(lambda at: equation(toy, at), toy.logits), atol=1e-8
    )


def test_the_code_leaves_the_policy_term_to_the_run() -> None:
    assert rloo().sets == {"credit", "surrogate", "aggregation"}
    assert METHODS["rloo"](variant="code").sets == {"credit"}
