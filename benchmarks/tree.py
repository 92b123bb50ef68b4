r"""A learner's step on branching rollouts, computed three ways in one run: time, memory and tokens.

    python benchmarks/tree.py [--quick] [--rounds 5] [--trees 20] [--seed 0]

- padded: every path a row, padded on the right, the model's own causal attention (SDPA), logits of every token
- packed: the paths end to end, each attending within itself; a token that paths share is computed on each of them
- tree: the learner's own way, every token once

All compute linear layers as the learner does, and give the loss and the LoRA gradient of the same objective, which is
checked first. Seconds are CPU seconds of one
thread for forward and backward, alternately; medians. Peak memory is that of a process that does nothing else,
above what the model takes. The gain should be the token ratio: the tokens that padded computes over those of tree.
"""

from __future__ import annotations

import argparse
import gc
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.data.batch import Current, Terms
from turngym.training.data.packing import Packed, pack
from turngym.training.loop.learner import Learner, Update
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods import parse_methods
from turngym.training.model.chunked_head import token_stats
from turngym.training.model.lora_linear import one_step_linears

VOCABULARY = 2048
GOAL, GOAL_RANDOM = 0.95, 0.85  # of the token ratio
Segment = tuple[int, int, bool]  # parent, tokens, drawn by the policy
Way = Callable[[Learner, Packed], Current]


# --- trees


def grpo(prompt: int, lengths: Sequence[int]) -> list[Segment]:
    """Return a prompt and answers to it."""
    return [(-1, prompt, False), *((0, length, True) for length in lengths)]


def arpo() -> list[Segment]:
    """Return 4 episodes of three turns that branch in two behind each of their two tool calls."""
    tree: list[Segment] = [(-1, 96, False)]

    def add(*segment: int) -> int:
        tree.append((segment[0], segment[1], bool(segment[2])))
        return len(tree) - 1

    for _ in range(4):
        seen = add(add(0, 48, 1), 32, 0)
        for second in range(2):
            again = add(add(seen, 32 + 16 * second, 1), 24, 0)
            for third in range(2):
                add(again, 32 + 24 * third, 1)
    return tree


def household() -> list[Segment]:
    """Return one long episode that a branch leaves behind each of its turns."""
    tree: list[Segment] = [(-1, 192, False)]
    now = 0
    for _ in range(8):
        tree += [(now, 12, True), (len(tree), 20, False)]
        now = len(tree) - 1
        tree.append((now, 32, True))
    return [*tree, (now, 32, True)]


SHAPES: dict[str, list[Segment]] = {
    "GRPO, prompt 128, 8 answers of 32-95": grpo(128, [32 + 9 * i for i in range(8)]),
    "GRPO, prompt 256, 16 answers of 16-46": grpo(256, [16 + 2 * i for i in range(16)]),
    "ARPO, 4 episodes, 2x2 branches after tools": arpo(),
    "household, a branch per turn": household(),
}


def at_random(drawn: random.Random) -> list[Segment]:
    """Return a tree of 4 to 16 paths of up to 5 turns that branch anywhere behind an observation."""
    tree: list[Segment] = [(-1, drawn.randint(16, 256), False)]
    places = [(0, 0)]  # segment, turns so far
    for _ in range(drawn.randint(4, 16)):
        now, turns = drawn.choice(places)
        for turn in range(turns, drawn.randint(turns + 1, 5)):
            if turn > turns:
                tree.append((now, drawn.randint(4, 96), False))
                now = len(tree) - 1
                places.append((now, turn))
            tree.append((now, drawn.randint(4, 96), True))
            now = len(tree) - 1
    return tree


def take(learner: Learner, packed: Packed) -> Update:
    """Take an optimizer step, and return what it was."""
    update = learner.propose(learner.prepare(packed), learner.control.init())
    learner.apply(update)
    return update


def packed_of(segments: Sequence[Segment], seed: int) -> Packed:
    """Return a tree of random tokens as the learner is given it."""
    rng, tree = np.random.default_rng(seed), Tree((0, 0, 0), 0, "tree")
    for parent, size, drawn in segments:
        tokens = rng.integers(VOCABULARY, size=size, dtype=np.int32)
        turn = Turn.unsampled(parent, "assistant" if drawn else "user", "", tokens)
        tree.add(
            replace(turn, sampled=np.ones(size, np.bool_), logp_roll=turn.logp_roll - 7)
            if drawn
            else turn
        )
    ends = sorted(set(range(len(segments))) - {parent for parent, _, _ in segments})
    for branch, node in enumerate(ends):
        tree.leaves.append(Leaf(node, branch, Outcome.DONE, "answered", float(rng.random())))
    return pack([tree])


