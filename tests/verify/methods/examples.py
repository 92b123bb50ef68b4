"""The worked examples of the method sheets: what a method makes of their inputs, beside the values they print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.tests.support.toy import build, f64, now_of, sheet
from turngym.training.control.branching import uncertainty
from turngym.training.control.control import advantages
from turngym.training.data.batch import Batch, Current, Now, Terms
from turngym.training.loss.objective import objective, start_terms
from turngym.training.loss.surrogates import clip_cov, hold
from turngym.training.methods import METHODS
from turngym.training.methods.advantage.bilevel_gae import bilevel_advantage
from turngym.training.methods.advantage.dart import uncertain
from turngym.training.methods.contrib.evol_rl import worth
from turngym.training.methods.entropy.epo import code_phase_weight, phase_weight
from turngym.training.methods.sampling.aepo_branching import code_prompt_paths, fork_chance
from turngym.training.methods.sampling.spear import gamma, recalibrated, tool_weight
from turngym.training.methods.sampling.starpo_s import kept_groups, spread

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
        return next(
            (
                f"{ours:.6f} for {theirs:.6f}"
                for ours, theirs in pairs
                if not abs(ours - theirs) <= CLOSE
            ),
            "",
        )


def credit(
    method: str, paths: Sequence[Sequence[int]], scores: Sequence[float], **parameters: Any
) -> Sequence[float]:
    """Return the advantages of the slots of paths with these scores, all of a group."""
    batch = build(paths, scores=scores)
    return advantages(METHODS[method](**parameters), batch, {}).tolist()


def shaped(
    method: str,
    batch: Batch,
    advantage: Tensor,
    state: Any = None,
    now: Now | None = None,
    **parameters: Any,
) -> Terms:
    """Return the terms that a method makes of an advantage, at the start of an update or now."""
    start = start_terms(advantage)
    return METHODS[method](**parameters).shape(
        start, batch, now or Now.at_start(batch), state or {}
    )


def on_sheet(method: str, **parameters: Any) -> tuple[Any, ...]:
    """Return TOY's batch and current policy, and the terms that a method makes of them."""
    batch, current, advantages = sheet()
    return batch, current, shaped(method, batch, advantages, now=now_of(current), **parameters)


def losses(method: str, **parameters: Any) -> Sequence[float]:
    """Return the policy's loss of each slot of the sheets' TOY batch, and of all."""
    batch, current, advantage = sheet()
    terms = shaped(method, batch, advantage, now=now_of(current), **parameters)
    terms = replace(terms, penalties=(), kl_coef=torch.zeros_like(advantage))
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


EPO_HISTORY = {"sum": 2.1, "count": 3, "step": 0}
EPO_ENTROPY = [1.0, 0.5, 0.2, 0.4, 0.4, 0.1, 2.0, 0.6]


def epo(part: str, **parameters: Any) -> Sequence[float]:
    """Return the bonus, the smoothing term or 1,000 times the gradient in H of EPO's example."""
    batch = build([[2, 1], [3, 2]], entropy=EPO_ENTROPY)
    entropy = batch.entropy.clone().requires_grad_()
    terms = shaped("epo", batch, batch.logp_old, EPO_HISTORY, **parameters)
    current = Current(batch.logp_old, entropy)
    values = {
        one.name: (one.coef * one.value(current, batch, terms)).sum() for one in terms.penalties
    }
    if part != "gradient":
        return [values[part].item()]
    (gradient,) = torch.autograd.grad(sum(values.values(), torch.zeros(())), entropy)
    return (1000 * gradient).tolist()


def empg() -> Sequence[float]:
    """Return the advantage of the sheet's five steps of a token each."""
    batch = build([[1, 1, 1], [1, 1]], entropy=[0.2, 0.8, 0.5, 1.1, 0.3])
    return shaped("empg", batch, f64([1, 1, 1, -1, -1]), zeta=0.05).advantage.tolist()


def hard(sharers: Sequence[int]) -> Sequence[float]:
    """Return ARPO's hard attribution: what a token gets that these of four leaves share."""
    batch = build(ONE)
    batch = replace(
        batch, token=torch.tensor([0 if leaf in sharers else leaf + 1 for leaf in range(4)])
    )
    advantage = f64(credit("grpo", ONE, [1, 1, 0, 0]))
    return [shaped("arpo", batch, advantage, attribution="hard").advantage[sharers[0]].item()]


