"""The most likely tokens behind some questions: of an engine of turngym's, and of transformers' `generate`."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turngym.agents.chat.chat import Chat
from turngym.agents.engine import Sampling
from turngym.agents.policy import Policy
from turngym.envs.split_episodes import begin, open_split

Prompt = NDArray[np.int32]


def prompts(policy: Policy, count: int) -> list[Prompt]:
    """Return the prompts of so many test questions, all different."""
    split, chat = (
        open_split("turngym/Math-v0", {"split": "test", "system": True}),
        Chat.from_folder(policy.folder),
    )
    found: dict[bytes, Prompt] = {}
    try:
        for task in split.tasks:
            _, info = begin(split.env, task, 0)
            prompt = chat.prompt(info["messages"], info["tools"])
            found.setdefault(prompt.tobytes(), prompt)
            if len(found) == count:
                return list(found.values())
    finally:
        split.env.close()
    raise ValueError(f"there are {len(found)} different questions, and {count} are asked for")


def move(policy: Policy, std: float, seed: int = 0) -> None:
    """Change all LoRA weights that are zero at the start, so that the policy says something of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable_parameters().items():
            if "lora_B" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * std)
    policy.version += 1


async def drawn(engine: Any, given: Sequence[Prompt], tokens: int) -> list[list[int]]:
    """Return what an engine draws, all turns at a time."""

    async def one(i: int) -> list[int]:
        session = engine.session()
        try:
            turn = await session.sample(given[i], Sampling(0.0, max_tokens=tokens), (0, 0, i))
            return [int(token) for token in turn.tokens]
        finally:
            session.close()

    return list(await asyncio.gather(*map(one, range(len(given)))))


@torch.no_grad()
def generated(
    model: Any, ends: frozenset[int], given: Sequence[Prompt], tokens: int
) -> list[list[int]]:
    """Return what `generate` draws, prompts of a length at a time, so that nothing is padded."""
    found: list[list[int]] = [[] for _ in given]
    for length in sorted({len(prompt) for prompt in given}):
        rows = [row for row, prompt in enumerate(given) if len(prompt) == length]
        ids = torch.from_numpy(np.stack([given[row] for row in rows])).long()
        how = {
            "eos_token_id": sorted(ends),
            "pad_token_id": min(ends),
            "do_sample": False,
            "max_new_tokens": tokens,
        }
        said = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **how)[
            :, length:
        ].tolist()
        for row, line in zip(rows, said, strict=True):
            stop = next((at + 1 for at, token in enumerate(line) if token in ends), len(line))
            found[row] = line[:stop]
    return found