# --- ways


def padded(learner: Learner, packed: Packed) -> Current:
    """Compute every path in a row of its own."""
    policy = learner.policy
    policy.base.config._attn_implementation = "sdpa"
    tokens = pad_sequence(packed.tokens, batch_first=True)
    with one_step_linears(policy.base):
        logits = policy.model(input_ids=tokens, use_cache=False).logits
    plain = logits.float().log_softmax(-1)
    drawn = pad_sequence([sampled[1:] for sampled in packed.sampled], batch_first=True)
    entropy = -(plain.exp() * plain).sum(-1)[:, :-1]
    logp = plain[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return Current(logp[drawn], entropy[drawn])


def thrifty(learner: Learner, packed: Packed) -> Current:
    """Compute every path in a row of its own, and the logits of drawn tokens alone."""
    policy = learner.policy
    policy.base.config._attn_implementation = "sdpa"
    tokens = pad_sequence(packed.tokens, batch_first=True)
    drawn = pad_sequence([sampled[1:] for sampled in packed.sampled], batch_first=True)
    head = policy.base.get_output_embeddings()
    with one_step_linears(policy.base):
        hidden = policy.base.model(input_ids=tokens, use_cache=False).last_hidden_state
        logp, entropy, _ = token_stats(
            hidden[:, :-1][drawn], head, packed.token, packed.temperature, VOCABULARY
        )
    return Current(logp, entropy)


def end_to_end(learner: Learner, packed: Packed) -> Current:
    """Compute every path whole, all in one row."""
    names = [torch.arange(len(tokens)) + (path << 20) for path, tokens in enumerate(packed.tokens)]
    slots = torch.arange(packed.batch.n_slots)
    apart = replace(packed, shared=names, batch=replace(packed.batch, token=slots))
    return learner.forward(apart, range(apart.batch.n_paths))


def tree(learner: Learner, packed: Packed) -> Current:
    """Compute every token once."""
    return learner.forward(packed, range(packed.batch.n_paths))


WAYS: dict[str, Way] = {
    "padded": padded,
    "padded, drawn logits": thrifty,
    "packed": end_to_end,
    "tree": tree,
}


def step(learner: Learner, way: Way, packed: Packed, terms: Terms) -> float:
    """Run forward and backward; return the loss."""
    learner.optimizer.zero_grad(set_to_none=True)
    loss = objective(way(learner, packed), packed.batch, terms, packed.batch.n_slots)
    loss.backward()
    return loss.item()


def terms_of(packed: Packed) -> Terms:
    """Return terms with advantages of both signs and an entropy bonus."""
    score = packed.batch.turns.score[packed.batch.row]
    return replace(start_terms(score - score.mean()), entropy_coef=torch.full_like(score, 0.01))


def gradient(learner: Learner) -> Tensor:
    """Return the gradient, end to end."""
    return torch.cat(
        [one.grad.flatten() for one in learner.parameters.values() if one.grad is not None]
    )


# --- measuring


@dataclass(frozen=True)
class Measured:
    """What a shape took: tokens and CPU seconds of each way, and how far gradients differ."""

    tokens: dict[str, int]
    seconds: dict[str, float]
    apart: float

    @property
    def ratio(self) -> float:
        """Return how many times fewer tokens the tree has than padded rows."""
        return self.tokens["padded"] / self.tokens["tree"]

    def gain(self, way: str) -> float:
        """Return how many times as fast as `way` the tree is."""
        return self.seconds[way] / self.seconds["tree"]


def measure(
    learner: Learner, packed: Packed, rounds: int, ways: Sequence[str] = tuple(WAYS)
) -> Measured:
    """Compare the ways' gradients, then time them alternately."""
    terms, gradients = terms_of(packed), []
    for name in ways:
        step(learner, WAYS[name], packed, terms)
        gradients.append(gradient(learner))
    apart = max(float((one - gradients[-1]).norm() / gradients[-1].norm()) for one in gradients)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    gc.disable()
    for _ in range(rounds):
        for name in ways:
            gc.collect()
            began = time.process_time()
            step(learner, WAYS[name], packed, terms)
            taken[name].append(time.process_time() - began)
    gc.enable()
    lengths = [len(tokens) for tokens in packed.tokens]
    once = len(packed.layout(range(len(lengths))).tokens)
    rows = len(lengths) * max(lengths)
    tokens = {"padded": rows, "padded, drawn logits": rows, "packed": sum(lengths), "tree": once}
    return Measured(tokens, {name: median(times) for name, times in taken.items()}, apart)


def peak(learner: Learner, way: str, packed: Packed) -> float:
    """Return the most memory of a step above that before it, in MiB; the process must not have made one before."""
    small = packed_of([(-1, 8, False), (0, 4, True), (0, 4, True)], 0)
    step(learner, WAYS[way], small, terms_of(small))
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's high-water mark begins anew
    before = _status("VmRSS")
    step(learner, WAYS[way], packed, terms_of(packed))
    return _status("VmHWM") - before


def _status(name: str) -> float:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) / 1024


