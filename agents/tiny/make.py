"""Make the tiny policy from nothing: tokenizer, a Qwen3 model with an untied head, and supervised base skill.

Run `python -m turngym.agents.tiny.make --out FOLDER`; it takes about 12 minutes on two cores and writes what ships in
this folder. Weights are trained in float32 and stored in float16.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ...envs.math import SYSTEM_TOOL, MathTasks
from ...tools import ToolCall, get_format
from ..bpe import TEMPLATE, train_tokenizer, write_tokenizer
from ..chat import Chat
from ..supervise import Course, Lesson, Pupil, lay, new_model
from ..template import Template
from .demos import Demo, demos

log = logging.getLogger(__name__)

WORDS = r"\d| ?[A-Za-z]+| ?[^\sA-Za-z\d]+|\s+"  # do not merge
VOCABULARY = 640
CONTEXT = 4096
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
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.threads)
    config.out.mkdir(parents=True, exist_ok=True)
    form = get_format("hermes")
    tasks = MathTasks("train", (1, 2))
    tokenizer = make_tokenizer(list(demos(tasks, form, 8_000, seed=config.seed + 1)))
    write_tokenizer(tokenizer, config.out, CONTEXT)
    chat = Chat(tokenizer, Template(TEMPLATE))
    model = new_model(chat, "small", CONTEXT)
    log.info("%d parameters", sum(p.numel() for p in model.parameters()))
    lessons = [encode(chat, one) for one in demos(tasks, form, config.episodes, seed=config.seed)]
    pupil = Pupil(model, Course(config.episodes // config.batch, config.batch, config.lr, config.seed))
    began = time.monotonic()
    for loss in pupil.learn(lessons):
        if pupil.step % 50 == 1:
            seconds = time.monotonic() - began
            log.info("step %d/%d loss %.4f %.0f s", pupil.step, pupil.course.steps, loss, seconds)
    model.half().save_pretrained(config.out)


def make_tokenizer(corpus: list[Demo]) -> Tokenizer:
    """Train a BPE of `VOCABULARY` tokens, with one token for each fixed part of a call."""
    call = get_format("hermes").render(ToolCall("python", {"code": "0"}))
    opener, _, closer = call.partition("0")
    frame = SYSTEM_TOOL + "\nTools: python\nsystem\nuser\nassistant\ntool\n"
    texts = [part for one in corpus for part in (frame, one.prompt, *one.says, *one.results)]
    return train_tokenizer(texts, VOCABULARY, (opener, closer), WORDS)


def encode(chat: Chat, one: Demo) -> Lesson:
    """Lay out a demonstration as a rollout does."""
    form = get_format("hermes")
    opening = [{"role": "system", "content": SYSTEM_TOOL}, {"role": "user", "content": one.prompt}]
    observed = [form.observe(result, "python") for result in one.results]
    answers = [[{"role": role, "content": content}] for role, content in observed]
    return lay(chat, opening, _TOOLS, one.says, answers, form)


if __name__ == "__main__":
    import tyro

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    make(tyro.cli(Make))
