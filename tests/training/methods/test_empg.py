"""EMPG: the worked example of agentic.md, section B, its edge cases, and the equations once more in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.control.control import advantages
from turngym.training.data.batch import Now
from turngym.training.loss.aggregation import mean_by
from turngym.training.loss.credit import steps
from turngym.training.loss.objective import start_terms
from turngym.training.methods.advantage.empg import empg, modulation
from turngym.training.methods.base_algorithms.grpo import grpo

STEPS = [0.2, 0.8, 0.5, 1.1, 0.3]  # mean entropy of each step of the sheet
SHEET = {"k": 1.0, "k_next": 1.0, "zeta": 0.05}


def modulated(batch, advantage, control) -> torch.Tensor:
    terms = start_terms(torch.tensor(advantage, dtype=torch.float64))
    return control.shape(terms, batch, Now.at_start(batch), {}).advantage


@pytest.fixture
def example(batch_of):
    """The five steps of the sheet, two tokens each whose mean is the step's entropy."""
    entropy = [value + shift for value in STEPS for shift in (-0.1, 0.1)]
    return batch_of([[2, 2, 2], [2, 2]], entropy=entropy)


def test_sheet_section_b_gain_and_clarity() -> None:
    gain, clear = modulation(torch.tensor(STEPS, dtype=torch.float64), 1.0, 1.0)
    assert gain.tolist() == pytest.approx(
        [1.431571, 0.734993, 1.025765, 0.526645, 1.281026], abs=1e-6
    )
    assert clear.tolist() == pytest.approx([1.0, 0.513417, 0.716531, 0.367879, 0.894839], abs=1e-6)
    assert gain.mean().item() == pytest.approx(1.0, abs=1e-15)


def test_sheet_section_b_advantages(example) -> None:
    sign = [1.0] * 6 + [-1.0] * 4
    raw = modulated(example, sign, empg(**SHEET, center=False))[::2]
    assert raw.tolist() == pytest.approx(
        [1.457242, 0.770819, 1.025765, -0.481903, -1.281026], abs=1e-6
    )
    assert raw.mean().item() == pytest.approx(0.298179, abs=1e-6)
    final = modulated(example, sign, empg(**SHEET))
    expected = [1.159062, 0.472640, 0.727586, -0.780083, -1.579205]
    assert final.tolist() == pytest.approx(
        [value for value in expected for _ in range(2)], abs=1e-6
    )


def test_steps_of_equal_entropy_leave_only_the_bonus(batch_of) -> None:
    batch = batch_of([[3, 2], [1]], entropy=[0.7] * 6)
    raw = modulated(batch, [1.0] * 5 + [-1.0], empg(zeta=0.1, center=False))
    assert raw.tolist() == pytest.approx([1.1] * 3 + [1.0] * 2 + [-1.0], abs=1e-7)
    mean = (1.1 + 1.0 - 1.0) / 3
    final = modulated(batch, [1.0] * 5 + [-1.0], empg(zeta=0.1))
    assert final.tolist() == pytest.approx([value - mean for value in raw.tolist()], abs=1e-7)


def test_rounding_of_equal_entropies_is_not_blown_up_to_a_spread(batch_of) -> None:
    batch = batch_of([[3], [7], [1]])
    batch = replace(batch, entropy=torch.full((11,), 0.1))
    raw = modulated(batch, [1.0] * 11, empg(center=False))
    assert raw.tolist() == pytest.approx([1.0] * 11, abs=1e-6)


def test_groups_of_equal_scores_get_an_advantage(example) -> None:
    final = modulated(example, [0.0] * 10, empg())
    assert final.abs().min() > 1e-3
    assert final[::2].mean().item() == pytest.approx(0.0, abs=1e-15)


def test_single_turns_get_no_bonus_and_keep_sign_and_order(batch_of) -> None:
    batch = batch_of([[2], [1], [1]], entropy=[0.1, 0.3, 0.9, 0.4])
    raw = modulated(batch, [1.0, 1.0, -1.0, 0.0], empg(zeta=5.0, center=False))
    gain = modulation(torch.tensor([0.2, 0.9, 0.4], dtype=torch.float64), 1.0, 1.0)[0].tolist()
    assert raw.tolist() == pytest.approx([gain[0], gain[0], -gain[1], 0.0])


