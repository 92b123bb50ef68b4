import pytest
import torch

from turngym.envs import Outcome
from turngym.training.credit import by_path, discounted, earned, final_reward, gae

NAN = float("nan")
FAILED = [Outcome.DONE, Outcome.INFRA_ERROR, Outcome.TRUNCATED]


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_path_is_judged_once_however_many_turns_it_has(batch_of) -> None:
    batch = batch_of([[1, 0, 2], [1], [2]], scores=[3, 5, 7], groups=[4, 9, 4])
    seen = []

    def judge(score, group):
        seen.append((score.tolist(), group.tolist()))
        return 10 * score

    assert by_path(judge, batch).tolist() == [30, 30, 30, 50, 70, 70]
    assert seen == [([3, 5, 7], [4, 9, 4])]


def test_paths_without_a_score_are_not_judged(batch_of) -> None:
    batch = batch_of([[1], [2], [1]], scores=[1, NAN, 2], ends=FAILED)
    assert by_path(lambda score, group: score - score.mean(), batch).tolist() == [-0.5, 0, 0, 0.5]
    assert earned(batch).tolist() == [True, False, False, True]
    nobody = batch_of([[2]], scores=[NAN], ends=[Outcome.TOOL_ERROR])
    assert by_path(lambda score, group: score, nobody).tolist() == [0, 0]


def test_the_score_lies_on_the_last_sampled_token(batch_of) -> None:
    batch = batch_of([[2, 1, 0], [0], [1], [2]], scores=[3, 5, NAN, 7], ends=[*FAILED[:1], *FAILED])
    assert final_reward(batch).tolist() == [0, 0, 3, 0, 0, 7]


def test_sheet_examples_of_returns_to_go_section_6() -> None:
    path = torch.tensor([0, 0, 0, 1, 1])
    reward = f64(0, 0, 1, 0, -1)
    assert discounted(reward, path, 1.0).tolist() == [1, 1, 1, -1, -1]
    assert discounted(reward, path, 0.9).tolist() == pytest.approx([0.81, 0.9, 1, -0.9, -1], abs=1e-6)


def test_returns_agree_with_the_sum_of_the_definition() -> None:
    path = torch.tensor([0, 0, 0, 0, 1, 2, 2])
    reward = torch.randn(7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [
        sum(0.7**k * reward[t + k].item() for k in range(7 - t) if path[t + k] == path[t]) for t in range(len(path))
    ]
    assert discounted(reward, path, 0.7).tolist() == pytest.approx(expected, abs=1e-12)


def test_sheet_examples_of_gae_section_2() -> None:
    value = f64(0.5, 0.4, 0.6)
    advantage = gae(f64(0, 0, 1), value, torch.zeros(3, dtype=torch.long), 1.0, 0.95)
    assert advantage.tolist() == pytest.approx([0.451, 0.58, 0.4], abs=1e-6)
    assert (advantage + value).tolist() == pytest.approx([0.951, 0.98, 1.0], abs=1e-6)
    # mask 101: the token in between has no slot
    advantage = gae(f64(0, 1), value[[0, 2]], torch.zeros(2, dtype=torch.long), 1.0, 0.95)
    assert advantage.tolist() == pytest.approx([0.48, 0.4], abs=1e-6)
    assert (advantage + value[[0, 2]]).tolist() == pytest.approx([0.98, 1.0], abs=1e-6)


def test_gae_agrees_with_its_definition_path_by_path() -> None:
    path = torch.tensor([0, 0, 0, 1, 1, 3])
    rng = torch.Generator().manual_seed(2)
    reward, value = torch.randn(2, 6, generator=rng, dtype=torch.float64)
    expected = []
    for t in range(6):
        total = 0.0
        for k in range(6 - t):
            if path[t + k] == path[t]:
                inside = t + k + 1 < 6 and path[t + k + 1] == path[t]
                after = value[t + k + 1].item() if inside else 0.0
                total += (0.9 * 0.8) ** k * (reward[t + k].item() + 0.9 * after - value[t + k].item())
        expected.append(total)
    assert gae(reward, value, path, 0.9, 0.8).tolist() == pytest.approx(expected, abs=1e-12)


def test_nothing_behind_is_nothing(batch_of) -> None:
    empty = batch_of([[0]])
    assert discounted(empty.logp_old, empty.path, 0.9).tolist() == []
    assert gae(empty.logp_old, empty.logp_old, empty.path, 0.9, 0.9).tolist() == []
    assert final_reward(empty).tolist() == []
