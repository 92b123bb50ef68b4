r"""A training step beside TRL's GRPOTrainer: the learner's part alone, and whole, with generation.

    python benchmarks/step.py [--rounds 3] [--seed 0] [--quick]

The learner's step: both are given the same paths with forced tokens, the same scores, and log-probabilities of a
sampler that is off the policy, so that some ratios are clipped. TRL gets every path as a row of its own, prompt and
completion with a mask over the observations, in place of what its trainer would generate; timed are its
`training_step` (fused log-probability head, loss, metrics, backward), gradient clipping and AdamW. Of ours: packing,
advantages, log-probabilities, loss, backward, clipping and AdamW, each token once. Neither computes log-probabilities
of the old policy: both have them from the sampler. The gradients are compared first.

The whole step: before that, each draws turns of the same lengths, at temperature 1. TRL does it as its tool loop does,
by the trainer's own `_generate_single_turn` (transformers' `generate`): every turn takes all paths with all that they
have said. It cannot branch, so it draws each path from the start. Ours is the embedded engine, which forks.

The floor: products of matrices that the learner's step cannot do without, counted by PyTorch in the same step, over
the rate of products of the model's own shapes, by PyTorch and by oneDNN, measured in the same run.

Loss: GRPO's advantages, clip 0.2, mean over all sampled tokens ("dapo" of TRL), no KL, the same LoRA weights in
float32. Seconds are CPU seconds of one thread, alternately; medians.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar
from tree import Segment, arpo, grpo, household, take

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.control.control import advantages
from turngym.training.data.packing import Packed, pack
from turngym.training.loop.learner import Learner
from turngym.training.methods import parse_methods
from turngym.training.model import attention, lora_linear
from turngym.training.model.lora_linear import product

APART = 1e-4  # relative, of the gradients
FLOOR = 1.6  # most that the learner's step is to take over the time of its products
LR = 1e-6
TARGETS = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
)  # TRL adapts no head


@dataclass(frozen=True)
class Shape:
    """A workload: the tree of each task, and how many times as fast as TRL a step, and a whole one, are to be."""

    tasks: tuple[Sequence[Segment], ...]
    goal: float
    whole: float


SHAPES = {
    "branching: 4 tasks, household, a branch a turn": Shape((household(),) * 4, 3.0, 4.0),
    "branching: 4 tasks, 4 episodes, 2x2 branches": Shape((arpo(),) * 4, 3.0, 4.0),
    "flat: 8 prompts of 32, 8 answers of 64": Shape((grpo(32, (64,) * 8),) * 8, 1.0, 2.0),
}
SIZES: dict[str, dict[str, Any]] = {
    "3M": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    },
    "12M": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
    },
}
VOCABULARY = 2048


# --- rollouts


def trees_of(shape: Shape, seed: int) -> list[Tree]:
    """Return the trees of a shape: random tokens, random scores."""
    rng, trees = np.random.default_rng(seed), []
    for task, segments in enumerate(shape.tasks):
        tree = Tree((0, 0, task), task, f"task {task}")
        for parent, size, drawn in segments:
            tokens = rng.integers(VOCABULARY, size=size, dtype=np.int32)
            turn = Turn.unsampled(parent, "assistant" if drawn else "user", "", tokens)
            tree.add(replace(turn, sampled=np.full(size, drawn)))
        ends = sorted(set(range(len(segments))) - {parent for parent, _, _ in segments})
        for branch, node in enumerate(ends):
            tree.leaves.append(Leaf(node, branch, Outcome.DONE, "answered", float(rng.random())))
        trees.append(tree)
    return trees


def drawn_off(learner: Learner, trees: Sequence[Tree], seed: int) -> None:
    """Make the sampler of the trees one near the policy, as far off as an update makes it."""
    rng, said = np.random.default_rng(seed), learner.now(pack(trees)).logp.numpy()
    turns = [(tree, node) for tree in trees for leaf in tree.leaves for node in tree.replies(leaf)]
    ends = np.cumsum([len(tree.turns[node].tokens) for tree, node in turns])
    for (tree, node), logp in zip(turns, np.split(said, ends[:-1])):
        noise = rng.normal(0, 0.2, len(logp)).astype(np.float32)
        tree.turns[node] = replace(tree.turns[node], logp_roll=logp + noise)


# --- ours


def ours(learner: Learner, trees: list[Tree]) -> None:
    """Take a step."""
    update = take(learner, pack(trees))
    assert not update.refused, update.refused


def draw(policy: Policy, trees: Sequence[Tree]) -> None:
    """Draw all turns of the trees, of their lengths, each behind those before it."""

    async def behind(
        engine: TorchEngine, tree: Tree, node: int, parent: Any, given: list[int]
    ) -> None:
        turn, session = tree.turns[node], parent
        if turn.sampled.any():
            session = parent.fork() if parent else engine.session()
            sampling = Sampling(max_tokens=len(turn.tokens))
            said = await session.sample(np.array(given, np.int32), sampling, (*tree.key, node, 0))
            assert len(said.tokens) == len(turn.tokens)
        given = [] if session is not parent else [*given, *turn.tokens.tolist()]
        children = [child for child, other in enumerate(tree.turns) if other.parent == node]
        await asyncio.gather(*(behind(engine, tree, child, session, given) for child in children))
        if session is not parent:
            session.close()

    async def every() -> None:
        with closing(TorchEngine(policy, threads=1)) as engine:
            roots = (
                (tree, node)
                for tree in trees
                for node, turn in enumerate(tree.turns)
                if turn.parent < 0
            )
            await asyncio.gather(*(behind(engine, tree, node, None, []) for tree, node in roots))

    asyncio.run(every())


@contextmanager
def counted() -> Iterator[FlopCounterMode]:
    """Inside, linear layers are those of PyTorch, whose operations are counted."""
    before = attention.one_step_linears
    attention.one_step_linears = lora_linear.one_step_linears = lambda model: nullcontext()  # type: ignore[attr-defined]
    try:
        with FlopCounterMode(display=False) as counter:
            yield counter
    finally:
        attention.one_step_linears = lora_linear.one_step_linears = before  # type: ignore[attr-defined]


def rates(policy: Policy, tokens: int, rounds: int) -> dict[str, float]:
    """Return FLOP a second of the products of a pass, by PyTorch and by oneDNN."""
    ways = {"PyTorch": lambda x, weight: x @ weight.t(), "oneDNN": product}
    took = dict.fromkeys(ways, 0.0)
    layers = [
        layer.base_layer.weight for layer in policy.base.modules() if hasattr(layer, "base_layer")
    ]
    for weight in layers:
        x = torch.randn(tokens, weight.shape[1])
        for way, multiply in ways.items():
            times = []
            for _ in range(rounds + 1):
                began = time.process_time()
                multiply(x, weight)
                times.append(time.process_time() - began)
            took[way] += min(times)
    work = sum(2 * tokens * weight.numel() for weight in layers)
    return {way: work / seconds for way, seconds in took.items()}


# --- TRL


class Peer:
    """TRL's trainer, given rows instead of generating them."""

    def __init__(self, policy: Policy, rows: int, folder: Path) -> None:
        os.environ |= {
            "WANDB_DISABLED": "true",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        warnings.filterwarnings("ignore")
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        policy.base.set_attn_implementation("sdpa")
        config = GRPOConfig(
            output_dir=str(folder / "trl"),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=rows,
            num_generations=2,
            gradient_accumulation_steps=1,
            gradient_checkpointing=False,
            loss_type="dapo",
            beta=0.0,
            epsilon=0.2,
            learning_rate=LR,
            report_to=[],
            save_strategy="no",
        )
        tokens = PreTrainedTokenizerFast(
            tokenizer_file=str(TINY / "tokenizer.json"), padding_side="left"
        )
        tokens.pad_token = tokens.eos_token = "<|im_end|>"
        self.trainer = GRPOTrainer(
            model=policy.model,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["1"] * rows}),
            processing_class=tokens,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
        )
        self.policy = policy
        self.trainer.create_optimizer()
        self.trainer.current_gradient_accumulation_steps = 1

    def step(self, rows: dict[str, Tensor]) -> None:
        """Take a step on rows in place of generated ones."""
        trainer = self.trainer
        trainer._generate_and_score_completions = lambda _: rows
        trainer.training_step(trainer.model, [], None)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()

    def draw(self, trees: Sequence[Tree]) -> None:
        """Draw the turns of all paths, a turn of all at once, each path from its start."""
        paths = [
            [tree.turns[node] for node in tree.path(leaf)] for tree in trees for leaf in tree.leaves
        ]
        drawn = [[at for at, turn in enumerate(path) if turn.sampled.any()] for path in paths]
        for number in range(max(map(len, drawn))):
            active = [(path, at[number]) for path, at in zip(paths, drawn) if number < len(at)]
            said = [
                np.concatenate([turn.tokens for turn in path[:at]]).tolist() for path, at in active
            ]
            size = max(len(path[at].tokens) for path, at in active)
            self.trainer.generation_config.max_new_tokens = (
                self.trainer.generation_config.min_new_tokens
            ) = size
            new, _ = self.trainer._generate_single_turn(said, None, {}, 2)
            assert {len(tokens) for tokens in new} == {size}
        self.trainer.model.train()


