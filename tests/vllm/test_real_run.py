"""A training run through a real vLLM server that is killed on the way: no trajectory is lost.

`TURNGYM_VLLM_KILLS` says how often it is killed; each time it takes as long as a start.
"""

import json
import os
import signal
from pathlib import Path

import pytest

from turngym.agents.engines.vllm.client import CompletionRequest, Drawn, Replica
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.journal.trees import read_trees
from turngym.agents.policy import Policy
from turngym.envs import Outcome
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.run import execute, prepare

KILLS = int(os.environ.get("TURNGYM_VLLM_KILLS", "2"))
EVERY = 25  # turns drawn between two kills; those under way are asked for again, so some must get through
TURNS = 60  # a step's, about


class Killing:
    """Kills a server as weights are loaded into it, and then `KILLS - 1` times behind every `EVERY` turns it drew."""

    def __init__(self, server: VllmServer) -> None:
        self.server, self.left, self.drawn = server, KILLS, 0

    def kill(self) -> None:
        self.left -= 1
        os.killpg(self.server.pid, signal.SIGKILL)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        draw, load = Replica.draw, Replica.load

        async def drawing(server: Replica, request: CompletionRequest, model: str = "") -> Drawn:
            drawn = await draw(server, request, model)
            self.drawn += not model  # else it is a probe
            if not model and self.drawn % EVERY == 0 and 0 < self.left < KILLS:
                self.kill()
            return drawn

        async def loading(server: Replica, name: str, folder: Path) -> None:
            await load(server, name, folder)
            if self.left == KILLS and not name.endswith(
                "-zero"
            ):  # a server that dies while it is checked is refused
                self.kill()

        patch.setattr(Replica, "draw", drawing)
        patch.setattr(Replica, "load", loading)


def test_a_run_whose_server_is_killed_loses_nothing(
    server: VllmServer, served_policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, prompts, group = 2 + KILLS * EVERY // TURNS, 4, 8
    config = TrainConfig().changed(
        difficulty=(1, 2),
        option=("max_turns=3",),
        method="grpo",
        steps=steps,
        prompts=prompts,
        group=group,
        max_tokens=32,
        rank=served_policy.lora.rank,
        eval_every=steps,
        eval_tasks=8,
        engine="vllm",
        server=(server.url,),
        out=str(tmp_path / "run"),
    )
    prepared, killing, begun = prepare(config), Killing(server), server.starts
    killing.patch(monkeypatch)
    try:
        *_, last = execute(prepared)
    finally:
        prepared.close()
    assert killing.left == 0 and server.starts == begun + KILLS
    assert last.step == steps and last.valid.episodes == config.eval_tasks and not last.valid.failed

    for step in range(1, steps + 1):
        trees = list(read_trees(prepared.folder / "trees" / f"step-{step:06d}.jsonl"))
        leaves = [leaf for tree in trees for leaf in tree.leaves]
        assert len({tree.key for tree in trees}) == prompts
        assert all([leaf.branch for leaf in tree.leaves] == list(range(group)) for tree in trees)
        assert {leaf.outcome for leaf in leaves} <= {Outcome.DONE, Outcome.TRUNCATED}
        assert (
            len({turn.version for tree in trees for turn in tree.turns if turn.role == "assistant"})
            == 1
        )
    incidents = prepared.folder / "incidents.jsonl"
    kinds = (
        {json.loads(line)["kind"] for line in incidents.read_text().splitlines()}
        if incidents.exists()
        else set()
    )
    assert not kinds & {"retry", "failed"}  # no path had to begin again
    lines = [
        json.loads(line) for line in (prepared.folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert all(line["mismatch_max"] < 1e-3 for line in lines[1:])