def statistic() -> Sequence[float]:
    """Return ARPO's e of the sheet's two tokens, before and after the division by ln V."""
    listed = ([-0.1, -2.5, -4.0], [-1.2, -1.3, -1.5])
    entropy = np.array([-sum(logp * exp(logp) for logp in token) for token in listed], np.float32)
    turn = Turn(0, "assistant", "", np.zeros(2, np.int32), np.ones(2, np.bool_), entropy, entropy)
    tree = Tree((0, 0, 0), 0, "", [Turn.unsampled(-1, "user", "", np.zeros(0, np.int32)), turn])
    return [uncertainty(tree, 1, 20, 151_936) * log(151_936), uncertainty(tree, 1, 20, 151_936)]


def entropy_advantage(method: str, sign: float, state: Any = None) -> Sequence[float]:
    """Return AEPO's advantage of four tokens."""
    batch = build([[4]], entropy=[0.1, 0.4, 1.2, 0.3])
    return shaped(method, batch, f64([sign] * 4), state).advantage.tolist()


def clip(method: str, state: Any = None) -> Sequence[float]:
    """Return the losses of AEPO's table, then the coefficients of ∇logp in ascent."""
    batch, advantage = build([[6]]), f64([1, -1, 1, -1, 1, -1])
    logp = f64([1.5, 1.5, 0.6, 0.6, 1.1, 4.0]).log().requires_grad_()
    terms = replace(shaped(method, batch, advantage, state, variant="code"), advantage=advantage)
    value = terms.surrogate(Current(logp, batch.entropy), batch, terms)
    (gradient,) = torch.autograd.grad(value.sum(), logp)
    return [*(-value).tolist(), *gradient.tolist()]


def paid(
    method: str, batch: Batch, reward: Sequence[float], anchor: Sequence[int] | None = None
) -> Sequence[float]:
    """Return advantages where turns were paid, of the state that `anchor` numbers."""
    turns = replace(batch.turns, reward=f64(reward))
    if anchor is not None:
        turns = replace(turns, anchor=torch.tensor(anchor))
    return advantages(METHODS[method](), replace(batch, turns=turns), {}).tolist()


def bilevel() -> Sequence[float]:
    """Return the raw advantage of the sheet's row, and the standardised one."""
    batch = build([[3, 2]], value=[0.3, 0.4, 0.5, 0.6, 0.7], scores=[1.1])
    raw = bilevel_advantage(
        1.0, 1.0, 0.95, replace(batch, turns=replace(batch.turns, reward=f64([0.1, 1.0])))
    )
    return [*raw.tolist(), *paid("bilevel-gae", batch, [0.1, 1.0])]


def spreads() -> Sequence[float]:
    """Return the std of the scores of three groups."""
    groups = ([1.0, 0.0, 1.0, 0.0], [1.0] * 4, [1.0, 0.0, 0.0, 0.0])
    leaves = [
        [Leaf(0, branch, Outcome.DONE, "", score) for branch, score in enumerate(group)]
        for group in groups
    ]
    return [spread(Tree((0, 0, 0), 0, "", [], own)) for own in leaves]


def sheet_clip_cov() -> Sequence[float]:
    """Return which tokens Clip-Cov may leave out of the sheet's six, and the mean loss without the first."""
    advantage, logp = f64([2, 2, 2, -1, -1, -1]), f64([-0.05, -0.1, -3, -0.02, -2.5, -4])
    gap = f64([0.02, -0.1, 0.05, 0.01, -0.02, 0.3])
    left = clip_cov(advantage, logp, logp - gap, 1.0, 1.0, 1.0, 1.0, 5.0, (0,))
    loss = -advantage * gap.exp()
    return [*left.tolist(), loss[1:].sum().item() / 6]


def sheet_kl_cov() -> Sequence[float]:
    """Return which of the sheet's six tokens KL-Cov holds, and the mean loss."""
    advantage, logp = f64([2, 2, 2, -1, -1, -1]), f64([-0.05, -0.1, -3, -0.02, -2.5, -4])
    batch = build([[6]], logp_old=(logp - f64([0.02, -0.1, 0.05, 0.01, -0.02, 0.3])).tolist())
    current = Current(logp, batch.entropy)
    terms = METHODS["kl-cov"](share=1e-9).shape(start_terms(advantage), batch, now_of(current), {})
    return [*(6 * terms.penalties[0].coef).tolist(), objective(current, batch, terms, 6).item()]