def rows_of(trees: Sequence[Tree], by_path: Tensor) -> dict[str, Tensor]:
    """Return every path as a row as TRL's trainer makes it: prompts padded on the left, completions on the right."""
    paths = [(tree, leaf) for tree in trees for leaf in tree.leaves]
    columns: dict[str, list[Tensor]] = {
        name: [] for name in ("prompt", "completion", "tool_mask", "old")
    }
    for tree, leaf in paths:
        root, *rest = (tree.turns[node] for node in tree.path(leaf))
        columns["prompt"].append(torch.from_numpy(root.tokens).long())
        for name, field in (
            ("completion", "tokens"),
            ("tool_mask", "sampled"),
            ("old", "logp_roll"),
        ):
            columns[name].append(
                torch.from_numpy(np.concatenate([getattr(turn, field) for turn in rest]))
            )
    prompt = pad_sequence(
        columns["prompt"], batch_first=True, padding_value=-1, padding_side="left"
    )
    completion = pad_sequence(columns["completion"], batch_first=True, padding_value=-1).long()
    tool_mask = pad_sequence(columns["tool_mask"], batch_first=True).long()
    return {
        "prompt_ids": prompt.clamp(min=0),
        "prompt_mask": (prompt >= 0).long(),
        "completion_ids": completion.clamp(min=0),
        "completion_mask": (completion >= 0).long(),
        "tool_mask": tool_mask,
        "old_per_token_logps": pad_sequence(columns["old"], batch_first=True),
        "advantages": by_path,
        "num_items_in_batch": tool_mask.sum(),
    }


