"""Two real vLLM servers share the work, and one of them is killed."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from turngym.agents.engine import Completion, Sampling
from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.engines.vllm.client import CompletionRequest, Drawn, Replica
from turngym.agents.engines.vllm.engine import Fleet
from turngym.agents.engines.vllm.publish import Publisher
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.policy import Policy
from turngym.tests.vllm.turns import believed, prompt

N = 32  # conversations, each with a prompt of its own


def test_one_of_two_servers_is_killed_and_comes_back(
    server: VllmServer,
    served_policy: Policy,
    new_server: Callable[..., VllmServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, asked, kill_at = served_policy, Counter[str](), [5]
    other, draw = new_server(policy, tmp_path), Replica.draw

    async def sending(to: Replica, request: CompletionRequest, model: str = "") -> Drawn:
        asked[to.url] += 1
        if to.url == other.url and asked[other.url] in kill_at:
            kill_at.clear()
            os.killpg(other.pid, signal.SIGKILL)
        return await draw(to, request, model)

    async def turns(engine: VllmEngine, first: int) -> list[Completion]:
        tasks = range(first, first + N)
        drawing = (
            engine.session().sample(prompt(policy, f"{n} + 1"), Sampling(max_tokens=40), (n,))
            for n in tasks
        )
        return list(await asyncio.gather(*drawing))

    async def work() -> tuple[list[Completion], dict[str, int]]:
        fleet = Fleet([server.url, other.url])
        publisher = Publisher(policy, fleet.servers, tmp_path / "adapters")
        with closing(VllmEngine(policy, fleet, publisher)) as engine:
            await engine.sync()
            monkeypatch.setattr(Replica, "draw", sending)
            drawn = await turns(engine, 0)
            async with asyncio.timeout(900):
                while not all(each.up for each in fleet.servers):
                    await asyncio.sleep(0.5)
            asked.clear()
            drawn += await turns(engine, N)
            return drawn, dict(asked)

    with other:
        drawn, shares = asyncio.run(work())
        assert not kill_at and other.starts == 2 and server.alive
    for n, turn in enumerate(drawn):
        logp = believed(policy, prompt(policy, f"{n} + 1"), turn).log_softmax(-1)
        at = logp.gather(1, torch.from_numpy(turn.tokens).long()[:, None])[:, 0].numpy()
        assert np.abs(at - turn.logp).max() < 1e-3
    assert min(shares[server.url], shares[other.url]) >= N // 6
