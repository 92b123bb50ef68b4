"""What a model needs in memory, as far as its small files tell."""

import json
import re
from pathlib import Path

import pytest

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.models import memory
from turngym.agents.models.memory import (
    TooLarge,
    check_fits,
    count_of,
    free_bytes,
    linear_shapes,
    needed,
    parameters,
    read_config,
)
from turngym.agents.policy import load_policy

LARGE = {  # the shape of Qwen2.5-72B
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
}
NUMBERS = 72_706_203_648


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """The folder of a large model with everything but its weights."""
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    index = {
        "metadata": {"total_size": 2 * NUMBERS},
        "weight_map": {"lm_head.weight": "model-1-of-1.safetensors"},
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def have_free(monkeypatch, size):
    monkeypatch.setattr(memory, "free_bytes", lambda device: size)


def test_a_model_too_large_is_refused_with_its_numbers(large, monkeypatch):
    have_free(monkeypatch, 80 << 30)
    with pytest.raises(TooLarge) as caught:
        check_fits(large, "float32", "cpu", lora=LoraOptions(rank=32))
    assert (
        "270.9 GiB of weights in float32, 1.59 GiB of LoRA weights and 4.76 GiB for their optimizer"
        in str(caught.value)
    )
    assert "need 277.2 GiB; cpu has 80.0 GiB free; use a smaller model, dtype bfloat16 or" in str(
        caught.value
    )
    with pytest.raises(
        TooLarge, match=re.escape("135.4 GiB of weights in bfloat16, 0.00 GiB of LoRA")
    ):
        check_fits(large, "bfloat16", "cpu")
    have_free(monkeypatch, 2 * NUMBERS)
    assert check_fits(large, "bfloat16", "cpu").total == 2 * NUMBERS


def test_this_machine_is_asked_where_nothing_is_said(large, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3 if device == "cuda:1" else None)
    with pytest.raises(TooLarge, match=r"cuda:1 has 0\.0 GiB free"):
        check_fits(large, "bfloat16", "cuda:1")
    assert check_fits(large, "bfloat16", "mps").weights == 2 * NUMBERS


def test_keys_and_values_of_a_conversation_count(large, monkeypatch):
    free = 2 * NUMBERS + 80 * 2 * 8 * 128 * 2 * 1024
    have_free(monkeypatch, free)
    assert check_fits(large, "bfloat16", context=1024).total == free
    with pytest.raises(
        TooLarge,
        match=r"0\.31 GiB of keys and values for 1025 tokens .*, a shorter context or a larger",
    ):
        check_fits(large, "bfloat16", context=1025)


def test_a_policy_that_does_not_fit_is_refused_before_it_is_read(qwen3_folder, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(
        "turngym.agents.policy._load_model", lambda *_: pytest.fail("the weights were read")
    )
    with pytest.raises(TooLarge, match="does not fit"):
        load_policy(qwen3_folder)


@pytest.mark.parametrize(
    ("rank", "targets"), [(4, ()), (2, ("q_proj", "down_proj")), (2, ("lm_head",)), (0, ())]
)
@pytest.mark.parametrize("name", ["qwen3_folder", "qwen2_folder"])
def test_the_arithmetic_is_that_of_models(name, rank, targets, request):
    folder = request.getfixturevalue(name)
    lora = LoraOptions(rank, 8, targets, "bfloat16") if rank else None
    needed = check_fits(folder, "bfloat16", "cpu", lora=lora)
    policy = load_policy(folder, dtype="bfloat16", lora=lora)
    assert needed.lora == sum(p.numel() * 2 for p in policy.trainable_parameters().values())
    assert needed.weights == sum(p.numel() * 2 for p in policy.model.parameters()) - needed.lora
    assert needed.optimizer == 3 * needed.lora and needed.total == needed.weights + 4 * needed.lora


def test_the_number_of_weights_is_read_from_an_index_that_says_it(large):
    file = large / "model.safetensors.index.json"
    assert parameters(large) == NUMBERS
    file.write_text(
        json.dumps({"metadata": {"total_size": 1, "total_parameters": 12}, "weight_map": {}})
    )
    assert parameters(large) == 12
    file.unlink()
    assert parameters(large) == NUMBERS - 80 * (
        8192 + 2 * 1024
    )  # from the config, which names no biases
    (large / "config.json").write_text('{"n_embd": 768}')
    with pytest.raises(FileNotFoundError, match=r"has neither \*\.safetensors nor their index"):
        parameters(large)


@pytest.mark.parametrize(
    ("kind", "sizes", "tied", "count"),
    [
        (
            "qwen2",
            (896, 4864, 24, 14, 2, 151_936),
            True,
            494_032_768,
        ),  # Qwen2.5-0.5B, as its card counts
        ("qwen2", (3584, 18944, 28, 28, 4, 152_064), False, 7_615_616_512),  # 7B
        ("qwen3", (4096, 12288, 36, 32, 8, 151_936), False, 8_190_735_360),  # Qwen3-8B
        ("llama", (576, 1536, 30, 9, 3, 49_152), True, 134_515_008),  # SmolLM2-135M
    ],
)
def test_the_number_of_weights_follows_from_the_config(kind, sizes, tied, count):
    names = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    )
    config = dict(zip((*names, "vocab_size"), sizes)) | {
        "tie_word_embeddings": tied,
        "model_type": kind,
    }
    assert count_of({**config, "head_dim": 128} if kind == "qwen3" else config) == count


def test_keys_and_values_of_a_token():
    assert needed(LARGE, 0, "bfloat16", None, 1).cache == 2 * 80 * 8 * 128 * 2
    assert needed({**LARGE, "head_dim": 64}, 0, "float32", None, 1).cache == 2 * 80 * 8 * 64 * 4


def test_a_config_in_a_config_is_read_and_an_unknown_one_has_no_layers(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 3, "text_config": LARGE}))
    assert read_config(tmp_path)["hidden_size"] == 8192
    assert linear_shapes({"n_embd": 768}) == []


def test_the_host_has_what_its_container_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    assert free_bytes() is None and free_bytes("mps") is None
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:   500 kB\n")
    assert free_bytes() == 500 << 10
    for name, text in (
        ("max", "300000"),
        ("current", "200000"),
        ("stat", "anon 5\ninactive_file 50000\n"),
    ):
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_bytes() == 150_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes() == 500 << 10
