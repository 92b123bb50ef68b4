"""Whether a server has the policy's weights: its log-probabilities of fixed tokens compared with the learner's own.

Every part of a forward pass reaches these numbers, so whatever is wrong with the weights moves them. They are compared
with the learner's at the new weights, and with those at the weights that a failed update would leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ...engine import evaluating
from ...policy import Policy

# Longer than two blocks of a server's prefix cache, so that what it has kept there shows.
LENGTH = 288
CHAT = (
    "<|im_start|>system\nYou solve problems with a Python tool.<|im_end|>\n<|im_start|>user\nA farm has 17 rows of 23 "
    "trees; 48 were cut. How many are left, and which share is that?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
    '{"name": "python", "arguments": {"code": "n = 17 * 23\\nprint(n - 48, (n - 48) / n)"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>tool\n343 0.8772378516624041<|im_end|>\n<|im_start|>assistant\nThere are 343 trees left, or 87.7 %.\n"
)
POINTS = 8  # prefixes of each prompt behind which it is asked
TOP = 20  # log-probabilities asked for at each: any server gives so many
MARGIN = 4.0  # a right server is so many times nearer to the new weights than to others


@dataclass(frozen=True)
class Noise:
    """How far two right computations of the same log-probabilities lie apart: the most, and the root mean square."""

    most: float
    rms: float


# What is taken for noise at least, and at most whatever was measured. In bfloat16 a weight keeps 8 bits, and the server
# rounds the adapter too.
LEAST = {"float32": Noise(2e-4, 1.5e-5), "bfloat16": Noise(0.1, 0.02)}
LIMIT = {"float32": Noise(1e-3, 3e-4), "bfloat16": Noise(1.0, 0.15)}
# Noise at weights yet to come, beside that of the model without its adapter: up to 4.8 and 2.8 were measured.
_GROWTH = Noise(10.0, 4.0)


def allowed(measured: Noise, dtype: str) -> Noise:
    """Return what to take for noise, given how far the server was from the learner with the adapter off."""
    least, limit = LEAST[dtype], LIMIT[dtype]
    return Noise(
        min(limit.most, max(least.most, _GROWTH.most * measured.most)),
        min(limit.rms, max(least.rms, _GROWTH.rms * measured.rms)),
    )


class Verdict(StrEnum):
    """What a probe found."""

    RIGHT = "right"
    INDISTINGUISHABLE = "indistinguishable"  # right, but so would others be: weights too near to the new ones
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One server's probe: how far it is from the new weights (nats), and which weights it is nearest to.

    error: largest difference from the new weights. allowed: largest that passes. distance: by the name of the weights,
    root mean square. near: those too near to the new ones to be told apart.
    """

    verdict: Verdict
    error: float
    allowed: float
    distance: Mapping[str, float]
    near: tuple[str, ...] = ()

    @property
    def nearest(self) -> str:
        """The weights that the server answers like."""
        return min(self.distance, key=lambda name: self.distance[name])


@dataclass(frozen=True, eq=False)
class Answer:
    """A server's log-probabilities of the likeliest tokens behind each prompt, by id.

    They are of tokens drawn, and so are computed as those of turns are, the prefix cache included.
    """

    top: tuple[Mapping[int, float], ...]

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """All of them, one behind another."""
        return np.concatenate([np.array(list(top.values())) for top in self.top])


@dataclass(frozen=True, eq=False)
class Expected:
    """The learner's log-probabilities behind each prompt: `logp` float32 [prompts, vocabulary]."""

    logp: NDArray[np.float32]

    def at(self, answer: Answer) -> NDArray[np.float64]:
        """Return the numbers that belong to `answer.values`."""
        rows = zip(self.logp, answer.top, strict=True)
        return np.concatenate([row[list(top)] for row, top in rows]).astype(np.float64)


def prompts(policy: Policy, length: int = LENGTH) -> tuple[NDArray[np.int32], ...]:
    """Return `POINTS` prefixes, int32 [at most length], of a chat and of tokens spread over the whole vocabulary."""
    length = min(length, policy.max_context - 1)
    chat = policy.tokenizer.encode(CHAT, add_special_tokens=False).ids
    known = min(policy.vocabulary, policy.tokenizer.get_vocab_size())
    spread = np.random.Generator(np.random.Philox(key=1)).integers(0, known, length)
    texts = np.resize(np.array(chat, np.int32), length), spread.astype(np.int32)
    return tuple(text[: length * (point + 1) // POINTS] for text in texts for point in range(POINTS))


@torch.no_grad()
def expected(policy: Policy, asked: Sequence[NDArray[np.int32]]) -> Expected:
    """Return the learner's log-probabilities at its present weights; each longest prompt serves for its prefixes."""
    rows = []
    with evaluating(policy.model):
        for first in range(0, len(asked), POINTS):
            group = asked[first : first + POINTS]
            ids = torch.from_numpy(group[-1]).long().to(policy.device)
            logits = policy.model(input_ids=ids[None], use_cache=False).logits[0, [len(each) - 1 for each in group]]
            rows.append(logits.float().log_softmax(-1).cpu().numpy())
    return Expected(np.concatenate(rows))


def noise(answer: Answer, right: Expected) -> Noise:
    """Return how far an answer is from what is right."""
    gap = answer.values - right.at(answer)
    return Noise(float(np.abs(gap).max()), _rms(gap))


def compare(answer: Answer, new: Expected, others: Mapping[str, Expected], accepted: Noise) -> Finding:
    """Judge an answer: `others` are what is expected at weights that the server must not have, by name.

    It is right within `accepted`. Others are apart where they differ from the new weights by more than `MARGIN + 1`
    times that: a right answer is then `MARGIN` times nearer to the new weights than to them (triangle inequality).
    """
    gap = noise(answer, new)
    distance = {"the new weights": gap.rms} | {name: noise(answer, other).rms for name, other in others.items()}
    finding = Finding(Verdict.RIGHT, gap.most, accepted.most, distance)
    if not (gap.most <= accepted.most and gap.rms <= accepted.rms):
        return replace(finding, verdict=Verdict.WRONG)
    apart = {name: _rms(other.at(answer) - new.at(answer)) for name, other in others.items()}
    near = tuple(name for name, far in apart.items() if far <= (MARGIN + 1) * accepted.rms)
    return replace(finding, verdict=Verdict.INDISTINGUISHABLE, near=near) if near else finding


def _rms(gap: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(gap))))
