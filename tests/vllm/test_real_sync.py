"""Weights published to a real vLLM server: told right when they are, and never when they are not."""

import asyncio
from pathlib import Path

import pytest
import torch

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import EngineFailure, EngineFault
from turngym.agents.engines.vllm.client import Replica
from turngym.agents.engines.vllm.publish import Publisher
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy
from turngym.tests.support.adapter_damage import DAMAGE, damage


def move(policy: Policy, std: float, seed: int) -> None:
    """An update of all linear layers and the head."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable_parameters().items():
            if "lora_B" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * std)
    policy.version += 1


@pytest.fixture
def policy(served_policy: Policy) -> Policy:
    """A learned adapter: it moves log-probabilities by nats."""
    move(served_policy, 0.02, 0)
    return served_policy


def check(server: VllmServer, policy: Policy, folder: Path) -> None:
    Publisher(policy, [Replica(server.url)], folder / "adapters").check()


def test_the_server_fits(server: VllmServer, policy: Policy, tmp_path: Path) -> None:
    check(server, policy, tmp_path)
    wide = load_policy(TINY, lora=LoraOptions(rank=64))
    with pytest.raises(ValueError, match="LoRA rank 64 is greater than max_lora_rank 32"):
        check(server, wide, tmp_path)


def test_fifty_updates_are_right_within_a_thousandth(
    server: VllmServer, policy: Policy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "turngym.agents.engines.vllm")
    made = Publisher(policy, [Replica(server.url)], tmp_path / "adapters")
    for step in range(50):
        asyncio.run(made.publish())  # log-probabilities more than a thousandth off are never right
        move(policy, 0.0005 * (1 + step % 7), step)
    assert not caplog.messages


def test_every_damage_is_detected(
    server: VllmServer, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = load_policy(TINY, lora=policy.lora, seed=9)
    move(other, 0.02, 5)
    other.save_adapter(tmp_path / "other")
    made = Publisher(policy, [Replica(server.url)], tmp_path / "adapters")
    asyncio.run(made.publish())
    assert made.present is not None and made.present.folder is not None
    name, old = made.present.name, made.present.folder
    move(policy, 0.002, 1)
    missed, load = [], Replica.load
    for kind in DAMAGE:

        async def wrong(to: Replica, name: str, folder: Path, kind: str = kind) -> None:
            await load(
                to, name, damage(kind, folder, old, tmp_path / "other", tmp_path / f"out {kind}")
            )

        monkeypatch.setattr(Replica, "load", wrong)
        try:
            asyncio.run(made.publish())
            missed.append(kind)
        except EngineFailure as failure:
            assert failure.fault in (EngineFault.VERSION, EngineFault.STATUS), (kind, failure)
        assert made.present.name == name
    assert not missed
    monkeypatch.undo()
    asyncio.run(made.publish())
    assert made.present.name != name


def test_another_model_is_refused(server: VllmServer, policy: Policy, tmp_path: Path) -> None:
    with torch.no_grad():
        weight = policy.base.model.layers[1].mlp.up_proj.base_layer.weight
        before = weight.clone()
        weight[3, 5] += 0.1  # one number of one layer
        with pytest.raises(ValueError, match=r"its model is not .* differ by up to"):
            check(server, policy, tmp_path)
        weight.copy_(before)
