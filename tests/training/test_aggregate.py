from dataclasses import replace

import pytest
import torch

from turngym.training.credit import average, path_mean, path_sum, scale, whiten

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
    assert ((scale(mode, batch, size) * LOSS).sum() / batch.n_slots).item() == pytest.approx(expected, abs=1e-6)


def test_sheet_example_of_the_nested_turn_mean(batch_of) -> None:
    entropy = [1.0, 0.5, 0.2, 0.4, 0.4, 0.1, 2.0, 0.6]
    batch = batch_of([[2, 1], [3, 2]], entropy=entropy)
    assert average("turn-mean", batch.entropy, batch).item() == pytest.approx(0.6375, abs=1e-6)
    assert average("token-mean", batch.entropy, batch).item() == pytest.approx(0.65, abs=1e-6)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "turn-mean"])
def test_the_mean_of_a_constant_is_the_constant(toy, mode) -> None:
    assert average(mode, torch.full_like(toy.batch.entropy, 7.0), toy.batch).item() == pytest.approx(7.0, abs=1e-12)


def test_paths_and_turns_without_a_sampled_token_are_not_counted(batch_of) -> None:
    full, gaps = batch_of([[2, 1], [3]]), batch_of([[2, 0, 1], [0], [3, 0]])
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "turn-mean"):
        assert torch.equal(scale(mode, full, 3), scale(mode, gaps, 3))


def test_single_turn_paths_make_turn_mean_the_mean_of_path_means(batch_of) -> None:
    batch = batch_of([[3], [2], [5]])
    assert torch.equal(scale("turn-mean", batch), scale("seq-mean-token-mean", batch))


def test_turn_mean_agrees_with_loops_over_paths_and_turns(toy) -> None:
    batch, values = toy.batch, toy.batch.logp_old
    means = []
    for path in range(batch.n_paths):
        inside = batch.path == path
        turns = [values[inside & (batch.turn == turn)].mean() for turn in batch.turn[inside].unique()]
        means.append(torch.stack(turns).mean())
    assert average("turn-mean", values, batch).item() == pytest.approx(torch.stack(means).mean().item(), abs=1e-12)


def test_a_subset_of_a_rollout_counts_only_its_own_paths(toy) -> None:
    part = toy.batch.slice(range(2, 4))
    assert average("turn-mean", torch.ones_like(part.entropy), part).item() == pytest.approx(1.0, abs=1e-12)


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
    assert loss("seq-mean-token-sum-norm", True) == pytest.approx(16 / (4 * 3), abs=1e-12)  # TRL: all rows
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
