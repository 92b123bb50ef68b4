from collections.abc import Iterator

import pytest
import torch

from turngym.tests.verify.methods.nonfinite import WHERE, Numbers
from turngym.training.learner import Learner


@pytest.fixture(scope="module")
def numbers() -> Iterator[Numbers]:
    before = torch.get_num_threads()
    yield Numbers(seed=0)
    torch.set_num_threads(before)


def test_a_number_that_is_not_finite_anywhere_changes_nothing_and_is_named(numbers):
    rows = list(numbers.rows(len(WHERE)))
    assert [(row.held, row.of) for row in rows] == [(len(WHERE), len(WHERE))] * 3, [row.note for row in rows]


def test_a_learner_that_takes_every_step_makes_the_row_fall_short(numbers, monkeypatch):
    def apply(learner: Learner, update: object) -> None:
        with torch.no_grad():
            next(iter(learner.parameters.values())).add_(1e-3)

    monkeypatch.setattr(Learner, "apply", apply)
    rows = list(numbers.rows(1))
    assert (rows[0].held, rows[0].of) == (0, 1) and "0 logp_old nan" in rows[0].note
