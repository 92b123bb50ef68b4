r"""Decoding, tokens a CPU-second: the embedded engine beside matrix products alone and transformers' `generate`.

    python benchmarks/decoding.py [--quick] [--rounds 5] [--part tiny|prefix|real] [--beside CHECKOUT]

- tiny: 64 conversations of the tiny policy at 200 tokens
- prefix: what groups of eight of these save by reading the prompt's keys and values in one place, 128 tokens of the
  200; a figure without a goal
- real: 32 conversations at 100 tokens of a model of SmolLM2-135M's shape (random weights; only the shape counts) with
  LoRA, beside the products with the same matrices, plain and packed for the processor, and beside `generate` (SDPA and
  a cache of its own) with peft's LoRA and with none; and what of a decode is products, the other operations of the
  layers, reading the 100 tokens, and drawing with the engine's event loop

Times are CPU seconds of one thread, of each way alternately; medians. They are those of drawing 17 tokens less those of
drawing one, so prompts do not count; sampling at temperature 1 and the engine's event loop do. `--beside` draws the
same with another checkout of the project, in a process of its own that takes turns with this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch.decoder import Decoder, Weights
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy

DRAWN = 17  # tokens
SMOL = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)


def policy_of(folder: Path) -> Policy:
    """Load a model with LoRA, whose updates are not zero; its turns are as long as they are to be."""
    policy = load_policy(folder, lora=LoraOptions(rank=16, alpha=32.0), threads=1)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1e-3)
    policy.end_ids = frozenset()
    return policy


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds that work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


class Draws:
    """Draws turns of the engine's in `rows` conversations of `context` tokens."""

    def __init__(self, policy: Policy, rows: int, context: int) -> None:
        self.engine = TorchEngine(policy, slots=rows, threads=1)
        self.prompts = np.random.default_rng(0).integers(0, 600, (rows, context)).astype(np.int32)

    def seconds(self) -> float:
        """Return the CPU seconds of all but the first token."""
        return cpu(lambda: asyncio.run(self._draw(DRAWN))) - cpu(lambda: asyncio.run(self._draw(1)))

    async def _draw(self, tokens: int) -> None:
        sessions = [self.engine.session() for _ in self.prompts]
        sampling = Sampling(max_tokens=tokens)
        turns = [
            one.sample(prompt, sampling, (0, i))
            for i, (one, prompt) in enumerate(zip(sessions, self.prompts))
        ]
        await asyncio.gather(*turns)
        for session in sessions:
            session.close()


def generating(model: Any, prompts: Any) -> float:
    """Return the CPU seconds in which `generate` draws all but the first token."""
    tokens = torch.from_numpy(prompts).long()
    mask = torch.ones_like(tokens)

    @torch.inference_mode()
    def draw(count: int) -> None:
        options = {
            "do_sample": True,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "pad_token_id": 0,
        }
        model.generate(
            input_ids=tokens,
            attention_mask=mask,
            min_new_tokens=count,
            max_new_tokens=count,
            **options,
        )

    return cpu(lambda: draw(DRAWN)) - cpu(lambda: draw(1))


def products(model: Any, rows: int, pack: bool) -> Callable[[], float]:
    """Return what times a decode's matrix products with all linear layers, times the tokens that are drawn."""
    weights = [
        module.weight.detach() for module in model.modules() if type(module) is torch.nn.Linear
    ]
    inputs = {size: torch.randn(rows, size) for size in {weight.shape[1] for weight in weights}}
    packed = torch.ops.mkldnn
    if pack:
        weights = [packed._reorder_linear_weight(weight, 64) for weight in weights]
    wide = [weight.size(1) for weight in weights]

    @torch.inference_mode()
    def run() -> None:
        for weight, size in zip(weights, wide):
            if pack:
                packed._linear_pointwise(inputs[size], weight, None, "none", [], "")
            else:
                torch.nn.functional.linear(inputs[size], weight)

    return lambda: (DRAWN - 1) * median(cpu(run) for _ in range(5))


def passes(policy: Policy, rows: int, context: int) -> Callable[[], float]:
    """Return what times the decoder's passes alone, behind `context` tokens: nothing is drawn and nobody waits."""
    decoder = Decoder(Weights(policy.base), torch.device("cpu"))
    decoder.reserve(rows, 256)

    def run() -> None:
        for _ in range(DRAWN - 1):
            decoder.decode(range(rows), [context] * rows, [5] * rows)

    return lambda: cpu(run)


@contextmanager
def another(checkout: Path, folder: Path, rows: int, context: int) -> Iterator[Callable[[], float]]:
    """Let a process of another checkout draw; what it yields returns the CPU seconds of one round."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "turngym").symlink_to(checkout.resolve())
        command = [sys.executable, __file__, "--serve", json.dumps([str(folder), rows, context])]
        options: dict[str, Any] = {
            "env": {"PYTHONPATH": place, "OMP_NUM_THREADS": "1"},
            "text": True,
        }
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        ) as child:
            assert child.stdin and child.stdout

            def seconds() -> float:
                print(file=child.stdin, flush=True)  # type: ignore[arg-type]
                return float(child.stdout.readline())  # type: ignore[union-attr]

            yield seconds
            child.stdin.close()


def serve(folder: str, rows: int, context: int) -> None:
    """Draw for `another`: a round a line of stdin."""
    draws = Draws(policy_of(Path(folder)), rows, context)
    for _ in sys.stdin:
        print(draws.seconds(), flush=True)


def rates(ways: dict[str, Callable[[], float]], rows: int, rounds: int) -> dict[str, float]:
    """Return each way's tokens a CPU-second, medians of rounds in which they take turns, and print them."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 1):  # the first is thrown away
        for way, times in seconds.items():
            times.append(ways[way]())
    found = {way: rows * (DRAWN - 1) / median(times[1:]) for way, times in seconds.items()}
    for way, rate in found.items():
        print(
            f"      {way:40} {rate:8,.0f} tokens a CPU-second ({found['engine'] / rate:5.2f}x)",
            flush=True,
        )
    return found