def flow(variant: str) -> Sequence[float]:
    """Return FlowRL's loss of the sheet's two paths of a token each, where log Z is 1.5."""
    old = [-0.6, -0.5]
    batch = build([[1], [1]], logp_old=old, logp_ref=[-0.6, -0.7])
    current = Current(f64([-0.5, -0.8]), batch.entropy, {"log-z": f64([1.5, 1.5])})
    terms = METHODS["flowrl"](variant=variant).shape(
        start_terms(f64([0.1, -0.1])), batch, now_of(current), {}
    )
    return [objective(current, batch, terms, 2).item()]


def shared_ratio() -> Sequence[float]:
    """Return SimKO's ratio of the sheet's token, and its gradient in logp and in that of three likely tokens."""
    old, new = f64([0, 1, 2, 3, 0, 0, 0])[None], f64([0, 1, 2, 3])[None]
    batch = replace(build([[1]]), extras={"simko-likely": old})
    logp, top = f64([1.2]).log().requires_grad_(), f64([1.1, 0.9, 1.3]).log()[None].requires_grad_()
    current = Current(logp, batch.entropy, {"simko-likely": torch.cat([new, top], 1)})
    extras = {"simko-likely": old}
    plain = replace(hold(start_terms(f64([1])), 1.0, 1.0), extras={"simko": f64([0.01])})
    surrogate = shaped("simko", replace(batch, extras=extras), f64([1])).surrogate
    value = surrogate(current, batch, plain)
    mine, others = torch.autograd.grad(value.sum(), (logp, top))
    return [*value.tolist(), *mine.tolist(), *others[0].tolist()]


def scored_novelty(right: Sequence[bool]) -> Sequence[float]:
    """Return EVOL-RL's scores of three answers on one side whose novelty is 0.1, 0.4 and 0.3."""
    return worth(right, np.array([[1, 0.8, 1.4 / 1.5], [0.8, 1, 0], [1.4 / 1.5, 0, 1]]))