def learner_in(folder: Path) -> Learner:
    """Return a learner of the model in `folder` with an adapter that does something."""
    policy = load_policy(folder, lora=LoraOptions(rank=16, alpha=32))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return Learner(policy, chain(*parse_methods("grpo,entropy-bonus")), lr=1e-4)


def save_model(folder: Path) -> None:
    """Write a random Qwen2 of 3.3 million weights."""
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


# --- printing


def shapes(learner: Learner, folder: Path, rounds: int, seed: int) -> int:
    """Print a line a shape and way; return how many miss the goal."""
    short = 0
    for name, segments in SHAPES.items():
        found = measure(learner, packed_of(segments, seed), rounds)
        part = found.gain("padded") / found.ratio
        short += part < GOAL
        mark = "ok" if part >= GOAL else "SHORT"
        print(f"\n{name}: gradients differ by {found.apart:.1e} at most")
        print(
            f"{mark:5} token ratio {found.ratio:.2f}, gain {found.gain('padded'):.2f}x, {part:.2f} of it (>= {GOAL})"
        )
        for way, seconds in found.seconds.items():
            command = [sys.executable, __file__, "--peak", f"{folder}", name, way]
            used = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            times = f"{1e3 * seconds:7.1f} ms CPU   tree is {found.gain(way):5.2f}x as fast"
            print(
                f"      {way:22} {found.tokens[way]:6} tokens   {times}   peak {used:6.1f} MiB",
                flush=True,
            )
    return short


def random_trees(learner: Learner, trees: int, rounds: int, seed: int) -> int:
    """Print how much of the token ratio random trees gain; return 1 where one misses the goal."""
    drawn, parts, ratios = random.Random(f"trees {seed}"), [], []
    for i in range(trees):
        found = measure(learner, packed_of(at_random(drawn), seed + i), rounds, ("padded", "tree"))
        ratios.append(found.ratio)
        parts.append(found.gain("padded") / found.ratio)
    mark = "ok" if min(parts) >= GOAL_RANDOM else "SHORT"
    print(
        f"\n{mark:5} {trees} random trees, token ratios {min(ratios):.2f} to {max(ratios):.2f} ({median(ratios):.2f})"
    )
    print(
        f"      gain over token ratio: median {median(parts):.2f}, least {min(parts):.2f} (>= {GOAL_RANDOM})"
    )
    return int(min(parts) < GOAL_RANDOM)


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each way")
    parser.add_argument("--trees", type=int, default=20, help="random trees")
    parser.add_argument("--seed", type=int, default=0, help="draws trees and tokens")
    parser.add_argument("--quick", action="store_true", help="one round, three random trees")
    parser.add_argument(
        "--peak", nargs=3, metavar=("MODEL", "SHAPE", "WAY"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.trees = 1, min(options.trees, 3)
    torch.set_num_threads(1)
    disable_progress_bar()
    if options.peak:
        folder, shape, way = options.peak
        print(peak(learner_in(Path(folder)), way, packed_of(SHAPES[shape], options.seed)))
        return 0
    print(
        f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}"
    )
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder))
        learner = learner_in(Path(folder))
        short = shapes(learner, Path(folder), options.rounds, options.seed)
        short += (
            random_trees(learner, options.trees, options.rounds, options.seed)
            if options.trees
            else 0
        )
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
