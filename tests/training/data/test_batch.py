from dataclasses import replace

import pytest
import torch

from turngym.envs import Outcome
from turngym.tests.support.toy import now_of
from turngym.training.data.batch import OUTCOMES, Current, Now, Penalty
from turngym.training.loss.objective import start_terms


def test_outcomes_are_numbered_as_declared() -> None:
    assert [OUTCOMES[number] for number in (0, 1, 2, 3)] == [
        "done",
        "truncated",
        "tool_error",
        "infra_error",
    ]


def test_only_done_and_truncated_paths_are_rewarded(batch_of) -> None:
    batch = batch_of([[1], [1], [1], [1]], ends=list(Outcome))
    assert batch.turns.rewarded.tolist() == [True, True, False, False]


def test_turn_and_group_are_read_through_the_row(batch_of) -> None:
    batch = batch_of([[2, 1], [1]], groups=[4, 7])
    assert batch.turn.tolist() == [0, 0, 1, 0]


def test_slice_takes_whole_paths_and_renumbers_them(batch_of) -> None:
    batch = batch_of(
        [[2, 1], [1], [2]], logp_old=[0, 1, 2, 3, 4, 5], logp_ref=[0, 10, 20, 30, 40, 50]
    )
    batch = replace(batch, extras={"top": torch.arange(12.0).reshape(6, 2)})
    part = batch.slice(range(1, 3))
    assert batch.span(range(1, 3)) == slice(3, 6)
    assert (part.n_paths, part.n_slots, part.path.tolist()) == (2, 3, [0, 1, 1])
    assert part.logp_old.tolist() == [3, 4, 5]
    assert part.logp_ref.tolist() == [30, 40, 50]
    assert part.row.tolist() == [2, 3, 3]
    assert part.turns is batch.turns
    assert part.extras["top"].tolist() == [[6, 7], [8, 9], [10, 11]]


def test_slices_of_all_paths_cover_every_slot_once(toy) -> None:
    spans = [toy.batch.span(range(path, path + 1)) for path in range(toy.batch.n_paths)]
    slots = [slot for span in spans for slot in range(span.start, span.stop)]
    assert slots == list(range(toy.batch.n_slots))


def test_a_path_without_a_slot_keeps_its_number(batch_of) -> None:
    batch = batch_of([[1], [0], [2]])
    assert batch.path.tolist() == [0, 2, 2]
    assert batch.slice(range(1, 2)).n_slots == 0
    assert batch.slice(range(1, 3)).path.tolist() == [1, 1]


@pytest.mark.parametrize("paths", [range(3), range(-1, 1), range(0, 2, 2), range(2, 1)])
def test_span_refuses_paths_the_batch_does_not_have(batch_of, paths) -> None:
    with pytest.raises(ValueError, match=r"takes contiguous paths out of range\(2\)"):
        batch_of([[1], [1]]).span(paths)


def test_paths_must_lie_end_to_end(batch_of) -> None:
    batch = batch_of([[1], [1]])
    with pytest.raises(ValueError, match="not ascending"):
        replace(batch, path=torch.tensor([1, 0]))


def test_terms_slice_cuts_every_column_and_the_penalties() -> None:
    terms = start_terms(torch.arange(4.0))
    terms = replace(
        terms,
        penalties=(Penalty("p", torch.arange(4.0), lambda current, batch, terms: current.logp),),
    )
    part = terms.slice(slice(1, 3))
    assert part.advantage.tolist() == [1, 2]
    assert {
        column.numel() for column in vars(part).values() if isinstance(column, torch.Tensor)
    } == {2}
    assert part.penalties[0].coef.tolist() == [1, 2]


def test_now_at_the_start_is_the_old_policy_and_detach_drops_the_gradient(toy) -> None:
    start = Now.at_start(toy.batch)
    assert start.logp is toy.batch.logp_old
    assert start.entropy is toy.batch.entropy
    now = toy.current(toy.logits.clone().requires_grad_())
    now = now_of(Current(now.logp, now.entropy, {"top": now.logp}))
    assert not (
        now.logp.requires_grad or now.entropy.requires_grad or now.extras["top"].requires_grad
    )
