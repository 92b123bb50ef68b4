r"""Generation over many turns: the embedded engine beside loops that encode the whole conversation again every turn.

    python benchmarks/generation.py [--quick] [--rounds 3] [--seed 0] [--shape 0|1|2]

- padded: a batch of conversations in lock step, as a trainer's `generate` does it: every turn the conversations are fed
  again, padded on the left, and rows that have ended go on until the longest has
- rows drop out: the same, but a row that has ended leaves the batch
- engine: caches are kept across turns, a prompt is fed once a group, and nobody waits for another

All draw greedily from one model, turns of the same lengths; their tokens are compared. The loops use the model's fused
attention (SDPA) and a cache within the turn. Seconds are CPU seconds of one thread, of each way alternately; medians.
Tokens are those that the model computes, padding and idle rows among them.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch.decoder import Decoder
from turngym.agents.engines.torch.runner import Part
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy

VOCABULARY = 512
SLOTS = 8  # conversations at once
GROUP = 8  # conversations a prompt


@dataclass(frozen=True)
class Shape:
    """A workload: conversations, their most turns, tokens of the prompt and of an observation, and what is to gain."""

    conversations: int
    turns: int
    prompt: int
    observation: int
    goal: float


SHAPES = {
    "prompt 192, observations 48, 2-4 turns": Shape(32, 4, 192, 48, 2.4),
    "prompt 1024, observations 256, 2-8 turns": Shape(16, 8, 1024, 256, 5.0),
    "prompt 1024, observations 1024, 2-4 turns": Shape(16, 4, 1024, 1024, 5.0),
}


@dataclass(frozen=True)
class Talk:
    """A conversation: its prompt, and of each turn how many tokens are drawn and what is observed behind them."""

    prompt: list[int]
    lengths: list[int]
    observed: list[list[int]]


Drawn = list[list[int]]  # of each conversation the tokens of all its turns
Way = Callable[[Policy, list[Talk]], Drawn]


def talks_of(shape: Shape, seed: int) -> list[Talk]:
    """Return the conversations of a shape: turns of 8 to 96 tokens with a long tail, groups that share a prompt."""
    drawn = random.Random(f"talks {seed}")

    def tokens(count: int) -> list[int]:
        return [drawn.randrange(VOCABULARY) for _ in range(count)]

    prompts = [tokens(shape.prompt) for _ in range(-(-shape.conversations // GROUP))]
    talks = []
    for i in range(shape.conversations):
        turns = drawn.randint(2, shape.turns)
        lengths = [min(96, max(8, int(drawn.lognormvariate(3.2, 0.7)))) for _ in range(turns)]
        talks.append(
            Talk(prompts[i // GROUP], lengths, [tokens(shape.observation) for _ in range(turns)])
        )
    return talks


# --- ways


def padded(policy: Policy, talks: list[Talk]) -> Drawn:
    """Feed conversations again every turn; rows wait for the longest."""
    return [drawn for batch in _batches(talks) for drawn in _lock_step(policy, batch, drop=False)]


def dropping(policy: Policy, talks: list[Talk]) -> Drawn:
    """Feed conversations again every turn; rows that have ended leave."""
    return [drawn for batch in _batches(talks) for drawn in _lock_step(policy, batch, drop=True)]


def engine(policy: Policy, talks: list[Talk]) -> Drawn:
    """Let the embedded engine draw all conversations."""

    async def one(engine: TorchEngine, number: int, talk: Talk) -> list[int]:
        session, given, drawn = engine.session(), talk.prompt, list[int]()
        for turn, (length, observed) in enumerate(zip(talk.lengths, talk.observed)):
            sampling = Sampling(temperature=0, max_tokens=length)
            said = await session.sample(
                np.array(given, np.int32), sampling, (0, 0, number, 0, turn)
            )
            drawn += said.tokens.tolist()
            given = observed
        session.close()
        return drawn

    async def every() -> Drawn:
        with closing(TorchEngine(policy, slots=SLOTS, threads=1)) as engine:
            return list(
                await asyncio.gather(*(one(engine, i, talk) for i, talk in enumerate(talks)))
            )

    return asyncio.run(every())


WAYS: dict[str, Way] = {
    "re-encode, padded": padded,
    "re-encode, rows drop out": dropping,
    "engine": engine,
}


def _batches(talks: list[Talk]) -> Iterator[list[Talk]]:
    return (talks[start : start + SLOTS] for start in range(0, len(talks), SLOTS))


def _lock_step(policy: Policy, talks: list[Talk], drop: bool) -> Drawn:
    said: list[list[int]] = [list(talk.prompt) for talk in talks]
    drawn: Drawn = [[] for _ in talks]
    for turn in range(max(len(talk.lengths) for talk in talks)):
        active = [i for i, talk in enumerate(talks) if turn < len(talk.lengths)]
        new = _generate(
            policy, [said[i] for i in active], [talks[i].lengths[turn] for i in active], drop
        )
        for i, tokens in zip(active, new):
            said[i] += tokens + talks[i].observed[turn]
            drawn[i] += tokens
    return drawn


@torch.inference_mode()
def _generate(policy: Policy, said: list[list[int]], lengths: list[int], drop: bool) -> Drawn:
    """Continue conversations greedily by as many tokens as `lengths` says."""
    policy.base.config._attn_implementation = "sdpa"
    widest, cache = max(map(len, said)), DynamicCache()
    tokens, mask = torch.zeros(2, len(said), widest, dtype=torch.long)
    for row, one in enumerate(said):
        tokens[row, widest - len(one) :], mask[row, widest - len(one) :] = torch.tensor(one), 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    rows, drawn = list(range(len(said))), [list[int]() for _ in said]
    for step in range(max(lengths)):
        logits = policy.base(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits
        tokens, positions = logits.argmax(-1), positions[:, -1:] + 1
        for row, token in zip(rows, tokens[:, 0].tolist()):
            drawn[row].append(token)
        kept = [at for at, row in enumerate(rows) if not drop or step + 1 < lengths[row]]
        if 0 < len(kept) < len(rows):
            rows = [rows[at] for at in kept]
            tokens, positions, mask = tokens[kept], positions[kept], mask[kept]
            cache.batch_select_indices(torch.tensor(kept))
        mask = torch.cat((mask, mask.new_ones(len(mask), 1)), 1)
    policy.base.config._attn_implementation = "eager"
    return [one[:length] for one, length in zip(drawn, lengths)]


# --- measuring


@contextmanager
def counted(policy: Policy) -> Iterator[list[int]]:
    """Collect the tokens of every forward pass, of the model's and of the engine's."""
    counts: list[int] = []
    own = Decoder._forward

    def count(module: Any, args: Any, options: dict[str, Any]) -> None:
        counts.append(options["input_ids"].numel())

    def forward(decoder: Decoder, parts: Sequence[Part], **options: Any) -> torch.Tensor:
        counts.append(sum(part.tokens.numel() for part in parts))
        return own(decoder, parts, **options)

    hook = policy.base.register_forward_pre_hook(count, with_kwargs=True)
    Decoder._forward = forward  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Decoder._forward = own  # type: ignore[method-assign]
        hook.remove()


def compare(policy: Policy, name: str, shape: Shape, rounds: int, seed: int) -> bool:
    """Print a line a way; return whether the tokens are the same and the gain is what it should be."""
    talks, fed, found = talks_of(shape, seed), dict[str, int](), list[Drawn]()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, generate in WAYS.items():
            with counted(policy) as counts:
                began = time.process_time()
                found.append(generate(policy, talks))
                seconds[way].append(time.process_time() - began)
            fed[way] = sum(counts)
    assert all(other == found[0] for other in found), f"{name}: the ways drew different tokens"
    peers, ours = list(WAYS)[:-1], median(seconds["engine"])
    gain, ratio = median(seconds[peers[0]]) / ours, fed[peers[0]] / fed["engine"]
    mark = "ok" if gain >= shape.goal else "SHORT"
    print(
        f"\n{shape.conversations} conversations, {name}, {SLOTS} slots: same {sum(map(len, found[0])):,} tokens"
    )
    print(
        f"{mark:5} {gain:.2f}x as fast as padded (>= {shape.goal}), {gain / ratio:.2f} of the token ratio {ratio:.2f}"
    )
    for way, times in seconds.items():
        took, less = median(times), fed[way] / fed["engine"]
        print(
            f"      {way:26} {fed[way]:8,} tokens ({less:5.2f}x)   {took:7.2f} s CPU ({took / ours:5.2f}x)",
            flush=True,
        )
    return gain >= shape.goal


def save_model(folder: Path) -> None:
    """Write a random Qwen2 of 1.6 million weights whose greedy draws vary."""
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        initializer_range=0.1,  # far from ties, which rounding would break
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each way")
    parser.add_argument("--seed", type=int, default=0, help="draws the conversations")
    parser.add_argument(
        "--shape", type=int, choices=range(len(SHAPES)), help="one shape alone, by its number"
    )
    parser.add_argument("--quick", action="store_true", help="one round of each way")
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    print(
        f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}"
    )
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder))
        policy = load_policy(Path(folder))
    policy.end_ids = frozenset()  # turns are as long as they are to be
    chosen = [item for i, item in enumerate(SHAPES.items()) if options.shape in (None, i)]
    good = [
        compare(policy, name, shape, 1 if options.quick else options.rounds, options.seed)
        for name, shape in chosen
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
