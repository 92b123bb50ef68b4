"""Model folders and adapters as a vLLM server can carry them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from turngym.agents.engines.vllm.publish import write_adapter
from turngym.agents.engines.vllm.server import served_folder
from turngym.agents.policy import LoraSpec, Policy, load_policy

HEAD = LoraSpec(rank=4)


def learned(policy: Policy, seed: int = 0) -> Policy:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return policy


def test_what_can_be_served_as_it_is_is_not_written(qwen3_folder: Path, qwen2_folder: Path, tmp_path: Path) -> None:
    for policy in (
        load_policy(qwen3_folder, lora=HEAD),
        load_policy(qwen2_folder, lora=LoraSpec(rank=4, targets=("q_proj", "down_proj"))),
        load_policy(qwen2_folder),
    ):
        assert served_folder(policy, tmp_path / "served") == policy.folder
    assert not (tmp_path / "served").exists()


@torch.no_grad()
def test_a_qwen2_with_an_adapted_head_is_the_same_llama(qwen2_folder: Path, tmp_path: Path) -> None:
    """`transformers` has a bias on the output projection where Llama has one on the queries: it is 0."""
    policy = learned(load_policy(qwen2_folder, lora=HEAD))
    folder = served_folder(policy, tmp_path / "served")
    assert folder == served_folder(policy, tmp_path / "served") == tmp_path / "served"
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("llama", ["LlamaForCausalLM"])
    assert config["qkv_bias"] and config["tie_word_embeddings"] and not config["attention_bias"]
    assert (folder / "model.safetensors").resolve() == (qwen2_folder / "model.safetensors").resolve()
    assert {f.name for f in folder.iterdir()} == {f.name for f in qwen2_folder.iterdir()}

    from transformers import LlamaConfig, LlamaForCausalLM

    llama = LlamaForCausalLM(LlamaConfig(**{**config, "attention_bias": True}))
    report = llama.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not report.unexpected_keys
    assert all(key == "lm_head.weight" or key.endswith("o_proj.bias") for key in report.missing_keys)
    for layer in llama.model.layers:
        layer.self_attn.o_proj.bias.zero_()
    llama.tie_weights()
    ids = torch.arange(30)[None]
    with policy.reference():
        torch.testing.assert_close(llama(ids).logits, policy.model(ids).logits, atol=2e-5, rtol=0)


def test_a_head_that_cannot_be_carried_is_refused_with_numbers(
    qwen2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(qwen2_folder, lora=HEAD)
    config = policy.base.config.to_dict()
    monkeypatch.setattr(policy.base.config, "to_dict", lambda: {**config, "model_type": "gemma9"})
    with pytest.raises(
        ValueError, match=r"293 x 64, rank 4.*its type is 'gemma9'.*without the head: --targets down_proj"
    ):
        served_folder(policy, tmp_path / "served")
    slides = {**config, "use_sliding_window": True, "sliding_window": 128}
    monkeypatch.setattr(policy.base.config, "to_dict", lambda: slides)
    with pytest.raises(ValueError, match="slides over 128 tokens"):
        served_folder(policy, tmp_path / "served")


def test_an_adapter_is_whole_or_not_there(qwen3_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = learned(load_policy(qwen3_folder, lora=HEAD))
    write_adapter(policy, tmp_path / "v1")
    assert [file.name for file in tmp_path.iterdir()] == ["v1"]
    twin = load_policy(qwen3_folder, lora=HEAD)
    twin.load_adapter(tmp_path / "v1")
    assert all(torch.equal(p, twin.trainable_parameters()[name]) for name, p in policy.trainable_parameters().items())

    def full(self: Policy, folder: Path) -> None:
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(Policy, "save_adapter", full)
    with pytest.raises(OSError, match="no space"):
        write_adapter(policy, tmp_path / "v2")
    assert not (tmp_path / "v2").exists()
    monkeypatch.undo()
    write_adapter(policy, tmp_path / "v2")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v1", "v2"]
