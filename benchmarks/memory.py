"""The memory of a training run on the CPU: what `turngym train --dry-run` predicts, beside what it takes.

    python benchmarks/memory.py [smollm2-135m half-qwen2.5-0.5b] [--checkpointing]

Each policy is a random model of the shape named, in a process of its own: two steps of 16 episodes with one turn of 64
tokens in float32, with the engine, LoRA on all layers and the head, checkpoints and validations of a run. An entropy
bonus moves the weights whatever is drawn. Measured is the largest resident memory of the process above what it had with
everything imported.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49_152,
    },
    "half-qwen2.5-0.5b": {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 12,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
    },
}  # fmt: skip


def save_model(folder: Path, shape: str) -> None:
    """Write a random policy of a shape, in bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from turngym.agents.models.resolve import TINY

    disable_progress_bar()
    for pattern in ("tokenizer*.json", "*.jinja"):
        for path in TINY.glob(pattern):
            shutil.copy(path, folder)
    config = AutoConfig.for_model(
        **SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=8192
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def resident(name: str) -> int:
    """Return VmRSS, or VmHWM: its largest value so far."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) << 10


def measure(shape: str, checkpointing: bool) -> None:
    """Train, and print what was predicted and measured."""
    from turngym.agents.models.memory import GIB, parameters, read_config
    from turngym.training.runs import run
    from turngym.training.runs.config import TrainConfig
    from turngym.training.runs.dry_run import Lengths, dry_run, predicted

    for module in (
        "torch",
        "transformers.models.llama.modeling_llama",
        "transformers.models.qwen2.modeling_qwen2",
    ):
        importlib.import_module(module)
    importlib.import_module("peft.tuners.lora")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        folder.mkdir()
        writer = get_context("fork").Process(
            target=save_model, args=(folder, shape)
        )  # whose memory is gone with it
        writer.start()
        writer.join()
        config = TrainConfig(
            env="turngym/Math-v0",
            method="grpo,entropy-bonus",
            policy=str(folder),
            out=str(Path(name) / "run"),
        )
        config = config.changed(
            steps=2,
            eval_every=2,
            eval_tasks=16,
            prompts=4,
            group=4,
            max_tokens=64,
            lr=1e-4,
            checkpointing=checkpointing,
        )
        longest = next(
            line.about for line in dry_run(config, "", ()).lines if line.what == "prompts"
        )
        lengths = Lengths([int(longest.split(" to ")[1].split()[0])], 64, 1, 8192)
        takes, tokens, _ = predicted(config, read_config(folder), parameters(folder), lengths)
        before = resident("VmRSS")
        for _ in run.execute(run.prepare(config)):
            pass
        taken = resident("VmHWM") - before
    parts = ", ".join(f"{part} {size / GIB:.2f}" for part, size in vars(takes).items() if size)
    print(f"{shape}{', checkpointing' * checkpointing}, {tokens} tokens a pass: {parts}")
    print(
        f"  predicted {takes.total / GIB:.2f} GiB, measured {taken / GIB:.2f} GiB: {takes.total / taken:.2f}",
        flush=True,
    )


def main() -> int:
    """Measure each shape in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="*", default=[*SHAPES], help=f"of {', '.join(SHAPES)}")
    parser.add_argument(
        "--checkpointing", action="store_true", help="compute layers again in the backward pass"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.shapes[0], options.checkpointing)
        return 0
    again = ["--checkpointing"] * options.checkpointing
    commands = [[sys.executable, __file__, shape, "--here", *again] for shape in options.shapes]
    return max(subprocess.run(command).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())
