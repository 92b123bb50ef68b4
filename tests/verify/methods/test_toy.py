"""The toy is what the battery takes it for."""

import pytest
import torch

from turngym.tests.verify.methods.toy import GROUPS, PATHS, build, make_toy, sheet
from turngym.training.control import Control


def test_the_toy_has_every_kind_of_path():
    toy = make_toy()
    assert toy.batch.n_slots == sum(map(sum, PATHS)) and toy.batch.n_paths == len(PATHS)
    assert toy.batch.turns.rewarded.tolist().count(False) == len(PATHS[4])
    ratio = (toy.current(toy.logits).logp - toy.batch.logp_old).exp()
    assert ratio.min() < 0.8 and ratio.max() > 1.2  # outside the clip, on both sides
    assert set(toy.batch.group.tolist()) == set(GROUPS)


def test_the_order_of_paths_changes_no_number_of_a_path():
    toy, other = make_toy(), make_toy((4, 3, 2, 1, 0))
    for path in range(5):
        mine, theirs = toy.batch.path == path, other.batch.path == 4 - path
        assert torch.equal(toy.logits[mine], other.logits[theirs])
        assert torch.equal(toy.batch.logp_roll[mine], other.batch.logp_roll[theirs])


def test_the_gradient_is_that_of_the_loss(numeric_gradient):
    toy = make_toy()
    nothing = Control(name="nothing")

    def loss(at):
        return type(toy)(at, toy.drawn, toy.batch).learn(nothing, {})[0]

    assert torch.allclose(toy.learn(nothing, {})[1], numeric_gradient(loss, toy.logits), atol=1e-8)


def test_the_sheets_batch_has_the_sheets_ratios():
    batch, current, _ = sheet()
    expected = [1.105171, 1.491825, 0.740818, 0.670320, 1.349859]
    assert (current.logp - batch.logp_old).exp().tolist() == pytest.approx(expected, abs=1e-6)


def test_turns_and_paths_without_a_token_have_rows_and_no_slots():
    batch = build([[2, 0], [0]])
    assert batch.n_slots == 2 and batch.n_paths == 2 and len(batch.turns.turn) == 3
