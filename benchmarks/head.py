r"""Log-probability and entropy of drawn tokens from hidden states, forward and backward, beside TRL's, in one run.

    python benchmarks/head.py [--quick] [--rounds 3] [--only SHAPE] [--width 896]

- naive: the logits of all tokens, log_softmax, autograd
- TRL: `ChunkedLogProbFunction` as its GRPOTrainer calls it (temperature 1, its own vocabulary chunk and outputs, torch
  where there is no Triton); its entropy carries gradient too, so both columns compare the same work
- ours: `training.head.token_stats`, a frozen `nn.Linear`
- floor: the product with W and the product with its transpose, and nothing else

Once with gradient through the log-probability alone (entropy is computed all the same) and once through both. Seconds
are CPU seconds of one thread, alternately; medians. Peak memory is that of a process that does nothing else,
above what it holds before (weights, hidden states, libraries), for all ways alike. What a tile goes through is also
timed step by step: where the products are fast, the rest is what keeps ours from the floor. The exit status is 1 where
a goal is missed.
"""

from __future__ import annotations

import argparse
import gc
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from turngym.training.model import chunked_head as head
from turngym.training.model.chunked_head import token_stats

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SHAPES = {
    f"{name} {vocabulary // 1000}k x {tokens}": (vocabulary, tokens, name)
    for name in DTYPES
    for vocabulary, tokens in [
        (32_000, 512),
        (32_000, 2048),
        (32_000, 8192),
        (151_936, 512),
        (151_936, 2048),
    ]
}
GOALS = {
    False: (1.5, 0.85),
    True: (1.1, 0.6),
}  # times TRL's speed, share of the floor's; by gradient through entropy
GOAL_MEMORY = 0.5  # of TRL's peak
EXACT = 2e-6  # relative above 1


@dataclass(frozen=True)
class Given:
    """A head and what is asked of it."""

    hidden: Tensor
    linear: nn.Linear
    token: Tensor
    weight: Tensor  # of each token's terms in the loss


Way = Callable[
    [Given, bool], tuple[Tensor, Tensor] | None
]  # whether entropy has gradient -> logp, entropy


def naive(given: Given, both: bool) -> tuple[Tensor, Tensor]:
    """Hold the logits of all tokens."""
    plain = given.linear(given.hidden).float().log_softmax(-1)
    share = plain if both else plain.detach()
    return plain.gather(-1, given.token[:, None])[:, 0], -(share.exp() * share).sum(-1)


def trl(given: Given, both: bool) -> tuple[Tensor, Tensor]:
    """Call TRL's function with what its trainer gives it."""
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer import utils

    chunk = utils._CHUNKED_LOGPROB_CHUNK_SIZE
    found = ChunkedLogProbFunction.apply(
        given.hidden,
        given.linear.weight,
        None,
        given.token,
        1.0,
        chunk,
        None,
        1.0,
        ("log_probs", "entropy"),
    )
    return found[0], found[1]


def ours(given: Given, both: bool) -> tuple[Tensor, Tensor]:
    """Call the learner's own."""
    rows, size = len(given.token), given.linear.out_features
    return token_stats(
        given.hidden, given.linear, given.token, torch.ones(rows), size, entropy_grad=both
    )[:2]


def floor(given: Given, both: bool) -> None:
    """Multiply there and back, as many rows and columns at once as ours, every product once."""
    rows, tile = head.ROWS, head.TILE
    with torch.no_grad():
        for some in given.hidden.split(rows):
            for weight in given.linear.weight.split(tile):
                (some @ weight.t()) @ weight


WAYS: dict[str, Way] = {"naive": naive, "TRL": trl, "ours": ours, "floor": floor}


