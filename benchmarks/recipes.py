r"""Rollouts of the three recipes: drawn tokens a CPU-second, and how full the batches of the engine are.

    turngym warmup household; turngym warmup search --steps 1800          # the policies of two recipes
    python benchmarks/recipes.py [--quick] [--rounds 6] [--only math-python,...] [--warm runs/warm] [--beside CHECKOUT]

Each recipe trains as it does by default, at a learning rate that changes nothing; a round is the rollout of a step.
CPU seconds are those of the process in which the policy draws, threads of environments included, sandboxes not. A
decode's rows are what it computes, padding included: the share of them that draw for a turn is the occupancy. Tokens of
a prefill are padded, too; the share that is not is printed. Shares of the CPU time: those of the engine's thread by
what it does, the main thread's, which runs the event loop, chats and journals, and what is left, which are the threads
of environments and the engine's own Python. With `--beside` another checkout does the same, in a
process that takes turns with this one; the ratio is that of medians.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

OCCUPANCY, GAIN = 85, 3.0
RECIPES = ("math-python", "household", "search")
Round = dict[str, float]
PART = "CPU of "  # begins the names of counts


def watch(counts: dict[str, float]) -> None:
    """Count the batches of the engine, the tokens that are drawn, and the CPU seconds of rollouts."""
    from turngym.agents.engines.torch import engine as embedded
    from turngym.agents.engines.torch import runner
    from turngym.agents.engines.torch.engine import TorchEngine

    decode = TorchEngine._decode
    rows = timed(counts, "decodes", runner.Runner.decode)
    feed = timed(counts, "prefills", runner.Runner.prefill)
    setattr(runner.Runner, "copy", timed(counts, "copies", runner.Runner.copy))  # noqa: B010
    setattr(embedded, "sample", timed(counts, "sampling", embedded.sample))  # noqa: B010
    importlib.import_module("turngym.training.loop.trainer")
    collect = importlib.import_module("turngym.agents.rollout.collect").collect
    ours = [
        module for name, module in list(sys.modules.items()) if name.startswith("turngym.training")
    ]
    places = [module for module in ours if getattr(module, "collect", None) is collect]

    def decoding(engine: Any, running: Any) -> Any:
        counts["drawing"] += len(running)
        return decode(engine, running)

    def decoded(self: Any, tokens: Any, *rest: Any) -> Any:
        counts["decodes"] += 1
        counts["rows"] += len(tokens)
        return rows(self, tokens, *rest)

    def prefill(self: Any, slots: Any, starts: Any, chunks: Any) -> Any:
        counts["prefills"] += 1
        counts["chunks"] += len(chunks)
        counts["fed"] += sum(map(len, chunks))
        shapes = (
            runner.chunk_shape(start, start + len(chunk)) for start, chunk in zip(starts, chunks)
        )
        counts["padded"] += sum(queries for queries, _ in shapes)
        return feed(self, slots, starts, chunks)

    def collected(*args: Any, **options: Any) -> Any:
        began, clock = time.process_time(), time.perf_counter()
        trees = timed(counts, "main thread", collect)(*args, **options)
        counts["cpu"] += time.process_time() - began
        counts["seconds"] += time.perf_counter() - clock
        counts["tokens"] += sum(int(turn.sampled.sum()) for tree in trees for turn in tree.turns)
        counts["turns"] += sum(bool(turn.sampled.any()) for tree in trees for turn in tree.turns)
        return trees

    setattr(TorchEngine, "_decode", decoding)  # noqa: B010 (types)
    setattr(runner.Runner, "decode", decoded)  # noqa: B010
    setattr(runner.Runner, "prefill", prefill)  # noqa: B010
    for place in places:
        setattr(place, "collect", collected)  # noqa: B010


def timed(counts: dict[str, float], what: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return `work`, which adds the CPU seconds of its thread to those of `what`."""

    def run(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return work(*args, **options)
        finally:
            counts[PART + what] += time.thread_time() - began

    return run


def serve(name: str, policy: str, rounds: int) -> None:
    """Take a step for each line of stdin, and print what was counted; the first line asks for the start alone."""
    from turngym.training.runs.config import read_recipe
    from turngym.training.runs.run import execute, prepare

    counts = defaultdict[str, float](float)
    watch(counts)
    with tempfile.TemporaryDirectory() as out:
        config = read_recipe(name).changed(
            method="grpo,epo",
            steps=rounds,
            eval_every=10**6,
            eval_tasks=1,
            lr=1e-12,
            out=out,
            **({"policy": policy} if policy else {}),
        )
        steps = execute(prepare(config))
        for _ in sys.stdin:
            counts.clear()
            next(steps)
            print(json.dumps(counts), flush=True)


@contextmanager
def rolling(checkout: Path, name: str, policy: str, rounds: int) -> Iterator[Callable[[], Round]]:
    """Start a process of a checkout; what it yields returns the counts of one round."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "turngym").symlink_to(checkout.resolve())
        command = [sys.executable, __file__, "--serve", json.dumps([name, policy, rounds])]
        options: dict[str, Any] = {
            "env": {"PYTHONPATH": place, "OMP_NUM_THREADS": "1"},
            "text": True,
            "cwd": place,
        }
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        ) as child:
            assert child.stdin and child.stdout

            def one() -> Round:
                print(file=child.stdin, flush=True)  # type: ignore[arg-type]
                return dict(json.loads(child.stdout.readline()))  # type: ignore[union-attr]

            yield one
            child.terminate()


def measure(name: str, policy: str, rounds: int, beside: Path | None) -> bool:
    """Print what a recipe's rollouts come to; return whether the goals are reached."""
    places = {"this": Path(__file__).parents[1]} | ({"other": beside} if beside else {})
    with ExitStack() as stack:
        ways = {
            way: stack.enter_context(rolling(place, name, policy, rounds + 1))
            for way, place in places.items()
        }
        found: dict[str, list[Round]] = {way: [] for way in ways}
        for _ in range(rounds + 2):  # the start, and a first step that is thrown away
            for way, one in ways.items():
                found[way].append(one())
    print(f"\n{name}")
    rates = {way: report(way, lines[2:]) for way, lines in found.items()}
    mine = found["this"][2:]
    good = verdict(
        "per cent of decoded rows draw",
        100 * total(mine, "drawing") / total(mine, "rows"),
        OCCUPANCY,
    )
    if beside:
        good &= verdict(
            "times the other checkout's tokens a CPU-second", rates["this"] / rates["other"], GAIN
        )
    return good


def report(way: str, lines: list[Round]) -> float:
    """Print one checkout's figures; return its tokens a CPU-second."""
    rate = median(line["tokens"] / line["cpu"] for line in lines)
    each = {key: total(lines, key) / len(lines) for key in {**lines[-1], **lines[0]}}
    print(
        f"      {way:6} {rate:7,.0f} drawn tokens a CPU-second; a rollout {each['cpu']:.2f} CPU-s, "
        f"{each['seconds']:.2f} s, {each['tokens']:,.0f} tokens, {each['turns']:.0f} turns"
    )
    print(
        f"             {each['decodes']:.0f} decodes of {each['rows'] / each['decodes']:.1f} rows, "
        f"{100 * each['drawing'] / each['rows']:.0f} % draw; {each['prefills']:.0f} prefills of "
        f"{each['chunks'] / each['prefills']:.1f} rows, {100 * each['fed'] / each['padded']:.0f} % of "
        f"{each['padded']:,.0f} tokens not padding"
    )
    shares = {
        key.removeprefix(PART): 100 * each[key] / each["cpu"]
        for key in each
        if key.startswith(PART)
    }
    shares["the rest"] = 100 - sum(shares.values())
    print(
        "             of the CPU time: "
        + ", ".join(f"{part} {share:.0f} %" for part, share in shares.items()),
        flush=True,
    )
    return rate


def total(lines: list[Round], key: str) -> float:
    """Return the sum of one count."""
    return sum(line.get(key, 0.0) for line in lines)


def verdict(what: str, value: float, goal: float) -> bool:
    """Print a figure beside its goal; return whether it is reached."""
    print(f"{'ok' if value >= goal else 'SHORT':5} {value:,.2f} {what} (>= {goal:g})", flush=True)
    return value >= goal


def main() -> int:
    """Measure each recipe; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6, help="timed rollouts")
    parser.add_argument("--quick", action="store_true", help="two timed rollouts")
    parser.add_argument(
        "--only", default=",".join(RECIPES), help="recipes, of " + ", ".join(RECIPES)
    )
    parser.add_argument(
        "--warm", type=Path, default=Path("runs/warm"), help="folder of the warmed-up policies"
    )
    parser.add_argument("--beside", type=Path, help="another checkout of the project")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*json.loads(options.serve))
        return 0
    print(f"{platform.machine()}, one thread, Python {platform.python_version()}")
    good, rounds = True, 2 if options.quick else options.rounds
    for name in options.only.split(","):
        folder = options.warm.resolve() / name
        if name != "math-python" and not folder.is_dir():
            sys.exit(
                f"{folder} is missing: make it with `turngym warmup {name}`, or name its parent with --warm"
            )
        good &= measure(name, "" if name == "math-python" else str(folder), rounds, options.beside)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
