import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.control import advantages
from turngym.training.loss.credit import group_advantage
from turngym.training.methods.base_algorithms.grpo import grpo

VERL = {"normalize": "std", "ddof": 1, "eps": 1e-6}


def relative(scores, groups=None, **options):
    score = torch.tensor(scores, dtype=torch.float64)
    return group_advantage(
        score, torch.tensor(groups or [0] * len(scores)), **{**VERL, **options}
    ).tolist()


@pytest.mark.parametrize(
    ("scores", "options", "expected"),
    [
        ([1, 0, 0, 0], {"eps": 1e-4}, [1.499700, -0.499900, -0.499900, -0.499900]),
        ([1, 0, 0, 0], {"normalize": "none"}, [0.75, -0.25, -0.25, -0.25]),
    ],
    ids=["trl", "dr-grpo"],
)
def test_sheet_examples_of_the_group_advantage(scores, options, expected) -> None:
    assert relative(scores, **options) == pytest.approx(expected, abs=1e-6)


def test_population_std_divides_by_n() -> None:
    assert relative([1, 1, 0, 0], ddof=0) == pytest.approx([1, 1, -1, -1], abs=1e-5)


def test_equal_scores_give_exactly_zero_in_float32() -> None:
    score = torch.full((7,), 0.1)
    assert group_advantage(score, torch.zeros(7, dtype=torch.long), **VERL).tolist() == [0.0] * 7


@pytest.mark.parametrize("ddof", [0, 1])
def test_a_group_of_one_keeps_its_score(ddof) -> None:
    assert relative([3.0, 1.0, 0.0], [5, 2, 2], ddof=ddof)[0] == 3 / (1 + 1e-6)
    assert relative([3.0, 1.0, 0.0], [5, 2, 2], normalize="none") == [3.0, 0.5, -0.5]


def test_groups_do_not_touch_each_other() -> None:
    mixed = relative([1, 0, 4, 2, 0, 0], [0, 9, 0, 9, 0, 9])
    assert [mixed[place] for place in (0, 2, 4)] == relative([1, 4, 0])
    assert [mixed[place] for place in (1, 3, 5)] == relative([0, 2, 0])


def test_every_path_has_one_vote_however_many_turns_it_has(batch_of) -> None:
    batch = batch_of([[1, 1, 1], [2], [1], [1, 1]], scores=[1, 0, 0, 0])
    advantage = advantages(grpo(), batch, {}).tolist()
    assert advantage == pytest.approx([1.499997] * 3 + [-0.499999] * 5, abs=1e-6)


def test_failed_paths_leave_the_group_and_get_zero(batch_of) -> None:
    nan = float("nan")
    ends = [Outcome.DONE, Outcome.TOOL_ERROR, Outcome.TRUNCATED, Outcome.INFRA_ERROR]
    batch = batch_of([[1], [1], [1], [1]], scores=[1, nan, 0, nan], ends=ends)
    assert grpo().credit(batch, {}).tolist() == pytest.approx([0.707106, 0, -0.707106, 0], abs=1e-6)
    assert grpo().credit(
        batch_of([[1]], scores=[nan], ends=[Outcome.INFRA_ERROR]), {}
    ).tolist() == [0]


def test_a_turn_without_a_sampled_token_still_counts_its_path(batch_of) -> None:
    batch = batch_of([[2], [0]], scores=[1, 0])
    assert advantages(grpo(), batch, {}).tolist() == pytest.approx([0.707106] * 2, abs=1e-5)


def test_only_what_differs_from_the_defaults_is_claimed() -> None:
    assert grpo().sets == {"credit"}
    assert grpo(clip_high=0.28).sets == {"credit", "clip"}
    assert grpo(aggregation="turn-mean").sets == {"credit", "aggregation"}
    assert not grpo().needs.logp_ref
    assert grpo(kl_coef=0.04).needs.logp_ref


def test_a_step_raises_the_better_path_and_lowers_the_worse(toy) -> None:
    _, gradient = toy.learn(grpo(), {})
    moved = toy.current(toy.logits - 0.1 * gradient).logp - toy.current(toy.logits).logp
    better, worse = (float(moved[toy.batch.path == path].sum()) for path in (0, 1))
    assert better > 0 > worse
    assert moved[toy.batch.path == 4].abs().max() == 0