def test_a_step_without_a_token_is_passed_over(batch_of) -> None:
    entropy = [0.2, 0.8, 0.5]
    with_hole = batch_of([[1, 0, 1], [1, 0]], entropy=entropy)
    without = batch_of([[1, 1], [1]], entropy=entropy)
    sign = [1.0, 1.0, -1.0]
    assert torch.equal(modulated(with_hole, sign, empg()), modulated(without, sign, empg()))


def test_failed_paths_count_nowhere_and_stay_at_zero(batch_of) -> None:
    sign = [1.0, 1.0, -1.0]
    alone = modulated(batch_of([[1, 1], [1]], entropy=[0.2, 0.8, 0.5]), sign, empg())
    ends = [Outcome.DONE, Outcome.INFRA_ERROR, Outcome.TRUNCATED]
    batch = batch_of([[1, 1], [2], [1]], entropy=[0.2, 0.8, 9.0, 0.0, 0.5], ends=ends)
    final = modulated(batch, [1.0, 1.0, 0.0, 0.0, -1.0], empg())
    assert final.tolist() == [*alone[:2].tolist(), 0.0, 0.0, alone[2].item()]
    failed = batch_of([[2]], entropy=[0.3, 0.4], ends=[Outcome.INFRA_ERROR])
    assert modulated(failed, [0.0, 0.0], empg()).tolist() == [0.0, 0.0]


def test_a_step_that_paths_share_counts_once_for_each(batch_of) -> None:
    entropy = [0.2, 0.8, 0.2, 0.5]
    batch = batch_of([[1, 1], [1, 1]], entropy=entropy)
    shared = replace(
        batch, token=torch.tensor([0, 1, 0, 2]), share=torch.tensor([0.5, 1.0, 0.5, 1.0]).double()
    )
    sign = [1.0, 1.0, -1.0, -1.0]
    assert torch.equal(modulated(shared, sign, empg()), modulated(batch, sign, empg()))


def test_the_steps_are_those_of_the_whole_batch_not_of_a_group(example) -> None:
    grouped = replace(example, turns=replace(example.turns, group=example.turns.path))
    sign = [1.0] * 6 + [-1.0] * 4
    assert torch.equal(modulated(grouped, sign, empg()), modulated(example, sign, empg()))


def test_tokens_of_a_step_may_differ_in_advantage(batch_of) -> None:
    batch = batch_of([[2], [1]], entropy=[0.5, 0.5, 0.5])
    assert modulated(batch, [1.0, 3.0, 0.0], empg()).tolist() == pytest.approx(
        [0.0, 2.0, -1.0], abs=1e-12
    )


def reference(toy, advantage, k, k_next, zeta):
    """Return A_final by the equations, step by step in NumPy."""
    path, turn, entropy = toy.batch.path.numpy(), toy.batch.turn.numpy(), toy.batch.entropy.numpy()
    found = [
        (j, t) for j in range(4) for t in range(turn[path == j].max() + 1)
    ]  # the fifth path has failed
    level = {(j, t): entropy[(path == j) & (turn == t)].mean() for j, t in found}
    low, high = min(level.values()), max(level.values())
    scaled = {key: (value - low) / (high - low + 1e-8) for key, value in level.items()}
    mean = np.mean([np.exp(-k * value) for value in scaled.values()])
    final = {}
    for j, t in found:
        future = np.exp(-k_next * scaled[j, t + 1]) if (j, t + 1) in scaled else 0.0
        own = advantage[(path == j) & (turn == t)][0].item()
        final[j, t] = own * np.exp(-k * scaled[j, t]) / mean + zeta * future
    average = np.mean(list(final.values()))
    return [final[j, t] - average if (j, t) in final else 0.0 for j, t in zip(path, turn)]


def test_behind_grpo_it_agrees_with_the_equations(toy) -> None:
    control = chain(grpo(), empg(k=1.5, k_next=0.7, zeta=0.3))
    credit = advantages(control, toy.batch, [{}, {}])
    terms = control.shape(start_terms(credit), toy.batch, Now.at_start(toy.batch), [{}, {}])
    assert terms.advantage.tolist() == pytest.approx(
        reference(toy, credit, 1.5, 0.7, 0.3), abs=1e-12
    )


def test_steps_and_means(batch_of) -> None:
    batch = batch_of([[0, 2], [1]], entropy=[0.1, 0.3, 0.7])
    learned, rows, step = steps(batch)
    assert (learned.tolist(), rows.tolist(), step.tolist()) == ([True] * 3, [1, 2], [0, 0, 1])
    assert mean_by(step, batch.entropy).tolist() == pytest.approx([0.2, 0.7])
