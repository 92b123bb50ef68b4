"""Arbitrary entropy (AEPO of Wang et al., arXiv 2510.08141): imitating hot or cold samples of one's own.

Knob: objective, sampling. Right paths are learned from as if they had been drawn at a temperature above 1 where entropy
is below its target, and below 1 where it is above. No bonus biases the optimum.

    factor_t = p_T(token)/p_1(token), T = hot where H ≤ target, else cold
    a0 = min(|target - H|, 0.1)/share of right paths;  a = a0/(1 + a0)
    A ← (1 - a)·A + a·1[score > 0.05]·factor
    pool > 0, the paper's own form: the share `pool` of a group is drawn at T; there A is 1 where right, else 0, and the
    loss of all tokens is at temperature 1

Defaults: target 0.5 nats, hot 1.2, cold 0.8: released code; pool 0, the code has a quarter of the prompts.
Evidence: A, read in released code (597358816/AEPO, its mode called DCPO, which needs no second rollout).
Deviations: H is -logp of the rollout's tokens. The pool is part of its groups, so that its scores count in their means.
No path right: a is 0. Name it behind grpo.
Off: hot and cold 1.
"""

from functools import partial
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from ....agents.trajectory import Event, Key, Spawn, Tree
from ...control.parameters import Count, NonNegative, Share, checked
from ...loss.credit import Paths
from ..base import (
    Batch,
    Before,
    Control,
    Factor,
    Ids,
    Logits,
    Needs,
    Now,
    Part,
    Requests,
    State,
    Stats,
    Terms,
    replace,
)

FACTOR, POOL, RIGHT, LARGEST = "aepo-wang", "aepo-wang-pool", 0.05, 0.1


@checked
def aepo_wang(
    *,
    target: NonNegative = 0.5,
    hot: Factor = 1.2,
    cold: Part = 0.8,
    pool: Share = 0.0,
    group: Count = 8,
) -> Control:
    """Return the reweighting, or the pool; `target` is in nats, `group` the run's. State: the rollout's entropy."""
    off, drawn = hot == cold == 1, int(pool * group)

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        level = hot if state["entropy"] <= target else cold
        hotter = [Spawn(0, n=group - drawn)] * (drawn < group) + [
            Spawn(0, n=drawn, temperature=level, whole=True)
        ]
        return hotter if event.kind == "start" else []

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        known = stats.phase == "rollout" and isfinite(stats.entropy_sampled)
        return ({"entropy": stats.entropy_sampled} if known else state), Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, entropy = Paths.of(batch), state["entropy"]
        right = paths.score > RIGHT
        if drawn:
            pooled = batch.turns.columns[POOL][batch.row] > 0
            return replace(
                terms,
                advantage=torch.where(pooled, paths.slots(right, terms.weight), terms.advantage),
            )
        if off or not right.any():
            return terms
        a = share(entropy, target, float(right.double().mean()))
        gain = batch.extras[FACTOR][:, 0 if entropy <= target else 1].exp()
        imitated = torch.where(paths.slots(right, terms.weight) > 0, gain, 0.0)
        shaped = (1 - a) * terms.advantage + a * imitated
        return replace(
            terms, advantage=torch.where(paths.learned, shaped, terms.advantage).to(terms.advantage)
        )

    def column(tree: Tree) -> list[float]:
        return [float(leaf.branch >= group - drawn) for leaf in tree.leaves]

    needs = Needs(functionals={} if off else {FACTOR: partial(tempered, hot, cold)})
    found = Control(
        name="aepo-wang", needs=needs, init={"entropy": 0.0}.copy, observe=observe, shape=shape
    )
    pooling = Needs(columns={POOL: column}, temperature=1.0)
    return (
        replace(found, needs=pooling, sets=frozenset({"branching"}), plan=plan) if drawn else found
    )


def share(entropy: float, target: float, right: float) -> float:
    """Return a, of the share of paths that are right."""
    first = min(abs(target - entropy), LARGEST) / right if right else 0.0
    return first / (1 + first)


def tempered(
    hot: float, cold: float, logits: Logits, token: Ids, before: Before
) -> Float[Tensor, "c 2"]:
    """Return by how much a drawn token is likelier at each temperature than at 1, in nats."""
    parts = [
        (logits / t).log_softmax(-1).gather(-1, token[:, None])[:, 0] for t in (hot, cold, 1.0)
    ]
    return torch.stack((parts[0] - parts[2], parts[1] - parts[2]), -1)
