"""Make the tiny policy from nothing: tokenizer, a Qwen3 model with an untied head, and supervised base skill.

Its demonstrations are mostly planted bad play around a core of good play, so that reinforcement learning has something
to select. Of the demonstrated episodes `MIX["good"]` compute with the tool and report its result; the others answer at
once with a number from the problem (`guess`), compute with a wrong operator (`slip`), or compute rightly and then
report a number from the problem (`misread`).

    python benchmarks/make_tiny.py --out FOLDER

takes about 12 minutes on two cores and writes what ships in `agents/tiny/`. Weights are trained in float32 and stored
in float16.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template
from turngym.agents.cli.settings import WarmupOptions
from turngym.agents.warmup.pretrain import Demonstration
from turngym.agents.warmup.supervised import (
    TEMPLATE,
    Example,
    Trainer,
    new_model,
    train_tokenizer,
    write_tokenizer,
)
from turngym.envs.math import SYSTEM_TOOL, MathTasks
from turngym.envs.tasks import Task, Tasks
from turngym.tools import Format, ToolCall, get_format

log = logging.getLogger(__name__)
WORDS = r"\d| ?[A-Za-z]+| ?[^\sA-Za-z\d]+|\s+"  # do not merge
MIX = {"good": 0.38, "guess": 0.30, "slip": 0.16, "misread": 0.16}
_OPERATOR = re.compile(r"\*\*|//|[+*%]|(?<=[\d)])-")
_NUMBER = re.compile(r"\d+")
_TOOLS = [{"type": "function", "function": {"name": "python"}}]
OPTIONS = WarmupOptions(
    120_000, 1875, 64, 2e-3, size="small", vocabulary=640, context=4096, threads=2
)


def make(out: Path, options: WarmupOptions = OPTIONS) -> None:
    """Make the tokenizer, train the model on each episode once, write the folder `out`."""
    torch.set_num_threads(options.threads)
    out.mkdir(parents=True, exist_ok=True)
    form = get_format("hermes")
    tasks = MathTasks("train", (1, 2))
    tokenizer = make_tokenizer(list(demos(tasks, form, 8_000, seed=options.seed + 1)))
    write_tokenizer(tokenizer, out, options.context)
    chat = Chat(tokenizer, Template(TEMPLATE))
    model = new_model(chat, options.size, options.context, options.seed)
    examples = [
        encode(chat, one) for one in demos(tasks, form, options.episodes, seed=options.seed)
    ]
    trainer = Trainer(model, options)
    for loss in trainer.learn(examples):
        if trainer.step % 50 == 1:
            log.info("step %d/%d loss %.4f", trainer.step, options.steps, loss)
    model.half().save_pretrained(out)


def make_tokenizer(corpus: list[Demo]) -> Tokenizer:
    """Train a BPE of 640 tokens, with one token for each fixed part of a call."""
    call = get_format("hermes").render(ToolCall("python", {"code": "0"}))
    opener, _, closer = call.partition("0")
    frame = SYSTEM_TOOL + "\nTools: python\nsystem\nuser\nassistant\ntool\n"
    texts = [part for one in corpus for part in (frame, one.prompt, *one.says, *one.results)]
    texts = [text.replace(opener, "").replace(closer, "") for text in texts]
    tokenizer = train_tokenizer(texts, OPTIONS.vocabulary - 2, WORDS)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (opener, closer)])
    return tokenizer


def encode(chat: Chat, one: Demo) -> Example:
    form = get_format("hermes")
    opening = [{"role": "system", "content": SYSTEM_TOOL}, {"role": "user", "content": one.prompt}]
    observed = [form.observe(result, "python") for result in one.results]
    answers = [[{"role": role, "content": content}] for role, content in observed]
    return Demonstration(opening, _TOOLS, one.says, answers).example(chat, form)


@dataclass(frozen=True)
class Demo:
    """One episode: what the agent says in each turn, and what the tool answers in between."""

    prompt: str
    says: tuple[str, ...]
    results: tuple[str, ...]


def demos(tasks: Tasks, form: Format, count: int, seed: int) -> Iterator[Demo]:
    """Yield `count` episodes of the mix on the first `count` tasks; the same arguments give the same episodes."""
    rng = random.Random(seed)
    for index in range(count):
        kind = rng.choices(list(MIX), list(MIX.values()))[0]
        yield demo(tasks[index], kind, form, rng)


def demo(task: Task, kind: str, form: Format, rng: random.Random) -> Demo:
    if task.solution is None:
        raise ValueError(f"task {task.id} has no solution program to demonstrate")
    numbers = _NUMBER.findall(task.prompt)
    wrong = _box(rng.choice(numbers))
    if kind == "guess":
        return Demo(task.prompt, (wrong,), ())
    code = _slip(task.solution, rng) if kind == "slip" else task.solution
    call, result = form.render(ToolCall("python", {"code": code})), run(code)
    return Demo(task.prompt, (call, wrong if kind == "misread" else _box(result)), (result,))


def run(code: str) -> str:
    """Return what a generator's own `print(<expression>)` program prints."""
    expression = re.fullmatch(r"print\((.*)\)", code, re.S)
    if expression is None:
        raise ValueError(f"not a single print: {code!r}")
    return str(eval(expression[1], {"__builtins__": {}}))  # noqa: S307 (our own generator wrote it)


def _slip(code: str, rng: random.Random) -> str:
    places = list(_OPERATOR.finditer(code))
    rng.shuffle(places)
    for place in places:
        for other in rng.sample(["+", "-", "*", "//", "%"], 5):
            if other == place[0]:
                continue
            slipped = code[: place.start()] + other + code[place.end() :]
            try:
                result = run(slipped)
            except ArithmeticError:
                continue
            if len(result) <= 8 and result != run(code):
                return slipped
    return f"print({_NUMBER.findall(code)[0]})"


def _box(value: str) -> str:
    return f"\\boxed{{{value}}}"


if __name__ == "__main__":
    import tyro

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tyro.cli(make)
