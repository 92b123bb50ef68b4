"""The life of a real vLLM server, and models that it can only serve under another type."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engines.vllm.client import Replica
from turngym.agents.engines.vllm.publish import Publisher
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy


def learned(policy: Policy) -> Policy:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    policy.version += 1
    return policy


@pytest.fixture(scope="module")
def tied_qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 whose head is its embedding, with the tiny policy's tokens."""
    folder = tmp_path_factory.mktemp("qwen2")
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    config = Qwen2Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.15,
        eos_token_id=635,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    return folder


def test_a_tied_qwen2_with_an_adapted_head_killed_and_restored(
    tied_qwen2: Path, new_server: Callable[..., VllmServer], tmp_path: Path
) -> None:
    policy = learned(load_policy(tied_qwen2, lora=LoraOptions(rank=8)))
    with new_server(policy, tmp_path) as server:
        assert "--hf-overrides" in server.command  # as another type
        made = Publisher(policy, [Replica(server.url, 1500)], tmp_path / "adapters")
        asyncio.run(made.publish())

        os.killpg(server.pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while server.starts < 2 and time.monotonic() < end:
            time.sleep(0.1)
        asyncio.run(made.publish())  # waits until it is back, and loads what it has lost
        assert server.starts == 2
    assert not server.alive
