"""Tiny random policies on disk: an untied Qwen3, and a Qwen2 with a tied head and grouped queries."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE of the 256 bytes, three merges and ChatML's control tokens: 262 ids."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("<", "/"), ("t", "h"), ("th", "e")]
    vocabulary = {text: i for i, text in enumerate([*symbols, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "eos_token": "<|im_end|>",
        "chat_template": CHATML,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from a second thread and lose much where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untied Qwen3: 2 layers, hidden 64, 4 heads with keys of their own, 512 positions."""
    folder = tmp_path_factory.mktemp("qwen3")
    config = Qwen3Config(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.15,
        eos_token_id=258,
    )
    _save(Qwen3ForCausalLM, config, folder)
    return folder


@pytest.fixture(scope="session")
def qwen2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Qwen2 with 4 query heads on 2 key heads and an odd vocabulary."""
    folder = tmp_path_factory.mktemp("qwen2")
    config = Qwen2Config(
        vocab_size=293,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.15,
    )
    _save(Qwen2ForCausalLM, config, folder)
    return folder


def _save(kind: type, config: Qwen2Config | Qwen3Config, folder: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kind(config).save_pretrained(folder)
    save_tokenizer(folder)
