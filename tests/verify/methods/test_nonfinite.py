from collections.abc import Iterator

import pytest
import torch

from turngym.tests.verify.methods.nonfinite import Numbers
from turngym.training.loop.learner import Learner


@pytest.fixture(scope="module")
def numbers() -> Iterator[Numbers]:
    before = torch.get_num_threads()
    yield Numbers(seed=0)
    torch.set_num_threads(before)


def test_a_learner_that_takes_every_step_makes_the_row_fall_short(numbers, monkeypatch):
    def apply(learner: Learner, update: object) -> None:
        with torch.no_grad():
            next(iter(learner.parameters.values())).add_(1e-3)

    monkeypatch.setattr(Learner, "apply", apply)
    rows = list(numbers.rows(1))
    assert (rows[0].held, rows[0].of) == (0, 1) and "0 logp_old nan" in rows[0].note
