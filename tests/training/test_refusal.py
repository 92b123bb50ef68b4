from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.objective import Refused, check, start_terms
from turngym.training.packing import Packed, pack


@pytest.fixture
def packed() -> Packed:
    """Two paths of one turn each; the second is longer."""
    tree = Tree((4, 2, 9), 9, "nine")
    tree.add(Turn.unsampled(-1, "user", "?", np.arange(2, dtype=np.int32)))
    for branch, size in enumerate((2, 3)):
        ones = np.ones(size, np.float32)
        tree.add(Turn(0, "assistant", "!", np.arange(size, dtype=np.int32), ones > 0, -ones, ones))
        tree.leaves.append(Leaf(branch + 1, branch, Outcome.DONE, "answered", float(branch)))
    return pack([tree])


def test_what_is_finite_passes_and_so_do_bounds_that_hold_nothing(packed):
    terms = start_terms(torch.zeros(5))
    check(terms, packed)
    check(replace(terms, clip_low=torch.full((5,), torch.inf), clip_high=torch.full((5,), torch.inf)), packed)


@pytest.mark.parametrize(
    ("what", "value"), [("weight", torch.nan), ("clip_low", torch.nan), ("clip_high", -torch.inf), ("scale", torch.inf)]
)
def test_the_sample_of_the_first_number_that_is_not_is_named_with_its_key(packed, what, value):
    terms = start_terms(torch.zeros(5))
    column = getattr(terms, what).clone()
    column[2:] = value
    with pytest.raises(Refused, match=rf"^nine branch 1: the .* is {value}$") as refused:
        check(replace(terms, **{what: column}), packed)
    assert refused.value.key == (4, 2, 9, 1)


def test_a_reward_of_a_turn_and_the_reference_are_looked_at_too(packed):
    terms, batch = start_terms(torch.zeros(5)), packed.batch
    turns = replace(batch.turns, reward=torch.tensor([0.0, torch.inf]))
    with pytest.raises(Refused, match="nine branch 1: the reward of a turn is inf"):
        check(terms, replace(packed, batch=replace(batch, turns=turns)))
    with pytest.raises(Refused, match="nine branch 0: the reference's log-probability is nan"):
        check(terms, replace(packed, batch=replace(batch, logp_ref=torch.full((5,), torch.nan))))
