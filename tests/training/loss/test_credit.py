""""""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from turngym.envs import Outcome
from turngym.training.loss.aggregation import average, path_mean, path_sum, scale, whiten
from turngym.training.loss.credit import by_path, earned, final_reward
from turngym.training.loss.gae import discounted, gae

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
    assert discounted(reward, path, 0.9).tolist() == pytest.approx(
        [0.81, 0.9, 1, -0.9, -1], abs=1e-6
    )


def test_returns_agree_with_the_sum_of_the_definition() -> None:
    path = torch.tensor([0, 0, 0, 0, 1, 2, 2])
    reward = torch.randn(7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = [
        sum(0.7**k * reward[t + k].item() for k in range(7 - t) if path[t + k] == path[t])
        for t in range(len(path))
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
                total += (0.9 * 0.8) ** k * (
                    reward[t + k].item() + 0.9 * after - value[t + k].item()
                )
        expected.append(total)
    assert gae(reward, value, path, 0.9, 0.8).tolist() == pytest.approx(expected, abs=1e-12)


def test_nothing_behind_is_nothing(batch_of) -> None:
    empty = batch_of([[0]])
    assert discounted(empty.logp_old, empty.path, 0.9).tolist() == []
    assert gae(empty.logp_old, empty.logp_old, empty.path, 0.9, 0.9).tolist() == []
    assert final_reward(empty).tolist() == []


LOSS = torch.tensor([1, 2, 3, 4, 6], dtype=torch.float64)  # [[1, 2, 3], [4, 6, masked]]


@pytest.mark.parametrize(
    ("mode", "size", "expected"),
    [
        ("token-mean", 1, 3.2),
        ("seq-mean-token-sum", 1, 8.0),
        ("seq-mean-token-mean", 1, 3.5),
        ("token-sum-norm", 3, 5.333333),
        ("token-sum", 1, 16.0),
        ("seq-mean-token-sum-norm", 3, 2.666667),
    ],
)
def test_sheet_examples_of_aggregation(batch_of, mode, size, expected) -> None:
    batch = batch_of([[3], [2]])
    assert ((scale(mode, batch, size) * LOSS).sum() / batch.n_slots).item() == pytest.approx(
        expected, abs=1e-6
    )


def test_sheet_example_of_the_nested_turn_mean(batch_of) -> None:
    entropy = [1.0, 0.5, 0.2, 0.4, 0.4, 0.1, 2.0, 0.6]
    batch = batch_of([[2, 1], [3, 2]], entropy=entropy)
    assert average("turn-mean", batch.entropy, batch).item() == pytest.approx(0.6375, abs=1e-6)
    assert average("token-mean", batch.entropy, batch).item() == pytest.approx(0.65, abs=1e-6)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "turn-mean"])
def test_the_mean_of_a_constant_is_the_constant(toy, mode) -> None:
    assert average(
        mode, torch.full_like(toy.batch.entropy, 7.0), toy.batch
    ).item() == pytest.approx(7.0, abs=1e-12)


def test_paths_and_turns_without_a_sampled_token_are_not_counted(batch_of) -> None:
    full, gaps = batch_of([[2, 1], [3]]), batch_of([[2, 0, 1], [0], [3, 0]])
    for mode in (
        "seq-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "turn-mean",
    ):
        assert torch.equal(scale(mode, full, 3), scale(mode, gaps, 3))


def test_single_turn_paths_make_turn_mean_the_mean_of_path_means(batch_of) -> None:
    batch = batch_of([[3], [2], [5]])
    assert torch.equal(scale("turn-mean", batch), scale("seq-mean-token-mean", batch))


def test_turn_mean_agrees_with_loops_over_paths_and_turns(toy) -> None:
    batch, values = toy.batch, toy.batch.logp_old
    means = []
    for path in range(batch.n_paths):
        inside = batch.path == path
        turns = [
            values[inside & (batch.turn == turn)].mean() for turn in batch.turn[inside].unique()
        ]
        means.append(torch.stack(turns).mean())
    assert average("turn-mean", values, batch).item() == pytest.approx(
        torch.stack(means).mean().item(), abs=1e-12
    )


def test_a_subset_of_a_rollout_counts_only_its_own_paths(toy) -> None:
    part = toy.batch.slice(range(2, 4))
    assert average("turn-mean", torch.ones_like(part.entropy), part).item() == pytest.approx(
        1.0, abs=1e-12
    )


def test_a_batch_without_slots_averages_to_zero(batch_of) -> None:
    batch = batch_of([[0], [0]])
    for mode in ("token-mean", "seq-mean-token-mean", "token-sum-norm", "turn-mean"):
        assert average(mode, batch.entropy, batch).item() == 0


def test_the_scale_keeps_the_dtype(batch_of) -> None:
    batch = batch_of([[2], [1]])
    single = replace(batch, logp_old=batch.logp_old.float())
    assert scale("turn-mean", single).dtype == torch.float32


def test_only_counting_empty_paths_tells_the_divisors_of_verl_and_trl_apart(batch_of) -> None:
    batch = batch_of([[3], [0], [2], [0]])

    def loss(mode: str, count_empty: bool) -> float:
        return ((scale(mode, batch, 3, count_empty) * LOSS).sum() / batch.n_slots).item()

    assert loss("seq-mean-token-sum-norm", False) == pytest.approx(16 / (2 * 3), abs=1e-12)  # verl
    assert loss("seq-mean-token-sum-norm", True) == pytest.approx(
        16 / (4 * 3), abs=1e-12
    )  # TRL: all rows
    assert loss("seq-mean-token-sum", True) == pytest.approx(16 / 4, abs=1e-12)
    for mode in ("token-mean", "token-sum", "token-sum-norm"):
        assert loss(mode, True) == loss(mode, False)


def test_sums_and_means_of_paths_reach_every_slot(batch_of) -> None:
    batch = batch_of([[2, 1], [0], [2]])
    assert path_sum(LOSS, batch).tolist() == [6, 6, 6, 10, 10]
    assert path_mean(LOSS, batch).tolist() == [2, 2, 2, 5, 5]


def every(values: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def test_sheet_example_of_whitening_section_0(sheet) -> None:
    batch, _, _ = sheet
    expected = [-1.241841, 0.776151, -0.310460, -0.465690, 1.241841]
    assert whiten(batch.entropy, every(batch.entropy)).tolist() == pytest.approx(expected, abs=1e-6)


def test_whitening_looks_at_the_chosen_alone() -> None:
    chosen = torch.tensor([True, True, False, True, False])
    white = whiten(torch.where(chosen, LOSS, float("nan")), chosen)
    assert white[~chosen].tolist() == [0, 0]
    assert torch.equal(white[chosen], whiten(LOSS[chosen], every(LOSS[chosen])))
    assert white.sum().item() == pytest.approx(0, abs=1e-12)
    assert white[chosen].std().item() == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_equal_values_whiten_to_exactly_zero_in_float32(count) -> None:
    values = torch.full((count,), 0.1)
    assert whiten(values, every(values)).tolist() == [0.0] * count
    assert whiten(values, ~every(values)).tolist() == [0.0] * count


def test_unknown_modes_and_sizes_are_named(batch_of) -> None:
    with pytest.raises(ValueError, match="aggregation is 'mean'; it must be one of token-mean"):
        scale("mean", batch_of([[1]]))
    with pytest.raises(ValueError, match="aggregation size is 0"):
        scale("token-sum-norm", batch_of([[1]]), 0)
