"""The toy is what the battery takes it for."""

import torch

from turngym.tests.support.toy import GROUPS, PATHS, make_toy


def test_the_toy_has_every_kind_of_path():
    toy = make_toy()
    assert toy.batch.n_slots == sum(map(sum, PATHS)) and toy.batch.n_paths == len(PATHS)
    assert toy.batch.turns.rewarded.tolist().count(False) == len(PATHS[4])
    ratio = (toy.current(toy.logits).logp - toy.batch.logp_old).exp()
    assert ratio.min() < 0.8 and ratio.max() > 1.2  # outside the clip, on both sides
    assert set(toy.batch.turns.group.tolist()) == set(GROUPS)


def test_the_order_of_paths_changes_no_number_of_a_path():
    toy, other = make_toy(), make_toy((4, 3, 2, 1, 0))
    for path in range(5):
        mine, theirs = toy.batch.path == path, other.batch.path == 4 - path
        assert torch.equal(toy.logits[mine], other.logits[theirs])
        assert torch.equal(toy.batch.logp_roll[mine], other.batch.logp_roll[theirs])
