"""Toys of learning as fixtures."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from turngym.tests.support import toy as toys
from turngym.tests.support.toy import Toy, build, make_toy
from turngym.training.data.batch import Batch, Current


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Batch]:
    return build


@pytest.fixture(scope="session")
def toy_of() -> Callable[..., Toy]:
    return make_toy


@pytest.fixture
def toy() -> Toy:
    return make_toy()


@pytest.fixture
def sheet() -> tuple[Batch, Current, Tensor]:
    return toys.sheet()


@pytest.fixture(scope="session")
def numeric_gradient() -> Callable[[Callable[[Tensor], float], Tensor], Tensor]:
    """Return the gradient of a function of float64 logits by central differences, without autograd."""

    def gradient(function: Callable[[Tensor], float], at: Tensor, width: float = 1e-6) -> Tensor:
        result = torch.zeros_like(at)
        for place in range(at.numel()):
            step = torch.zeros_like(at)
            step.view(-1)[place] = width
            result.view(-1)[place] = (function(at + step) - function(at - step)) / (2 * width)
        return result

    return gradient
