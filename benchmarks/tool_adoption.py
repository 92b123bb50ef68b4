"""Learning to trust a tool: MathPython where a direct answer is right a third of the time and a call clumsy at first.

    python benchmarks/tool_adoption.py --out runs/adoption
    cd runs/adoption
    turngym compare grpo entropy-bonus turn-floor --on recipe.toml --tune tune.toml --seeds 8 --workers 2 --out compare

writes problems of MathPython with three answers to choose from, the tiny policy after a warm-up, a recipe for both, and
two settings of each method to choose from, on a seed that is not judged.
Of the warm-up's episodes the share `calls` compute with the right program, and of these the share `reads` report its
result; the others report a number of the problem, or pick one of the three answers without a call. Nothing else differs
from MathPython: the tool runs, and the grader compares numbers.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro

from turngym.agents import tiny
from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template
from turngym.agents.settings import WarmupOptions
from turngym.agents.tiny.make import Demo, demo, encode, run
from turngym.agents.warmup.supervised import TEMPLATE, Trainer, write_tokenizer
from turngym.envs.math import MathTasks
from turngym.envs.tasks import Task
from turngym.tools import get_format

RECIPE = """# Tool adoption: the tiny policy picks one of three answers, seldom calls, and misreads what it is told.
env = "turngym/MathPython-v0"
tasks = "{tasks}"
option = ["max_turns=3"]
policy = "{policy}"
method = "grpo"
steps = {steps}
prompts = 16
group = 8
lr = 1e-3
seed = 100
eval_every = {steps}
"""


FILES = {
    "slow.toml": 'method = "grpo"\nlr = 5e-4\n',
    "tune.toml": """seeds = [50]
[settings]
grpo = ["grpo", "slow.toml"]
entropy-bonus = ["grpo,entropy-bonus:coef=0.01", "grpo,entropy-bonus:coef=0.03"]
turn-floor = [
    "grpo,turn-floor:of=choices,first=0.1,most=0.3,steps=160",
    "grpo,turn-floor:of=choices,axis=turn,first=0.1,most=0.3,steps=160",
]
""",
}


@dataclass(frozen=True)
class Choice:
    """A problem, and the answers that it offers."""

    task: Task
    answer: str
    offered: tuple[str, ...]


def choice(task: Task, rng: random.Random) -> Choice:
    """Offer the right answer among two that differ from it by at most a tenth, or by 9."""
    answer = int(run(task.solution))
    near = max(9, abs(answer) // 10)
    wrong = rng.sample([answer + by for by in range(-near, near + 1) if by], 2)
    offered = [str(one) for one in rng.sample([answer, *wrong], 3)]
    prompt = f"{task.prompt} Is it {offered[0]}, {offered[1]} or {offered[2]}?"
    return Choice(replace(task, prompt=prompt), str(answer), tuple(offered))


def episode(one: Choice, calls: float, reads: float, rng: random.Random) -> Demo:
    if rng.random() >= calls:
        return Demo(one.task.prompt, (f"\\boxed{{{rng.choice(one.offered)}}}",), ())
    return demo(one.task, "good" if rng.random() < reads else "misread", get_format("hermes"), rng)


def main(
    out: Path = Path("runs/adoption"),
    calls: float = 0.5,
    reads: float = 0.27,
    episodes: int = 12_000,
    held: int = 6_000,
    lr: float = 1e-3,
    seed: int = 1,
    steps: int = 160,
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    rng = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    problems = MathTasks("train", (1, 2))
    whole = (problems[number] for number in range(2 * (episodes + held)))
    made = [choice(task, rng) for task in whole if re.fullmatch(r"-?\d{1,7}", run(task.solution))]
    made, later = made[:episodes], made[episodes : episodes + held]
    (out / "policy").mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"problem": one.task.prompt, "answer": one.answer}) + "\n" for one in later]
    (out / "tasks.jsonl").write_text("".join(rows))
    base = Path(tiny.__file__).parent
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(base)
    chat = Chat(tokenizer.backend_tokenizer, Template(TEMPLATE))
    examples = [encode(chat, episode(one, calls, reads, rng)) for one in made]
    options = WarmupOptions(episodes, episodes // 64, 64, lr, size="small", vocabulary=640, context=4096)
    trainer = Trainer(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), options)
    for loss in trainer.learn(examples):
        if trainer.step % 25 == 0:
            print(f"step {trainer.step}/{options.steps} loss {loss:.4f}", flush=True)
    write_tokenizer(chat.tokenizer, out / "policy", options.context)
    trainer.model.half().save_pretrained(out / "policy")
    places = {"tasks": (out / "tasks.jsonl").resolve(), "policy": (out / "policy").resolve()}
    for name, text in {"recipe.toml": RECIPE.format(**places, steps=steps), **FILES}.items():
        (out / name).write_text(text)


if __name__ == "__main__":
    tyro.cli(main)
