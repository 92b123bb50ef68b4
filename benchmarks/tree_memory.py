r"""Peak memory of a learner's step on branching rollouts: packed paths beside the tree, and what checkpointing saves.

    python benchmarks/tree_memory.py [--width 256] [--layers 4] [--seed 0]

- packed: the paths end to end, each attending within itself; a token that paths share is computed on each of them
- tree: the learner's own way, every token once

Each figure is the most resident memory of a process that does nothing else than forward and backward, above what it had
before. The tree must not take more than the packed paths, on any shape, with checkpointing and without.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar
from tree import SHAPES, VOCABULARY, learner_in, packed_of, peak

from turngym.agents.models.resolve import TINY

WAYS = ("packed", "tree")


def save_model(folder: Path, width: int, layers: int) -> int:
    """Write a random Qwen2; return how many weights it has."""
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=11 * width // 4,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return int(model.num_parameters())


def alone(folder: Path, shape: str, way: str, checkpointing: bool, seed: int) -> float:
    """Return the peak of one step in a process of its own, in MiB; this one has not made any."""
    with get_context("fork").Pool(1) as process:
        return process.apply(_one, (folder, shape, way, checkpointing, seed))


def _one(folder: Path, shape: str, way: str, checkpointing: bool, seed: int) -> float:
    torch.set_num_threads(1)
    learner = learner_in(folder)
    learner.policy.checkpointing = checkpointing
    return peak(learner, way, packed_of(SHAPES[shape], seed))


def main() -> int:
    """Print a line a shape; return 1 where the tree takes more than the packed paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=256, help="of the model")
    parser.add_argument("--layers", type=int, default=4, help="of the model")
    parser.add_argument("--seed", type=int, default=0, help="draws tokens")
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    short = 0
    with tempfile.TemporaryDirectory() as name:
        weights = save_model(Path(name), options.width, options.layers)
        print(
            f"{platform.machine()}, torch {torch.__version__}, Qwen2 of {weights / 1e6:.1f} million weights, MiB"
        )
        for shape in SHAPES:
            for checkpointing in (False, True):
                packed, tree = (
                    alone(Path(name), shape, way, checkpointing, options.seed) for way in WAYS
                )
                short += tree > packed
                mark, how = (
                    "ok" if tree <= packed else "SHORT",
                    "checkpointed" if checkpointing else "plain",
                )
                print(
                    f"{mark:5} {shape:40} {how:12} packed {packed:7.1f}   tree {tree:7.1f}",
                    flush=True,
                )
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