# --- measuring


def policy_in(folder: Path) -> Policy:
    """Return the policy in `folder` with an adapter that does something."""
    policy = load_policy(folder, lora=LoraOptions(rank=16, alpha=32, targets=TARGETS))
    policy.end_ids = frozenset()  # turns are as long as they are to be
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return policy


def gradient(policy: Policy) -> Tensor:
    """Return the gradient, end to end."""
    return torch.cat(
        [
            one.grad.flatten()
            for one in policy.trainable_parameters().values()
            if one.grad is not None
        ]
    )


def compare(folder: Path, name: str, shape: Shape, rounds: int, seed: int) -> bool:
    """Print how our step compares on a shape; return whether it is the same work and as fast as it should be."""
    learner = Learner(policy_in(folder), chain(*parse_methods("grpo")), lr=LR)
    trees = trees_of(shape, seed)
    drawn_off(learner, trees, seed)
    packed = pack(trees)
    rows = rows_of(trees, _by_path(learner, packed))
    peer = Peer(policy_in(folder), len(rows["advantages"]), folder)
    ways: dict[str, Callable[[], None]] = {
        "ours": lambda: ours(learner, trees),
        "TRL": lambda: peer.step(rows),
    }
    draws: dict[str, Callable[[], None]] = {
        "ours": lambda: draw(learner.policy, trees),
        "TRL": lambda: peer.draw(trees),
    }
    for step in ways.values():
        step()  # gradients stay until the next step
    one, other = gradient(learner.policy), gradient(peer.policy)
    apart = float((one - other).norm() / other.norm())
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    drawing: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, step in ways.items():
            peer.trainer.optimizer.zero_grad()
            began = time.process_time()
            draws[way]()
            drawing[way].append(time.process_time() - began)
            began = time.process_time()
            step()
            seconds[way].append(time.process_time() - began)
    flat, once = (
        rows["prompt_ids"].numel() + rows["completion_ids"].numel(),
        len(packed.layout(range(len(packed.names))).tokens),
    )
    own, trl = (median(seconds[way]) for way in ("ours", "TRL"))
    gain, whole = trl / own, (trl + median(drawing["TRL"])) / (own + median(drawing["ours"]))
    print(
        f"\n{name}: gradients differ by {apart:.1e} (< {APART:.0e}), token ratio {flat / once:.2f}"
    )
    print(
        f"{_mark(gain >= shape.goal)} learner's step {gain:.2f}x as fast as TRL's (>= {shape.goal})"
    )
    print(
        f"{_mark(whole >= shape.whole)} whole step {whole:.2f}x as fast as TRL's (>= {shape.whole})"
    )
    for way, tokens in (("ours", once), ("TRL", flat)):
        learn, drawn = (1e3 * median(times[way]) for times in (seconds, drawing))
        print(
            f"      {way:5} {tokens:6} tokens   {learn:8.1f} ms CPU to learn {drawn:9.1f} ms to draw",
            flush=True,
        )
    with counted() as counter:
        ours(learner, trees)
    floors = {
        way: counter.get_total_flops() / rate / own
        for way, rate in rates(learner.policy, once, rounds).items()
    }
    fits = 1 / floors["PyTorch"] <= FLOOR
    said = ", ".join(f"{1 / share:.2f} at the rate of {way}" for way, share in floors.items())
    print(
        f"{_mark(fits)} learner's step over the time of its products: {said} (<= {FLOOR} of PyTorch)",
        flush=True,
    )
    return apart < APART and gain >= shape.goal and whole >= shape.whole and fits