def verdict(what: str, value: float, goal: float, unit: str = "") -> bool:
    """Print a figure beside its goal; return whether it is reached."""
    print(
        f"{'ok' if value >= goal else 'SHORT':5} {what}: {value:,.2f}{unit} (>= {goal:,g})",
        flush=True,
    )
    return value >= goal


def save(folder: Path) -> Path:
    """Write a random model of SmolLM2's shape with the tiny policy's tokenizer; return its folder."""
    for path in TINY.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    torch.manual_seed(0)
    model = LlamaForCausalLM(SMOL)
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    return folder


def tiny(rounds: int, beside: Path | None) -> bool:
    """Measure the tiny policy."""
    print("\ntiny policy, 64 conversations at 200 tokens")
    rows, context = 64, 200
    with ExitStack() as stack:
        ways = {"engine": Draws(policy_of(TINY), rows, context).seconds}
        if beside:
            ways["other checkout"] = stack.enter_context(another(beside, TINY, rows, context))
        return verdict("tokens a CPU-second", rates(ways, rows, 3 * rounds)["engine"], 10_000)


def prefix(rounds: int, beside: Path | None) -> bool:
    """Measure decodes of forks that read their prompt in one place, beside those of rows that each have it."""
    print("\ntiny policy, 64 conversations at 200 tokens, of which groups of eight share 128")
    rows, group, shared, context = 64, 8, 128, 200
    weights = Weights(policy_of(TINY).base)
    slots, tokens = list(range(rows)), [5] * rows
    decoders = {way: Decoder(weights, torch.device("cpu")) for way in ("each its own", "shared")}
    for way, decoder in decoders.items():
        decoder.reserve(rows, 256)
        for first in slots[::group] if way == "shared" else ():
            decoder.copy(first, slots[first + 1 : first + group], shared)

    def decodes(decoder: Decoder) -> float:
        return cpu(lambda: [decoder.decode(slots, [context] * rows, tokens) for _ in range(DRAWN)])

    took: dict[str, list[float]] = {way: [] for way in decoders}
    for _ in range(3 * rounds + 1):
        for way, decoder in decoders.items():
            took[way].append(1e3 * decodes(decoder) / DRAWN)
    own, alike = (median(times[1:]) for times in took.values())
    print(
        f"      a decode {own:.2f} ms, {alike:.2f} ms where they share: {own / alike:.3f} times as fast"
    )
    return True


def real(rounds: int, beside: Path | None) -> bool:
    """Measure a model of SmolLM2's shape."""
    print("\nSmolLM2-135M's shape, float32, LoRA of rank 16, 32 conversations at 100 tokens")
    rows, context = 32, 100
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = save(Path(place))
        draws, loaded = Draws(policy_of(folder), rows, context), policy_of(folder)
        loaded.base.config._attn_implementation = "sdpa"
        plain = LlamaForCausalLM.from_pretrained(
            folder, attn_implementation="sdpa", dtype=torch.float32
        )
        ways = {
            "engine": draws.seconds,
            "matrix products": products(plain, rows, pack=False),
            "matrix products, packed": products(plain, rows, pack=True),
            "generate, peft's LoRA": lambda: generating(loaded.model, draws.prompts),
            "generate, no LoRA": lambda: generating(plain, draws.prompts),
            "passes alone": passes(loaded, rows, context),
            "passes behind one token": passes(loaded, rows, 1),
        }
        if beside:
            ways["other checkout"] = stack.enter_context(another(beside, folder, rows, context))
        found = rates(ways, rows, rounds)
    engine, best = found["engine"], max(rate for way, rate in found.items() if "products" in way)
    ends = [
        0,
        *(
            100 * engine / rate
            for rate in (best, found["passes behind one token"], found["passes alone"])
        ),
        100,
    ]
    parts = ("products", "other operations", "reading the tokens", "drawing and the event loop")
    shares = (f"{name} {high - low:.0f}" for name, low, high in zip(parts, ends, ends[1:]))
    print(f"      per cent of the engine's time: {', '.join(shares)}")
    good = verdict("per cent of the best matrix products", 100 * engine / best, 75)
    good &= verdict("times generate with peft's LoRA", engine / found["generate, peft's LoRA"], 1.6)
    if beside:
        good &= verdict("times the other checkout", engine / found["other checkout"], 3)
    return good


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each way")
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--part", choices=("tiny", "prefix", "real"), help="one part alone")
    parser.add_argument("--beside", type=Path, help="another checkout of the project")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    if options.serve:
        serve(*json.loads(options.serve))
        return 0
    rounds = 2 if options.quick else options.rounds
    print(
        f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}"
    )
    parts = {"tiny": tiny, "prefix": prefix, "real": real}
    good = [
        part(rounds, options.beside) for name, part in parts.items() if options.part in (None, name)
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
