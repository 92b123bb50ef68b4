"""The worked examples of the method sheets: what a method makes of their inputs, beside the values they print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from turngym.tests.verify.methods.toy import build, f64, sheet
from turngym.training.columns import Batch, Now, Terms
from turngym.training.control import advantages
from turngym.training.methods import METHODS
from turngym.training.objective import objective, start_terms

CLOSE = 1e-6  # the digits that the sheets print


@dataclass(frozen=True)
class Example:
    """Numbers that a method makes of a sheet's inputs, and those that the sheet prints."""

    method: str
    section: str
    found: Callable[[], Sequence[float]]
    expected: Sequence[float]

    def fault(self) -> str:
        """Return the first number that is not the sheet's."""
        found = [float(value) for value in self.found()]
        if len(found) != len(self.expected):
            return f"{len(found)} values for {len(self.expected)}"
        pairs = zip(found, self.expected)
        return next((f"{ours:.6f} for {theirs:.6f}" for ours, theirs in pairs if not abs(ours - theirs) <= CLOSE), "")


def credit(method: str, paths: Sequence[Sequence[int]], scores: Sequence[float], **parameters: Any) -> Sequence[float]:
    """Return the advantages of the slots of paths with these scores, all of a group."""
    batch = build(paths, scores=scores)
    return advantages(METHODS[method](**parameters), batch, {}).tolist()


def shaped(method: str, batch: Batch, advantage: Tensor, state: Any = None, **parameters: Any) -> Terms:
    """Return the terms that a method makes of an advantage at the start of an update."""
    return METHODS[method](**parameters).shape(start_terms(advantage), batch, Now.at_start(batch), state or {})


def losses(method: str, **parameters: Any) -> Sequence[float]:
    """Return the policy's loss of each slot of the sheets' TOY batch, and of all."""
    batch, current, advantage = sheet()
    terms = replace(shaped(method, batch, advantage, **parameters), penalties=())
    each = -terms.surrogate(current, batch, terms)
    return [*each.tolist(), objective(current, batch, terms, batch.n_slots).item()]


def aggregated(mode: str) -> Sequence[float]:
    """Return the mean of l = [[1, 2, 3], [4, 6]]; `size` is 3 where there is a divisor."""
    batch = build([[3], [2]])
    scale = shaped("grpo", batch, batch.logp_old, aggregation=mode, size=3).scale
    return [(scale * f64([1, 2, 3, 4, 6])).sum().item() / 5]


def _whitened_gae() -> Sequence[float]:
    batch = build([[3]], value=[0.5, 0.4, 0.6], scores=[1.0])
    return advantages(METHODS["ppo"](lam=0.95), batch, {}).tolist()


def _mismatch(**parameters: Any) -> Sequence[float]:
    batch, _, advantage = sheet()
    batch = replace(batch, logp_roll=f64([-0.3, -2.6, -0.7, -1.2, -2.25]))
    return shaped("tis", batch, advantage, **parameters).weight.tolist()


ONE = [[1]] * 4
HALVES = [0.75, -0.25, -0.25, -0.25]
BASE = (
    Example("grpo", "base.md 3", lambda: credit("grpo", ONE, [1, 0, 0, 1]), [0.866024, -0.866024, -0.866024, 0.866024]),
    Example("grpo", "base.md 3", lambda: credit("grpo", ONE, [1, 0, 0, 0]), [1.499997, *[-0.499999] * 3]),
    Example("grpo", "base.md 1", lambda: aggregated("token-mean"), [3.2]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-sum"), [8.0]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-mean"), [3.5]),
    Example("grpo", "base.md 1", lambda: aggregated("token-sum-norm"), [5.333333]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-sum-norm"), [2.666667]),
    Example("dr-grpo", "base.md 4", lambda: credit("dr-grpo", ONE, [1, 0, 0, 0]), HALVES),
    Example("reinforce", "base.md 4", lambda: credit("reinforce", ONE, [1, 0, 0, 0], baseline="group"), HALVES),
    Example("rloo", "base.md 5", lambda: credit("rloo", ONE, [1, 0, 0, 0]), [1.0, *[-0.333333] * 3]),
    Example(
        "reinforce-pp",
        "base.md 6",
        lambda: credit("reinforce-pp", [[3], [2]], [1, -1]),
        [*[0.730297] * 3, *[-1.095445] * 2],
    ),
    Example(
        "reinforce-pp",
        "base.md 6",
        lambda: credit("reinforce-pp", [[3], [2]], [1, 0], baseline="group"),
        [*[0.730297] * 3, *[-1.095445] * 2],
    ),
    Example("dapo", "base.md 7", lambda: losses("dapo"), [-1.105171, -1.28, -0.740818, 0.8, 1.349859, -0.195226]),
    Example("gspo", "base.md 8", lambda: losses("gspo"), [*[-1.0004] * 3, *[0.9997] * 2, -0.000350]),
    Example(
        "cispo", "base.md 9", lambda: losses("cispo", lo=0.8, hi=1.28), [0.110517, 1.408, 0.8, -1.04, -2.56, -0.256297]
    ),
    Example("ppo", "base.md 2", lambda: losses("ppo"), [-1.105171, -1.2, -0.740818, 0.8, 1.349859, -0.179226]),
    Example("ppo", "base.md 2", _whitened_gae, [-0.280251, 1.110225, -0.829974]),
    Example("tis", "base.md 10", _mismatch, [1.105171, 2.0, 1.0, 1.349859, 0.951229]),
    Example("tis", "base.md 10", lambda: _mismatch(level="sequence"), [*[2.0] * 3, *[1.284025] * 2]),
    Example("tis", "base.md 10", lambda: _mismatch(level="geometric"), [*[1.491825] * 3, *[1.133148] * 2]),
)
