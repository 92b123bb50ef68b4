import pytest
import torch

from turngym.training.control.control import advantages
from turngym.training.loss.credit import centred
from turngym.training.methods.base_algorithms.reinforce import reinforce

SCORES = {0: 1.0, 1: 0.0, 2: 0.5, 3: 1.0}  # of the toy; path 4 has none
BASELINES = {
    "none": {},
    "batch": dict.fromkeys(range(4), 0.625),
    "group": {0: 0.5, 1: 0.5, 2: 0.75, 3: 0.75},
}


def reference(toy, at, baseline):
    """Return the loss: minus the mean over paths of (s - b) times the path's log-probability."""
    logp, batch = toy.current(at).logp, toy.batch
    total = sum(
        (SCORES[path] - BASELINES[baseline].get(path, 0.0)) * logp[batch.path == path].sum().item()
        for path in SCORES
    )
    return -total / batch.n_paths


@pytest.mark.parametrize("baseline", BASELINES)
def test_value_and_gradient_agree_with_the_equation(toy, numeric_gradient, baseline) -> None:
    loss, gradient = toy.learn(reinforce(baseline=baseline), {})
    assert loss == pytest.approx(reference(toy, toy.logits, baseline), abs=1e-12)
    expected = numeric_gradient(lambda at: reference(toy, at, baseline), toy.logits)
    assert torch.allclose(gradient, expected, atol=1e-8)


def test_the_gradient_does_not_depend_on_the_old_policy(toy) -> None:
    _, gradient = toy.learn(reinforce(baseline="group"), {})
    toy.batch.logp_old.sub_(3.0)
    assert torch.equal(toy.learn(reinforce(baseline="group"), {})[1], gradient)


def test_sheet_example_of_scores_less_their_mean_section_4() -> None:
    score, group = torch.tensor([1.0, 0, 0, 0, 3.0]), torch.tensor([0, 0, 0, 0, 1])
    assert centred(score, group).tolist() == pytest.approx(
        [0.75, -0.25, -0.25, -0.25, 3.0], abs=1e-6
    )


def test_edge_cases_of_the_baselines(batch_of) -> None:
    alone = batch_of([[2], [0]], scores=[0.7, 0.7], groups=[0, 1])
    assert advantages(reinforce(baseline="group"), alone, {}).tolist() == [
        0.7,
        0.7,
    ]  # a group of one
    assert advantages(reinforce(baseline="batch"), alone, {}).tolist() == [0, 0]  # no variance
    assert advantages(reinforce(), alone, {}).tolist() == [0.7, 0.7]


def test_only_what_it_replaces_is_claimed() -> None:
    assert reinforce().sets == {"surrogate", "aggregation"}
    assert reinforce(baseline="batch", aggregation="token-mean").sets == {"surrogate", "credit"}
