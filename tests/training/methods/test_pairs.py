"""Any two methods either learn a step together, or are refused with both names before they are built."""

from itertools import combinations

import pytest
import torch

from turngym.training.control.chain import chain
from turngym.training.methods import METHODS, check_methods, parse_methods

PAIRS = list(combinations(METHODS, 2))


@pytest.mark.slow
@pytest.mark.parametrize("first", METHODS)
def test_any_two_methods_go_together_or_are_refused_with_both_names(first, toy) -> None:
    together = 0
    for second in (other for one, other in PAIRS if one == first):
        try:
            check_methods(f"{first},{second}")
        except ValueError as error:
            assert f"{first} and {second} both set" in str(error)
            continue
        control = chain(*parse_methods(f"{first},{second}"))
        loss, gradient = toy.learn(control, control.init())
        assert torch.isfinite(torch.tensor(loss)) and bool(torch.isfinite(gradient).all())
        together += 1
    assert together or first == list(METHODS)[-1]