def step(given: Given, way: str, both: bool) -> tuple[Tensor, ...] | None:
    """Run forward and backward; return logp, entropy and gradient."""
    given.hidden.grad = None
    found = WAYS[way](given, both)
    if found is None:
        return None
    loss = (found[0] * given.weight).sum()
    if both:
        loss = loss + (found[1] * given.weight.flip(0)).sum()
    loss.backward()
    grad = given.hidden.grad
    return None if grad is None else (found[0].detach(), found[1].detach(), grad)


def given_for(shape: str, width: int) -> Given:
    """Return logits of standard deviation 2, every second token the likeliest."""
    vocabulary, tokens, dtype = SHAPES[shape]
    rng = torch.Generator().manual_seed(0)
    linear = nn.Linear(8, 1, bias=False).requires_grad_(False)
    weight = torch.randn(vocabulary, width, generator=rng).mul_(2 / width**0.5).to(DTYPES[dtype])
    linear.weight, linear.in_features, linear.out_features = (
        nn.Parameter(weight, False),
        width,
        vocabulary,
    )
    hidden = torch.randn(tokens, width, generator=rng).to(DTYPES[dtype])
    token = torch.randint(vocabulary, (tokens,), generator=rng)
    for place in range(0, tokens, 64):
        token[place : place + 64 : 2] = (hidden[place : place + 64] @ weight.t()).argmax(-1)[::2]
    return Given(hidden.requires_grad_(), linear, token, torch.randn(tokens, generator=rng))


def errors(given: Given, found: tuple[Tensor, ...], both: bool, rows: int = 32) -> list[float]:
    """Return how far logp, entropy and the gradient of some rows are from the definition in float64."""
    hidden = given.hidden.detach()[:rows].double().requires_grad_()
    plain = (hidden @ given.linear.weight.double().t()).log_softmax(-1)
    true = plain.gather(-1, given.token[:rows, None])[:, 0], -(plain.exp() * plain).sum(-1)
    loss = (true[0] * given.weight[:rows]).sum()
    if both:
        loss = loss + (true[1] * given.weight.flip(0)[:rows]).sum()
    (grad,) = torch.autograd.grad(loss, hidden)
    exact = [other.detach() for other in true]
    apart = [
        float(((one[:rows] - other).abs() / other.abs().clamp(min=1)).max())
        for one, other in zip(found, exact)
    ]
    return [*apart, float((found[2][:rows].double() - grad).norm() / grad.norm())]


# --- measuring


