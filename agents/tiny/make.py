"""Make the tiny policy from nothing: tokenizer, a Qwen3 model with an untied head, and supervised base skill.

Run `python -m turngym.agents.tiny.make --out FOLDER`; it takes about 12 minutes on two cores and writes what ships in
this folder. Weights are trained in float32 and stored in float16.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from ...envs.math import SYSTEM_TOOL, MathTasks
from ...tools import ToolCall, get_format
from ..chat import Chat
from ..template import Template
from .demos import Demo, demos

log = logging.getLogger(__name__)

VOCABULARY = 640
MODEL = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- if loop.first and tools %}{{- '\\nTools:' }}"
    "{%- for tool in tools %}{{- ' ' + tool.function.name }}{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TOOLS = [{"type": "function", "function": {"name": "python"}}]


@dataclass(frozen=True)
class Make:
    """How the tiny policy is made."""

    out: Path
    """Folder to write."""
    episodes: int = 120_000
    """Demonstrated episodes, each seen once."""
    batch: int = 64
    """Episodes an optimizer step."""
    lr: float = 2e-3
    """Peak learning rate; linear warm-up, cosine decay."""
    seed: int = 0
    threads: int = 2


def make(config: Make) -> None:
    """Make the tokenizer, train the model, write the folder."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(config.seed)
    torch.set_num_threads(config.threads)
    config.out.mkdir(parents=True, exist_ok=True)
    form = get_format("hermes")
    tasks = MathTasks("train", (1, 2))
    tokenizer = make_tokenizer(list(demos(tasks, form, 8_000, seed=config.seed + 1)))
    _write_tokenizer(tokenizer, config.out)
    chat = Chat(tokenizer, Template(TEMPLATE))
    ids = {token: tokenizer.token_to_id(token) for token in _SPECIAL}
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=tokenizer.get_vocab_size(),
            eos_token_id=ids["<|im_end|>"],
            pad_token_id=ids["<|endoftext|>"],
            **MODEL,
        )
    )
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))
    _train(model, (encode(chat, one) for one in demos(tasks, form, config.episodes, seed=config.seed)), config)
    model.half().save_pretrained(config.out)


def make_tokenizer(corpus: list[Demo]) -> Tokenizer:
    """Train a byte-level BPE of `VOCABULARY` tokens: single digits, and one token for each fixed part of a call."""
    call = get_format("hermes").render(ToolCall("python", {"code": "0"}))
    opener, _, closer = call.partition("0")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d| ?[A-Za-z]+| ?[^\sA-Za-z\d]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(_SPECIAL) - 2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    frame = SYSTEM_TOOL + "\nTools: python\nsystem\nuser\nassistant\ntool\n"
    texts = [part for one in corpus for part in (frame, one.prompt, *one.says, *one.results)]
    tokenizer.train_from_iterator([text.replace(opener, "").replace(closer, "") for text in texts], trainer)
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.add_tokens([AddedToken(opener, normalized=False), AddedToken(closer, normalized=False)])
    return tokenizer


def encode(chat: Chat, one: Demo) -> tuple[list[int], list[bool]]:
    """Return the tokens of an episode and where the agent spoke, laid out as a rollout lays them out."""
    form = get_format("hermes")
    messages = [{"role": "system", "content": SYSTEM_TOOL}, {"role": "user", "content": one.prompt}]
    tokens = chat.prompt(messages, _TOOLS).tolist()
    said = [False] * len(tokens)
    end = next(iter(chat.end_ids()))
    for turn, text in enumerate(one.says):
        closes = form.complete(text)
        spoken = chat.tokenizer.encode(text, add_special_tokens=False).ids + ([] if closes else [end])
        tokens, said = tokens + spoken, said + [True] * len(spoken)
        if turn < len(one.results):
            role, content = form.observe(one.results[turn], "python")
            between = chat.reply([{"role": role, "content": content}], spoken[-1]).tolist()
            tokens, said = tokens + between, said + [False] * len(between)
    return tokens, said


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": MODEL["max_position_embeddings"],
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _train(model: Any, episodes: Iterator[tuple[list[int], list[bool]]], config: Make) -> None:
    steps = config.episodes // config.batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=0.01)
    began, seen = time.monotonic(), 0
    for step, (tokens, said) in enumerate(_batches(episodes, config.batch)):
        warm = min((step + 1) / 100, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        hidden = model.model(input_ids=tokens).last_hidden_state[:, :-1][said[:, 1:]]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), tokens[:, 1:][said[:, 1:]])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += tokens.numel()
        if step % 50 == 0:
            log.info("step %d/%d loss %.4f %.0f tokens/s", step, steps, loss.item(), seen / (time.monotonic() - began))


def _batches(episodes: Iterator[tuple[list[int], list[bool]]], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield right-padded batches of episodes of like length, as tokens `[b, t]` and where the agent spoke `[b, t]`."""
    pool: list[tuple[list[int], list[bool]]] = []
    order = torch.Generator().manual_seed(0)
    while True:
        while len(pool) < 32 * size and (one := next(episodes, None)) is not None:
            pool.append(one)
        if len(pool) < size:
            return
        pool.sort(key=lambda one: len(one[0]))
        starts = list(range(0, len(pool) - size + 1, size))
        for pick in torch.randperm(len(starts), generator=order).tolist():
            yield _pad(pool[starts[pick] : starts[pick] + size])
        pool = pool[len(starts) * size :]


def _pad(rows: list[tuple[list[int], list[bool]]]) -> tuple[Tensor, Tensor]:
    width = max(len(tokens) for tokens, _ in rows)
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    said = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, (ids, mask) in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
        said[row, : len(ids)] = torch.tensor(mask)
    return tokens, said


if __name__ == "__main__":
    import tyro

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    make(tyro.cli(Make))
