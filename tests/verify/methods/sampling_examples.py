"""The worked examples of the sheets on sampling, and on rewards by length and difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from math import log1p

import torch

from turngym.agents.trajectory import Key
from turngym.tests.support.toy import f64
from turngym.tests.verify.methods.examples import Example
from turngym.training.methods.contrib.adr import chance, mode
from turngym.training.methods.kl.sent import semantic
from turngym.training.methods.reward.adathink_med import by_length, difficulty, spread
from turngym.training.methods.sampling.em_inf import cooled
from turngym.training.methods.sampling.em_inf import entropy as doubt

ADV = "advantage.md 1"
LOGITS = f64([2, 1, 0, -1])[None]


def rated() -> Sequence[float]:
    """Return e of two paths with mean entropies 1 and 0.5, the first right, and d of their group."""
    keys: list[Key] = [(0, 0, 0, 0), (0, 0, 0, 1)]
    doubt = dict(zip(keys, spread([log1p(1.0), log1p(0.5)])))
    return [*doubt.values(), *difficulty(dict(zip(keys, (1.0, 0.0))), doubt, 0.5).values()]


def shortened() -> Sequence[float]:
    """Return the reward of a right answer to an easy task, and of a wrong one to a hard task."""
    flag = torch.tensor([True, False])
    return by_length(flag, flag, f64([300 / 400, 600 / 400]), f64([0.8, 0.2])).tolist()


def warmed() -> Sequence[float]:
    """Return the adaptive temperature of four logits, and their entropy at it."""
    heat = cooled(0.2, LOGITS, torch.zeros(1).long(), None)
    return [heat.item(), doubt(LOGITS, heat).item()]


EXAMPLES = (
    Example("adathink-med", "advantage.md AdaThink-Med", rated, [1.0, 0.0, 0.75]),
    Example("adathink-med", "advantage.md AdaThink-Med", shortened, [0.325, -0.1]),
    Example(
        "adr",
        "sampling.md I5",
        lambda: [chance(0.5, rise) for rise in (-0.2, 0, 0.3)],
        [0.3, 0.5, 0.8],
    ),
    Example("adr", "sampling.md I5", lambda: [mode(0.5, f64([0.75]), f64([0.7])).item()], [0.8]),
    Example(
        "sent",
        "sampling.md I6",
        lambda: [semantic(counts) for counts in ([5, 3], [2] * 4, [8], [4, 2, 1, 1])],
        [0.661563, 1.386294, 0.0, 1.213008],
    ),
    Example("em-inf", ADV, warmed, [0.2575, 0.102387]),
)
