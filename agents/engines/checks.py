"""What makes a server unfit for a policy, found before anything is drawn: its model, its limits, its memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from ..engine import EngineFailure, EngineFault
from ..memory import BYTES, GIB, cache_bytes, free_bytes, parameters, read_config
from ..policy import Policy
from ._probe import LIMIT, Answer, Belief, Noise, allowed, belief, noise, prompts
from ._remote import Line, ask, base_name, load, unload
from .servable import write_adapter
from .server import served_rank

SHARE = 0.9  # of the memory that is free may be taken


def check_server(url: str, policy: Policy, *, deadline: float = 300.0) -> None:
    """Refuse a server that cannot draw for `policy`; it is asked once.

    Raises:
        ValueError: it cannot be reached, has another model or vocabulary, or does not take the policy's adapters.
    """
    try:
        asyncio.run(_check(Line(url, deadline), policy))
    except EngineFailure as failure:
        raise ValueError(f"{failure}; start one with `--engine vllm` alone, or give the URL of one that fits") from None


def check_memory(
    folder: Path, dtype: str, *, max_context: int, rank: int = 0, device: str = "cpu", free: int | None = None
) -> None:
    """Refuse a model whose server would not fit into memory with the keys and values of one whole conversation.

    Raises:
        ValueError: it does not fit; the message has the numbers.
    """
    if rank:
        served_rank(rank)
    weights, cache = parameters(folder) * BYTES[dtype], max_context * cache_bytes(read_config(folder), dtype)
    there = free_bytes(device) if free is None else free
    if there is not None and weights + cache > SHARE * there:
        raise ValueError(
            f"{folder} does not fit: {weights / GIB:.1f} GiB of weights in {dtype} and {cache / GIB:.2f} GiB of keys "
            f"and values for one conversation of {max_context} tokens, and {device} has {there / GIB:.1f} GiB free, of "
            f"which {SHARE:.0%} may be taken; use a smaller model, dtype bfloat16 or a shorter context"
        )


async def base_noise(line: Line, policy: Policy, right: Belief, asked: Sequence[NDArray[np.int32]]) -> Noise:
    """Return what to take for noise of this server, after proof that it has the policy's model.

    With LoRA it is asked through an adapter of zeros: while adapters are loaded, some servers put a part of one on the
    model that is asked for without any.

    Raises:
        EngineFailure: MISMATCH, its model is another; STATUS, it refuses the adapter; else as `ask`.
    """
    dtype = str(policy.base.dtype).removeprefix("torch.")
    if policy.lora is None:
        answer = await ask(line, await base_name(line), asked)
    else:
        answer = await _ask_zero(line, policy, asked)
    found = noise(answer, right)
    if not (found.most <= LIMIT[dtype].most and found.rms <= LIMIT[dtype].rms):
        raise line.failure(
            EngineFault.MISMATCH,
            f"its model is not {policy.folder}: log-probabilities of the same tokens differ by up to {found.most:.2e} "
            f"nats ({LIMIT[dtype].most:g} are allowed in {dtype}, root mean square {found.rms:.2e})",
        )
    return allowed(found, dtype)


def zero_adapter(policy: Policy, folder: Path) -> None:
    """Write an adapter of the policy's shape that changes nothing."""
    write_adapter(policy, folder)
    file = folder / "adapter_model.safetensors"
    save_file({name: tensor.zero_() for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})


async def _ask_zero(line: Line, policy: Policy, asked: Sequence[NDArray[np.int32]]) -> Answer:
    folder = Path(tempfile.mkdtemp(prefix="turngym-"))
    name = f"turngym-zero-{uuid4().hex[:8]}"
    try:
        await asyncio.to_thread(zero_adapter, policy, folder / "zero")
        await load(line, name, folder / "zero")
        answer = await ask(line, name, asked)
        await unload(line, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return answer


async def _check(line: Line, policy: Policy) -> None:
    asked = prompts(policy)
    served = await _vocabulary(line, await base_name(line), policy.vocabulary)
    if served != policy.vocabulary:
        raise line.failure(
            EngineFault.MISMATCH, f"its model knows {served} token ids, and {policy.folder} knows {policy.vocabulary}"
        )
    with policy.reference():
        right = belief(policy, asked)
    await base_noise(line, policy, right, asked)


async def _vocabulary(line: Line, name: str, expected: int) -> int:
    """Return how many token ids the server's model knows, found from those that it refuses."""
    if await _knows(line, name, expected - 1) and not await _knows(line, name, expected):
        return expected
    low, high = 0, 1
    while await _knows(line, name, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await _knows(line, name, middle) else (low, middle)
    return high


async def _knows(line: Line, name: str, token: int) -> bool:
    body = {"model": name, "prompt": [token], "max_tokens": 1}
    try:
        await line.send("POST", "/v1/completions", body)
    except EngineFailure as failure:
        if failure.fault is EngineFault.STATUS and "vocabulary" in str(failure):
            return False
        raise
    return True