def _mark(good: bool) -> str:
    return "ok   " if good else "SHORT"


def _by_path(learner: Learner, packed: Packed) -> Tensor:
    first = torch.searchsorted(packed.batch.path, torch.arange(packed.batch.n_paths))
    return advantages(learner.control, packed.batch, learner.control.init())[first]


def save_model(folder: Path, size: str) -> None:
    """Write a random Qwen2."""
    for path in TINY.glob("tokenizer*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        **SIZES[size],
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each")
    parser.add_argument("--seed", type=int, default=0, help="draws tokens and scores")
    parser.add_argument("--size", choices=SIZES, default="3M", help="of the model")
    parser.add_argument(
        "--shape", type=int, choices=range(len(SHAPES)), help="one shape alone, by its number"
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    options.rounds = 1 if options.quick else options.rounds
    torch.set_num_threads(1)
    disable_progress_bar()
    import trl

    versions = (
        f"Python {platform.python_version()}, torch {torch.__version__}, trl {trl.__version__}"
    )
    print(f"{platform.machine()}, one thread, {versions}, a random Qwen2 of {options.size}")
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), options.size)
        chosen = [item for i, item in enumerate(SHAPES.items()) if options.shape in (None, i)]
        good = [
            compare(Path(folder), name, shape, options.rounds, options.seed)
            for name, shape in chosen
        ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
