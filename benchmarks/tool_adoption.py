"""Learning to trust a tool: MathPython where a direct answer is right a third of the time and a call clumsy at first.

    python benchmarks/tool_adoption.py --out runs/adoption
    cd runs/adoption
    turngym compare grpo entropy-bonus turn-floor --on recipe.toml --tune tune.toml --seeds 8 --workers 2 --out compare

writes problems of MathPython with three answers to choose from, the tiny policy after a warm-up, a recipe for both, and
two settings of each method to choose from, on a seed that is not judged.
Of the warm-up's episodes the share `calls` compute with the right program, and of these the share `reads` report its
result; the others report a number of the problem, or pick one of the three answers without a call. Nothing else differs
from MathPython: the tool runs, and the grader compares numbers.

    python benchmarks/tool_adoption.py --policy smollm2-135m --calls 0.3 --episodes 320 --steps 60 --out runs/adoption
    cd runs/adoption
    turngym warmup turngym/MathPython-v0 --policy smollm2-135m --data demos.jsonl --episodes 320 --out policy
    turngym compare grpo floor.toml --on recipe.toml --seeds 3 --final 256 --out compare

does the same with a model that was trained on text: the warm-up's episodes are conversations for its LoRA weights.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import tyro

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template
from turngym.agents.cli.settings import WarmupOptions
from turngym.agents.models.resolve import TINY
from turngym.agents.warmup.supervised import TEMPLATE, Trainer, write_tokenizer
from turngym.benchmarks.make_tiny import Demo, demo, encode, run
from turngym.envs.math import MathTasks
from turngym.envs.split_episodes import begin, open_split
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

REAL = """# Tool adoption: SmolLM2-135M picks one of three answers, seldom calls, and misreads what it is told.
env = "turngym/MathPython-v0"
tasks = "{tasks}"
option = ["max_turns=3", "format=tags", "system=false"]
policy = "{policy}"
method = "grpo"
steps = {steps}
prompts = 8
group = 8
max_tokens = 40
lr = 2e-4
micro_tokens = 1024
checkpointing = false
seed = 100
eval_every = {steps}
eval_tasks = 64
"""

FLOOR = "grpo,turn-floor:of=choices,axis=turn,first=0.1,most=0.3"
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


def episode(
    one: Choice, calls: float, reads: float, rng: random.Random, form: str = "hermes"
) -> Demo:
    if rng.random() >= calls:
        return Demo(one.task.prompt, (f"\\boxed{{{rng.choice(one.offered)}}}",), ())
    return demo(one.task, "good" if rng.random() < reads else "misread", get_format(form), rng)


def conversations(
    made: Sequence[Choice], tasks: Path, calls: float, reads: float, rng: random.Random
) -> Iterator[str]:
    """Yield episodes on `tasks` as lines of JSON with the messages that the environment shows."""
    options = {"tasks": str(tasks), "format": "tags", "max_turns": 3}
    with closing(open_split("turngym/MathPython-v0", options).env) as env:
        for place, one in enumerate(made):
            _, info = begin(env, place, None)
            messages = [*info["messages"]]
            for said in episode(one, calls, reads, rng, "tags").says:
                info = env.step(said)[4]
                messages += [{"role": "assistant", "content": said}, *info["messages"]]
            yield json.dumps({"messages": messages[: -len(info["messages"]) or None]}) + "\n"


def write_tasks(made: Sequence[Choice], path: Path) -> Path:
    path.write_text(
        "".join(
            json.dumps({"problem": one.task.prompt, "answer": one.answer}) + "\n" for one in made
        )
    )
    return path.resolve()


def warm_up(
    made: Sequence[Choice], calls: float, reads: float, lr: float, rng: random.Random, out: Path
) -> None:
    """Write the tiny policy after its warm-up."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    base = TINY
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(base)
    chat = Chat(tokenizer.backend_tokenizer, Template(TEMPLATE))
    examples = [encode(chat, episode(one, calls, reads, rng)) for one in made]
    options = WarmupOptions(
        len(made), len(made) // 64, 64, lr, size="small", vocabulary=640, context=4096
    )
    trainer = Trainer(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), options)
    for loss in trainer.learn(examples):
        if trainer.step % 25 == 0:
            print(f"step {trainer.step}/{options.steps} loss {loss:.4f}", flush=True)
    out.mkdir(exist_ok=True)
    write_tokenizer(chat.tokenizer, out, options.context)
    trainer.model.half().save_pretrained(out)


def main(
    out: Path = Path("runs/adoption"),
    policy: Literal["tiny", "smollm2-135m"] = "tiny",
    calls: float = 0.5,
    reads: float = 0.27,
    episodes: int = 12_000,
    held: int = 6_000,
    lr: float = 1e-3,
    seed: int = 1,
    steps: int = 160,
) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    problems = MathTasks("train", (1, 2))
    whole = (problems[number] for number in range(2 * (episodes + held)))
    made = [choice(task, rng) for task in whole if re.fullmatch(r"-?\d{1,7}", run(task.solution))]
    made, later = made[:episodes], made[episodes : episodes + held]
    out.mkdir(parents=True, exist_ok=True)
    tasks, recipe, files = write_tasks(later, out / "tasks.jsonl"), RECIPE, FILES
    if policy == "tiny":
        warm_up(made, calls, reads, lr, rng, out / "policy")
    else:
        shown, recipe = write_tasks(made, out / "shown.jsonl"), REAL
        (out / "demos.jsonl").write_text("".join(conversations(made, shown, calls, reads, rng)))
        files = {"floor.toml": f'method = "{FLOOR}"\n'}
    places = {"tasks": tasks, "policy": (out / "policy").resolve()}
    for name, text in {"recipe.toml": recipe.format(**places, steps=steps), **files}.items():
        (out / name).write_text(text)


if __name__ == "__main__":
    tyro.cli(main)
