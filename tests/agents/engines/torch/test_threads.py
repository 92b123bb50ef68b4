"""How many threads draw: as many as pay, and none of them changes a bit."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turngym.agents.engines.torch import TorchEngine, runner
from turngym.agents.engines.torch.decoder import Decoder, Weights
from turngym.agents.engines.torch.runner import paying_threads
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy
from turngym.tests.support.policies import loaded


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return loaded(TINY)


@pytest.mark.slow
def test_no_bit_depends_on_the_number_of_threads(tiny):
    """Large enough that torch shares each operation out; threes would cut rows where nothing prevented it."""
    tokens = np.random.default_rng(0).integers(0, 600, (12, 131))
    weights, found = Weights(tiny.base), []
    for threads in (1, 2, 3, 4):
        torch.set_num_threads(threads)
        decoder = Decoder(weights, tiny.device)
        decoder.prefill([*range(12)], [0] * 12, [*tokens[:, :129]])
        found.append(
            [
                decoder.decode([*range(rows)], [129] * rows, tokens[:rows, 129].tolist())
                for rows in (2, 12)
            ]
        )
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


class Timed:
    """A runner whose time, of a clock of its own, and logits follow from the number of threads."""

    def __init__(self, seconds: dict[int, float], logits: dict[int, float]) -> None:
        self.seconds, self.logits, self.now = seconds, logits, 0.0

    def prefill(self, *given: Any) -> None:
        self.now += self.seconds[torch.get_num_threads()] / 2

    def decode(self, slots: range, *given: Any) -> torch.Tensor:
        self.now += self.seconds[threads := torch.get_num_threads()] / 2
        return torch.full((len(slots), 4), self.logits.get(threads, 0.0))


@pytest.mark.parametrize(
    ("seconds", "logits", "most", "threads"),
    [
        ({1: 0.08, 2: 0.04, 4: 0.02}, {}, 4, 4),
        ({1: 0.08, 2: 0.04, 4: 0.02}, {}, 3, 2),
        ({1: 0.08, 2: 0.04, 4: 0.035}, {}, 4, 2),  # four are hardly faster than two
        ({1: 0.08, 2: 0.07}, {}, 2, 1),
        ({1: 0.08, 2: 0.2}, {}, 2, 1),  # others compute
        ({1: 8.0, 2: 4.0}, {}, 2, 2),  # a large model is timed once
        ({1: 0.08, 2: 0.04}, {2: 1e-7}, 2, 1),  # not to the same bits
        ({}, {}, 1, 1),  # nothing to measure
    ],
)
def test_as_many_threads_draw_as_pay(monkeypatch, seconds, logits, most, threads):
    timed = Timed(seconds, logits)
    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: timed.now))
    assert paying_threads(lambda: timed, 600, 8, most) == threads == torch.get_num_threads()


def test_an_engine_measures_for_its_worker_alone(tiny, monkeypatch):
    torch.set_num_threads(1)
    engine = TorchEngine(tiny)
    monkeypatch.setattr(runner, "PAYS", 0.0)
    engine.measure_threads(2)
    assert engine.threads == 2 == engine._worker.submit(torch.get_num_threads).result()
    assert torch.get_num_threads() == 1
    monkeypatch.setattr(TorchEngine, "forward", "transformers: it is unusual")
    engine.measure_threads(2)
    assert engine.threads == 1  # whose operations nobody has written so that bits stay
    engine.close()
