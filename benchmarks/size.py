r"""A training step of a larger policy: the memory that is predicted from its files, beside what it takes.

    python benchmarks/size.py [--shape 0.5B] [--device cpu] [--answers 8] [--length 64] [--plain]

The policy is a random Qwen2 of the shape of Qwen2.5, written to a temporary folder in bfloat16 and loaded as `turngym
train` loads it: LoRA in float32, layers computed again in the backward pass unless `--plain`. A step is that of the
learner on one prompt of 256 tokens and answers to it, all in one micro-batch.

Predicted are what `check_fits` adds up and, as in `docs/size.md`, what the layers keep of each token. Measured on the
CPU is the resident memory of the process above what it had before it loaded the policy, on CUDA what PyTorch allocated.
The head's chunks are not predicted, nor what glibc keeps of freed memory: MALLOC_MMAP_THRESHOLD_=262144 makes it give
that back, and steps slower.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar
from tree import grpo, packed_of, take

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.models.memory import GIB, check_fits, parameters, read_config
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy
from turngym.training.control.chain import chain
from turngym.training.loop.learner import Learner
from turngym.training.methods import parse_methods

PROMPT = 256
NAMES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)
SHAPES = {
    "0.5B": (896, 4864, 24, 14, 2),
    "1.5B": (1536, 8960, 28, 12, 2),
    "3B": (2048, 11008, 36, 16, 2),
    "7B": (3584, 18944, 28, 28, 4),
}


def save_model(folder: Path, shape: str, device: str) -> None:
    """Write a random policy of a shape."""
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    sizes: dict[str, Any] = dict(zip(NAMES, SHAPES[shape], strict=True))
    tied = shape != "7B"
    config = Qwen2Config(
        vocab_size=151936 if tied else 152064,
        max_position_embeddings=32768,
        tie_word_embeddings=tied,
        **sizes,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        Qwen2ForCausalLM(config).save_pretrained(folder)


def of_layers(config: dict[str, Any], tokens: int, checkpointing: bool) -> int:
    """Return about how many bytes the layers keep of so many tokens for the backward pass."""
    width, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    whole = 36 * width + 14 * int(config["intermediate_size"])
    return tokens * (2 * width * layers + whole if checkpointing else whole * layers)


class Meter:
    """The most memory since it was last set back, in bytes."""

    def __init__(self, device: str) -> None:
        self.cuda = device.startswith("cuda")
        self.before = 0 if self.cuda else _status("VmRSS")

    def reset(self) -> None:
        """Set it back."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text(
                "5"
            )  # the kernel's high-water mark begins anew

    def peak(self) -> int:
        """Return it."""
        return torch.cuda.max_memory_allocated() if self.cuda else _status("VmHWM") - self.before


def _status(name: str) -> int:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) << 10


def timed(what: str, meter: Meter, work: Callable[[], Any]) -> Any:
    """Print how long some work takes, and the peak of memory."""
    meter.reset()
    began = time.perf_counter()
    result = work()
    if meter.cuda:
        torch.cuda.synchronize()
    print(
        f"{what:10} {time.perf_counter() - began:7.1f} s   peak {meter.peak() / GIB:6.2f} GiB",
        flush=True,
    )
    return result


def main() -> int:
    """Load, and take the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="0.5B", help="of the model")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of torch on the CPU")
    parser.add_argument("--answers", type=int, default=8, help="paths of the step")
    parser.add_argument("--length", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--rank", type=int, default=32, help="of LoRA")
    parser.add_argument(
        "--targets", nargs="*", default=(), help="layers that LoRA adapts; all and the head without"
    )
    parser.add_argument(
        "--plain", action="store_true", help="keep what the layers need, without checkpointing"
    )
    parser.add_argument("--steps", type=int, default=2, help="to take")
    options = parser.parse_args()
    disable_progress_bar()
    packed = packed_of(grpo(PROMPT, (options.length,) * options.answers), 0)
    tokens, lora = (
        PROMPT + options.answers * options.length,
        LoraOptions(options.rank, 64, tuple(options.targets)),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a process of its own, whose memory is gone with it.
        writer = get_context("fork").Process(
            target=save_model, args=(folder, options.shape, options.device)
        )
        writer.start()
        writer.join()
        needed = check_fits(folder, "bfloat16", options.device, lora=lora)
        kept = of_layers(read_config(folder), tokens, not options.plain)
        print(
            f"{platform.machine()}, torch {torch.__version__}, {parameters(folder) / 1e9:.2f} billion weights"
        )
        parts = {
            "weights": needed.weights,
            "LoRA": needed.lora,
            "optimizer": needed.optimizer,
            "layers": kept,
        }
        told = ", ".join(f"{part} {size / GIB:.2f}" for part, size in parts.items())
        print(
            f"predicted  {told}: {(needed.total + kept) / GIB:.2f} GiB with {tokens} tokens a step",
            flush=True,
        )
        meter = Meter(options.device)
        how: dict[str, Any] = {
            "device": options.device,
            "threads": options.threads,
            "checkpointing": not options.plain,
        }
        policy = timed(
            "loading", meter, lambda: load_policy(folder, dtype="bfloat16", lora=lora, **how)
        )
        learner = Learner(policy, chain(*parse_methods("grpo")), lr=1e-4, micro_tokens=tokens)
        for step in range(1, options.steps + 1):
            update = timed(f"step {step}", meter, lambda: take(learner, packed))
            assert not update.refused and policy.version == step, update.refused
    return 0


if __name__ == "__main__":
    sys.exit(main())