ALIKE = np.array([[1, 0.9, 0.2], [0.9, 1, 0.4], [0.2, 0.4, 1]])
ONE = [[1]] * 4
HALVES = [0.75, -0.25, -0.25, -0.25]
NARROW = {"coef": 1.0, "low": 0.5, "high": 1.5}
CLIPPED = [-1.2, 1.5, -0.6, 0.8, -1.1, 3.0, 1.2, -1.5, 0.6, 0.0, 1.1, 0.0]
SURE = [0.834384, 0.958596, 1.289828, 0.917192]
D, E = "agentic.md D", "agentic.md A"
EXAMPLES = (
    Example(
        "grpo",
        "base.md 3",
        lambda: credit("grpo", ONE, [1, 0, 0, 1]),
        [0.866024, -0.866024, -0.866024, 0.866024],
    ),
    Example(
        "grpo", "base.md 3", lambda: credit("grpo", ONE, [1, 0, 0, 0]), [1.499997, *[-0.499999] * 3]
    ),
    Example("grpo", "base.md 1", lambda: aggregated("token-mean"), [3.2]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-sum"), [8.0]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-mean"), [3.5]),
    Example("grpo", "base.md 1", lambda: aggregated("token-sum-norm"), [5.333333]),
    Example("grpo", "base.md 1", lambda: aggregated("seq-mean-token-sum-norm"), [2.666667]),
    Example("dr-grpo", "base.md 4", lambda: credit("dr-grpo", ONE, [1, 0, 0, 0]), HALVES),
    Example(
        "reinforce",
        "base.md 4",
        lambda: credit("reinforce", ONE, [1, 0, 0, 0], baseline="group"),
        HALVES,
    ),
    Example(
        "rloo", "base.md 5", lambda: credit("rloo", ONE, [1, 0, 0, 0]), [1.0, *[-0.333333] * 3]
    ),
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
    Example(
        "dapo",
        "base.md 7",
        lambda: losses("dapo"),
        [-1.105171, -1.28, -0.740818, 0.8, 1.349859, -0.195226],
    ),
    Example(
        "gspo", "base.md 8", lambda: losses("gspo"), [*[-1.0004] * 3, *[0.9997] * 2, -0.000350]
    ),
    Example(
        "cispo",
        "base.md 9",
        lambda: losses("cispo", lo=0.8, hi=1.28),
        [0.110517, 1.408, 0.8, -1.04, -2.56, -0.256297],
    ),
    Example(
        "ppo",
        "base.md 2",
        lambda: losses("ppo"),
        [-1.105171, -1.2, -0.740818, 0.8, 1.349859, -0.179226],
    ),
    Example("ppo", "base.md 2", _whitened_gae, [-0.280251, 1.110225, -0.829974]),
    Example("tis", "base.md 10", _mismatch, [1.105171, 2.0, 1.0, 1.349859, 0.951229]),
    Example(
        "tis", "base.md 10", lambda: _mismatch(level="sequence"), [*[2.0] * 3, *[1.284025] * 2]
    ),
    Example(
        "tis",
        "base.md 10",
        lambda: _mismatch(level="geometric"),
        [*[1.491825] * 3, *[1.133148] * 2],
    ),
    Example("epo", E, lambda: epo("epo-bonus", coef=1.0), [-0.6375]),
    Example("epo", E, lambda: epo("epo-bonus", coef=1.0, variant="code"), [-0.65]),
    Example("epo", E, lambda: epo("epo-band", **NARROW), [2 * 0.0177083333]),  # β is 2 at step 0
    Example("epo", E, lambda: epo("epo-band", **NARROW, variant="code"), [0.0375]),
    Example("epo", E, lambda: epo("epo-band", coef=1.0), [2 * 0.0075]),
    Example("epo", E, lambda: epo("epo-band", coef=1.0, variant="code"), [0.0125]),
    Example(
        "epo",
        E,
        lambda: epo("gradient", **{**NARROW, "coef": 0.001}),
        [-0.125, -0.125, -0.3, -0.083333, -0.083333, -0.1, -0.1, -0.125],
    ),
    Example(
        "epo",
        E,
        lambda: [phase_weight(step, 150, 3.0) for step in (0, 37, 75, 112, 150)],
        [2.0, 1.227638, 1.049787, 1.011333, 1.002479],
    ),
    Example(
        "epo",
        E,
        lambda: [code_phase_weight(step, 150) for step in (0, 37, 75, 76, 112, 150)],
        [1.0, 0.874563, 0.827067, 0.768632, 0.182110, 0.039830],
    ),
    Example("empg", "agentic.md B", empg, [1.159062, 0.472640, 0.727586, -0.780083, -1.579205]),
    Example("arpo", "agentic.md C", statistic, [1.419378, 0.118963]),
    Example("arpo", "agentic.md C", lambda: hard((0, 2)), [0.0]),
    Example("arpo", "agentic.md C", lambda: hard((0, 1, 2)), [0.288675]),
    Example(
        "aepo-branching",
        D,
        lambda: [
            code_prompt_paths(paths, tilt)
            for paths, tilt in ((16, 0), (16, 1), (16, -1), (12, 0.25), (16, 10))
        ],
        [9, 12, 5, 7, 16],
    ),
    Example(
        "aepo-branching",
        D,
        lambda: [
            fork_chance(0.5, 0.2 * rise, 0.05 * row)
            for row, rise in ((0, 0), (2, 0), (2, 0.5), (6, 0), (10, 0), (10, 1), (20, 1))
        ],
        [0.5, 0.444444, 0.544444, 0.285714, 0.0, 0.2, 0.0],
    ),
    Example("aepo-advantage", D, lambda: entropy_advantage("aepo-advantage", 1), SURE),
    Example(
        "aepo-advantage",
        D,
        lambda: entropy_advantage("aepo-advantage", -1),
        [-value for value in SURE],
    ),
    Example("aepo-clip", D, lambda: clip("aepo-clip"), CLIPPED),
    Example("aepo", D, lambda: entropy_advantage("aepo", 1, [{}] * 3), SURE),
    Example("aepo", D, lambda: clip("aepo", [{}] * 3), CLIPPED),
    Example(
        "dart",
        "agentic.md J1",
        lambda: uncertain(
            f64([step / 10 for step in range(1, 11)]), torch.zeros(10, dtype=torch.long), 0.2
        ).tolist(),
        [0, 0, *[1] * 8],
    ),
    Example(
        "dart",
        "agentic.md J1",
        lambda: credit("dart", [[1, 1], [1, 1, 1]], [1, 0]),
        [*[1.224745] * 2, *[-0.816497] * 3],
    ),
    Example("starpo-s", "agentic.md J3", spreads, [0.577350, 0.0, 0.5]),
    Example(
        "starpo-s",
        "agentic.md J3",
        lambda: sorted(kept_groups([0.5, 0.4, 0.1, 0.0], "top-p", 0.9, True)),
        [0, 1],
    ),
    Example(
        "starpo-s",
        "agentic.md J3",
        lambda: sorted(kept_groups([0.5, 0.4, 0.1, 0.0], "softmax", 0.9, True)),
        [0, 1, 2, 3],
    ),
    Example(
        "bilevel-gae",
        "agentic.md J3",
        bilevel,
        [0.75, 0.65, 0.55, 0.4, 0.3, 1.206499, 0.658090, 0.109682, -0.712931, -1.261339],
    ),
    Example(
        "mt-grpo",
        "agentic.md J4",
        lambda: paid("mt-grpo", build([[1, 1]] * 4, scores=[2, 1, 1, 0]), [1, 1, 0, 1, 1, 0, 0, 0]),
        [1.731751, 0.865875, 0.0, 0.865875, 0.0, -0.865875, -1.731751, -0.865875],
    ),
    Example(
        "mt-grpo",
        "agentic.md J4",
        lambda: paid("mt-grpo", build(ONE, scores=[2, 1, 1, 0]), [2, 1, 1, 0]),
        [1.224595, 0.0, 0.0, -1.224595],
    ),
    Example(
        "gigpo",
        "agentic.md J5",
        lambda: paid(
            "gigpo", build([[1] * 3] * 2, scores=[10, 0]), [0, 0, 10, 0, 0, 0], [0, 1, 2, 0, 1, 1]
        ),
        [9.5125, 11.333333, 5.0, -9.5125, -8.166667, -8.166667],
    ),
    Example(
        "spear",
        "agentic.md J6",
        lambda: [gamma(step, 200) for step in (0, 25, 50, 100, 150, 200)],
        [0.0, 0.038060, 0.146447, 0.5, 0.853553, 1.0],
    ),
    Example(
        "spear",
        "agentic.md J6",
        lambda: [tool_weight(step, 100) for step in (0, 25, 50, 100)],
        [1, 0.853553, 0.5, 0],
    ),
    Example(
        "spear",
        "agentic.md J6",
        lambda: list(
            recalibrated(
                [[0, 0, 0, 0, 1.0], [0, 0, 0, 1, 0.0]], [[0.2, 0.4, 0.5], [0.7, 0.1]]
            ).values()
        ),
        [0.6],
    ),
    Example("spear", "control.md H", sheet_clip_cov, [1, 1, 0, 0, 1, 1, -0.095352]),
    Example("kl-cov", "control.md H", sheet_kl_cov, [*[0] * 5, 1, -0.385419]),
    Example("clip-cov", "control.md H", lambda: sheet_clip_cov()[-1:], [-0.095352]),
    Example("flowrl", "objective.md FlowRL", lambda: flow("code"), [3.120666]),
    Example("flowrl", "objective.md FlowRL", lambda: flow("paper"), [3.369526]),
    Example("simko", "objective.md SimKO", shared_ratio, [1.2, 1.188, 0.004, 0.004, 0.004]),
    Example(
        "evol-rl", "objective.md EVOL-RL", lambda: scored_novelty([True] * 3), [0.5, 1.0, 0.833333]
    ),
    Example(
        "evol-rl",
        "objective.md EVOL-RL",
        lambda: scored_novelty([False] * 3),
        [-1.0, -0.5, -0.666667],
    ),
    Example(
        "evol-rl",
        "objective.md EVOL-RL",
        lambda: worth([True, True, False], ALIKE),
        [0.75, 0.75, -0.5],
    ),
)