def seconds(given: Given, both: bool, rounds: int, ways: list[str]) -> dict[str, float]:
    """Return the median CPU seconds of a step of each way; the ways alternate."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            gc.collect()
            began = time.process_time()
            step(given, way, both)
            taken[way].append(time.process_time() - began)
    return {way: median(times) for way, times in taken.items()}


def peak(shape: str, way: str, both: bool, width: int) -> float:
    """Return the most memory of a step above that before it, in MiB; the process must not have made one before."""
    given = given_for(shape, width)
    few = Given(
        given.hidden.detach()[:2].requires_grad_(), given.linear, given.token[:2], given.weight[:2]
    )
    step(few, way, both)  # loads what it needs
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's high-water mark begins anew
    before = _status("VmRSS")
    step(given, way, both)
    return _status("VmHWM") - before


def _status(name: str) -> float:
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) / 1024


def parts(given: Given, rounds: int) -> dict[str, float]:
    """Return nanoseconds a logit of the steps that a tile goes through, each alone."""
    weight = given.linear.weight[: head.TILE]
    hidden = given.hidden.detach()[: head.ROWS]
    logits = hidden @ weight.t()
    exact = logits.float()
    out, top = torch.empty_like(exact), exact.amax(1, keepdim=True)
    steps: dict[str, Callable[[], object]] = {
        "product": lambda: torch.mm(hidden, weight.t(), out=logits),
        "product back": lambda: logits @ weight,
        "max": lambda: exact.amax(1),
        "subtract": lambda: torch.sub(exact, top, out=out),
        "exp": lambda: torch.exp(exact, out=out),
        "multiply": lambda: torch.mul(exact, top, out=out),
        "sum, twice": lambda: (out.sum(1), out.sum(1)),
    }
    if logits.dtype != exact.dtype:
        steps["to float32 and back"] = lambda: (out.copy_(logits), logits.copy_(out))
    found = {}
    for name, work in steps.items():
        times = []
        for _ in range(max(rounds, 3)):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        found[name] = 1e9 * median(times) / logits.numel()
    return found


# --- printing


def compare(shape: str, both: bool, options: argparse.Namespace) -> int:
    """Print a line a way and one a goal; return how many goals are missed."""
    given, ways = (
        given_for(shape, options.width),
        [way for way in WAYS if way != "TRL" or find_spec("trl")],
    )
    if SHAPES[shape][0] * SHAPES[shape][1] > 1 << 27:
        ways.remove("naive")  # its logits alone take gigabytes
    checked = [step(given, way, both) for way in ways]
    took = seconds(given, both, options.rounds, ways)
    print(f"\n{shape}, gradient through {'both' if both else 'logp'}")
    peaks = {}
    for way, found in zip(ways, checked, strict=True):
        command = [
            sys.executable,
            __file__,
            "--width",
            f"{options.width}",
            "--peak",
            shape,
            way,
            f"{int(both)}",
        ]
        peaks[way] = float(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
        speed = f"{took[way]:8.3f} s CPU   {took['floor'] / took[way]:5.2f} of the floor   peak {peaks[way]:7.1f} MiB"
        off = (
            ""
            if found is None
            else "   off by {:.0e} logp, {:.0e} entropy, {:.0e} grad".format(
                *errors(given, found, both)
            )
        )
        print(f"      {way:6} {speed}{off}", flush=True)
    goals = {"of the floor": (took["floor"] / took["ours"], GOALS[both][1], True)}
    if "TRL" in ways:
        goals["times as fast as TRL"] = (took["TRL"] / took["ours"], GOALS[both][0], True)
        goals["of TRL's peak"] = (peaks["ours"] / peaks["TRL"], GOAL_MEMORY, False)
    if SHAPES[shape][2] == "float32":
        worst = max(errors(given, checked[ways.index("ours")] or (), both))
        goals["off by"] = (worst, EXACT, False)
    missed = 0
    for name, (figure, goal, above) in goals.items():
        good = figure >= goal if above else figure <= goal
        missed += not good
        print(
            f"{'ok' if good else 'SHORT':5} {figure:8.2g} {name} ({'>=' if above else '<='} {goal:g})",
            flush=True,
        )
    return missed


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each way")
    parser.add_argument(
        "--only", default="", help="shapes with this in their name, such as 'float32 32k'"
    )
    parser.add_argument("--width", type=int, default=896, help="of hidden states")
    parser.add_argument("--quick", action="store_true", help="one round, the smallest shapes")
    parser.add_argument("--peak", nargs=3, metavar=("SHAPE", "WAY", "BOTH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.only = 1, options.only or "32k x 512"
    torch.set_num_threads(1)
    if options.peak:
        shape, way, both = options.peak
        print(peak(shape, way, both == "1", options.width))
        return 0
    peer = f"TRL {version('trl')}" if find_spec("trl") else "TRL is not installed and left out"
    print(
        f"{platform.machine()}, one thread, Python {platform.python_version()}, torch {torch.__version__}, {peer}"
    )
    missed = 0
    shapes = [shape for shape in SHAPES if options.only in shape]
    if not shapes:
        parser.error(f"no shape has {options.only!r} in its name; there are: {'; '.join(SHAPES)}")
    for shape in shapes:
        missed += sum(compare(shape, both, options) for both in GOALS)
        found = parts(given_for(shape, options.width), options.rounds)
        print(
            "      a logit, ns: "
            + ", ".join(f"{name} {value:.2f}" for name, value in found.items()),
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
