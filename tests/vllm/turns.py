"""Turns that are drawn at a time, and what the learner says of them."""

import asyncio
from typing import Any

import numpy as np
import torch

from turngym.agents.engine import Completion, Sampling
from turngym.agents.policy import Policy

TASKS = (
    "What is 3 + 4?",
    "What is 17 * 23 - 48?",
    "Compute 9 / 3.",
    "How many trees are left of 40 if 12 were cut?",
)


def prompt(policy: Policy, task: str) -> np.ndarray:
    text = f"<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n"
    return np.array(policy.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


async def drawn(
    engine: Any, policy: Policy, sampling: Sampling, cut: Any = None, n: int = 8
) -> list[Completion]:
    """Turns at a time, by key."""

    async def one(i: int) -> Completion:
        session = engine.session()
        try:
            return await session.sample(prompt(policy, TASKS[i % 4]), sampling, (0, 0, i), cut)
        finally:
            session.close()

    return list(await asyncio.gather(*(one(i) for i in range(n))))


@torch.no_grad()
def believed(policy: Policy, given: np.ndarray, turn: Completion) -> torch.Tensor:
    """The learner's logits before each token of a turn, float64 [n, vocabulary]."""
    tokens = torch.from_numpy(np.concatenate([given, turn.tokens])).long()
    return policy.model(input_ids=tokens[None]).logits[0, len(given) - 1 : -1].double()
