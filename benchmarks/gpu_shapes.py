r"""The shapes of the recipes for GPUs on random weights: memory beside what is predicted, and seconds, a line each.

    python benchmarks/gpu_shapes.py [qwen2.5-0.5b qwen2.5-1.5b qwen2.5-7b qwen3-8b] [--device cuda] [--tiny]

Nothing is fetched, and no weights are written: a model of the published sizes is made on the device, with types, LoRA
and `micro_tokens` of the recipe.

- learner: optimizer steps on one pass of about `micro_tokens` tokens, a prompt of 512 and answers of `max_tokens`.
  Seconds are those of the last step; the first compiles. Measured is what PyTorch allocated at most from before the
  model was made, on the CPU the resident memory. Predicted is the sum of `--dry-run`, without a server.
- engine: the embedded engine, 64 conversations, behind the same prompt. Seconds are those of a token in all of them.

`--tiny` takes two narrow layers and short passes instead: a test of this file.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from size import Meter
from transformers import AutoConfig, AutoModelForCausalLM
from tree import grpo, packed_of, take

from turngym.agents import policy as loading
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.models.memory import GIB, Load, count_of, needed
from turngym.agents.models.resolve import TINY, Source
from turngym.training.control.chain import chain
from turngym.training.loop.learner import Learner
from turngym.training.methods import parse_methods
from turngym.training.runs.config import TrainConfig, read_recipe
from turngym.training.runs.dry_run import PUBLISHED

MODELS = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "qwen3-8b")
SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
SMALL |= {"num_key_value_heads": 1, "vocab_size": 2048}
PROMPT, ROWS, DRAWN = 512, 64, 33


def random_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Make on the device what the policy would read from the folder."""
    with torch.device(device):
        made = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=dtype, attn_implementation="eager"
        )
    return made.requires_grad_(False)


def synchronize(device: str) -> None:
    """Wait for what the device still does."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(device: str, work: Callable[[], Any]) -> float:
    """Return how long some work takes."""
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began


def learn(
    config: TrainConfig, shape: dict[str, Any], load: Callable[[], Any], steps: int
) -> tuple[Any, str]:
    """Take optimizer steps; return the policy, and what was predicted and measured."""
    device, prompt = config.machine.device, min(PROMPT, config.micro_tokens // 4)
    length = min(config.sampling.max_tokens or PROMPT, config.micro_tokens // 4)
    answers = (config.micro_tokens - prompt) // length
    tokens = prompt + answers * length
    work = Load(tokens, answers * length, config.checkpointing, copied=False)
    predicted = needed(shape, count_of(shape), config.machine.dtype, config.lora, 0, work).total
    meter = Meter(device)
    meter.reset()
    policy = load()
    learner = Learner(policy, chain(*parse_methods("grpo")), lr=config.lr, micro_tokens=tokens)
    packed, taken = packed_of(grpo(prompt, (length,) * answers), 0), []
    for step in range(steps):
        taken.append(seconds(device, lambda: take(learner, packed)))
        assert policy.version == step + 1, "the step was refused"
    learner.optimizer.zero_grad(set_to_none=True)
    return policy, (
        f"learner, {tokens} tokens: predicted {predicted / GIB:.2f} GiB, measured {meter.peak() / GIB:.2f}: "
        f"{predicted / max(meter.peak(), 1):.2f}; step {taken[-1]:.2f} s (first {taken[0]:.1f}), "
        f"{tokens / taken[-1]:.0f} tokens/s"
    )


def draw(config: TrainConfig, shape: dict[str, Any], policy: Any) -> str:
    """Draw with the embedded engine; return what was predicted and measured."""
    device, rows = config.machine.device, min(ROWS, config.prompts * config.group)
    context = rows * (min(PROMPT, config.micro_tokens // 4) + DRAWN)
    takes = needed(shape, count_of(shape), config.machine.dtype, config.lora, context, Load(0, 0))
    predicted = replace(takes, optimizer=0).total
    meter = Meter(device)
    meter.reset()
    engine = TorchEngine(policy, slots=rows)
    prompts = (
        np.random.default_rng(0).integers(0, 600, (rows, context // rows - DRAWN)).astype(np.int32)
    )

    async def turns(tokens: int) -> None:
        sessions = [engine.session() for _ in prompts]
        what = Sampling(max_tokens=tokens)
        await asyncio.gather(
            *(
                one.sample(prompt, what, (0, i))
                for i, (one, prompt) in enumerate(zip(sessions, prompts))
            )
        )
        for session in sessions:
            session.close()

    first, once, many = (seconds(device, lambda n=n: asyncio.run(turns(n))) for n in (2, 1, DRAWN))
    engine.close()
    each = (many - once) / (DRAWN - 1)
    measured = (
        f"predicted {predicted / GIB:.2f} GiB, measured {meter.peak() / GIB:.2f}; "
        if meter.cuda
        else ""
    )
    return (
        f"engine, {rows} conversations: {measured}prompts {once:.2f} s (first {first:.1f}), a token {1000 * each:.1f} "
        f"ms, {rows / each:.0f} tokens/s"
    )


def measure(name: str, device: str, tiny: bool, steps: int) -> None:
    """Print the line of a recipe."""
    config = read_recipe(f"gsm8k-python+{name}")
    config = config.changed(device=device, **({"micro_tokens": 512, "prompts": 1} if tiny else {}))
    shape = PUBLISHED[config.policy] | (SMALL if tiny else {})
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path in TINY.glob("tokenizer*.json"):
            shutil.copy(path, folder)
        (folder / "config.json").write_text(json.dumps(shape))
        how: dict[str, Any] = {
            "device": device,
            "dtype": config.machine.dtype,
            "checkpointing": config.checkpointing,
        }
        policy, learned = learn(
            config,
            shape,
            lambda: loading.load_policy(Source(folder), lora=config.lora, **how),
            steps,
        )
        policy.end_ids = frozenset()  # turns are as long as they are to be
        print(
            f"{name}, {count_of(shape) / 1e9:.2f} billion weights: {learned}; {draw(config, shape, policy)}",
            flush=True,
        )


def main() -> int:
    """Measure each recipe; one that fails is named, and the others are still measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="*", default=[*MODELS], help=f"recipes, of {', '.join(MODELS)}"
    )
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--steps", type=int, default=3, help="of the learner")
    parser.add_argument("--tiny", action="store_true", help="two narrow layers and short passes")
    options = parser.parse_args()
    loading._load_model, loading.check_folder = (
        random_model,
        lambda folder: None,
    )  # it has no weights
    card = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    print(f"{card}, torch {torch.__version__}{', tiny' * options.tiny}", flush=True)
    failed = 0
    for name in options.models:
        try:
            measure(name, options.device, options.tiny, options.steps)
        except Exception as error:
            failed += 1
            print(
                f"{name}: {type(error).__name__}: {' '.join(str(error).split()):.300}", flush=True
            )
        gc.collect()
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
