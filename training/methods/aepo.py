"""Agentic Entropy-Balanced Policy Optimisation (AEPO, Dong et al., arXiv 2510.14545).

Knob: sampling, clip and advantage. Three parts, each of them a method of its own: a branching budget that follows from
a probe and branches less where it has just branched (`aepo-branching`), a clip that keeps the gradient of tokens past
its upper bound (`aepo-clip`), and advantages that weigh uncertain tokens more (`aepo-advantage`).

    m = k·σ(beta·(H_root - H_tool)) of k paths begin at the prompt; H of a probe's turns                  (Sec. 3.1)
    branch where (base + weight·Δ)·(1 - penalty·l) > threshold, Δ as in ARPO, l forks in a row on the path
    min(δA, clip(δ, 1 - low, (1 + high)·δ/sg(δ))·A): coefficient 1 + high, not 0, past the upper bound    (Sec. 3.2)
    A ← A·(1 + scale·z), z = (H - mean)/std over all tokens of the step

Defaults: beta 0.5, penalty 0.05, base 0.5, weight 0.2, beam 2, tokens 20, scale 0.2: released script
(AEPO_Qwen3_14B_DeepResearch); threshold 0.5 is ours, the paper's being unknown. Clip bounds are the run's.
Evidence: A for variant "code" (RUC-NLPIR/ARPO, folder AEPO, read through public forks), B for the paper's rule.
Deviations: H of a turn is ARPO's statistic, Σ of its first tokens over ln V. H_root is that of the probe's own first
turn, not of 50 tokens drawn apart; without an answer in the probe H_root = H_tool. m is rounded, and at least 1.
1 - penalty·l and 1 + scale·z are held at 0 or more, and z is 0 where all entropies are equal. Statistics are over the
step's tokens, each once; the code's are over a micro-batch and are skipped unless something else has entropy computed.
Variant "code": m is rounded down, plus 1, and H_tool counts the first turn, too; each of beam - 1 copies is forked,
behind the answer to the turn, with probability clip(1 - base/f + weight·Δ, 0, 1), f = max(0, 1 - penalty·l); l counts
the turns in a row after which the tree was forked (in the code: passes over all trees of a batch, in which paths at the
prompt count, too); the budget's rest begins as in ARPO's code; the clip has a dual bound of 3.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf

import torch
from jaxtyping import Float
from torch import Tensor

from ...agents.rollout.branching import Event, Spawn
from ...agents.trajectory import Key, Tree
from ..columns import Batch, Now, Terms
from ..control import Control, Needs, State, chain
from ..objective import gradient_keeping
from ..parameters import require
from .arpo import Variant, answered, decides, draws, forks, just_said, one_by_one, surprise


def aepo(
    *,
    group: int = 12,
    beta: float = 0.5,
    penalty: float = 0.05,
    scale: float = 0.2,
    vocabulary: int = 151_936,
    variant: Variant = "paper",
) -> Control:
    """Return AEPO with all its parts; they can be had one by one. Raises ValueError on a bad parameter."""
    branching = aepo_branching(group=group, beta=beta, penalty=penalty, vocabulary=vocabulary, variant=variant)
    return replace(chain(branching, aepo_clip(variant=variant), aepo_advantage(scale=scale)), name="aepo")


def aepo_branching(
    *,
    group: int = 12,
    beta: float = 0.5,
    penalty: float = 0.05,
    beam: int = 2,
    base: float = 0.5,
    weight: float = 0.2,
    threshold: float = 0.5,
    tokens: int = 20,
    vocabulary: int = 151_936,
    variant: Variant = "paper",
) -> Control:
    """Return the budget and the rule; `group` and `vocabulary` are the run's. Raises ValueError on a bad parameter."""
    require(group >= 2, "aepo-branching", "group", group, "at least 2: a path at the prompt and one to fork")
    for name, value in (("beta", beta), ("base", base), ("threshold", threshold)):
        require(abs(value) < inf, "aepo-branching", name, value, "finite")
    for name, value in (("penalty", penalty), ("weight", weight)):
        require(0 <= value < inf, "aepo-branching", name, value, "0 or more")
    require(beam >= 1 and tokens >= 1, "aepo-branching", "beam, tokens", (beam, tokens), "at least 1")
    require(vocabulary >= 2, "aepo-branching", "vocabulary", vocabulary, "at least 2 tokens")
    require(variant in ("paper", "code"), "aepo-branching", "variant", variant, "paper or code")

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, trained=False)]
        if event.kind == "idle":
            if event.budget < group:
                return one_by_one(variant)
            return [Spawn(0, n=prompt_paths(group, beta * probed(tree, tokens, vocabulary, variant), variant))]
        said = just_said(tree, event)
        if not said or event.budget in (0, group):  # nothing is left, or this is the probe
            return []
        rise = weight * surprise(tree, said[-1], said[0], tokens, vocabulary)
        if variant == "code":
            chance = fork_chance(base, rise, penalty * forks_in_a_row(tree, len(said)))
            return forks(event.node, event.kind == "turn" and draws(chance, beam - 1, (*key, len(said))))
        score = (base + rise) * max(0.0, 1 - penalty * forked_before(tree, said))
        return forks(answered(tree, said), score > threshold and decides(tree, said) and beam - 1)

    return Control(name="aepo-branching", sets=frozenset({"branching"}), plan=plan)


def aepo_clip(*, variant: Variant = "paper") -> Control:
    """Return the clip that keeps gradients, within the run's clip bounds."""
    require(variant in ("paper", "code"), "aepo-clip", "variant", variant, "paper or code")
    surrogate = gradient_keeping(3.0 if variant == "code" else inf)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, surrogate=surrogate)

    return Control(name="aepo-clip", sets=frozenset({"surrogate"}), shape=shape)


def aepo_advantage(*, scale: float = 0.2) -> Control:
    """Return the advantage that weighs uncertain tokens more; `scale` 0 changes nothing."""
    require(0 <= scale < inf, "aepo-advantage", "scale", scale, "0 or more")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        factor = (1 + scale * standardized(now.entropy, batch)).clamp(min=0)
        return replace(terms, advantage=terms.advantage * factor)

    return Control(name="aepo-advantage", needs=Needs(now=scale > 0), shape=shape)


def prompt_paths(group: int, tilt: float, variant: Variant) -> int:
    """Return m: how many of `group` paths begin at the prompt, for `tilt` = beta·(H_root - H_tool)."""
    share = group / (1 + exp(-tilt)) if tilt > -700 else 0.0
    return min(max(int(share) + 1 if variant == "code" else round(share), 1), group)


def probed(tree: Tree, tokens: int, vocabulary: int, variant: Variant) -> float:
    """Return H_root - H_tool of the probe, the one path that the tree has; 0 where nothing was answered on it."""
    said = [node for node, turn in enumerate(tree.turns) if turn.role == "assistant"]
    rises = [surprise(tree, node, said[0], tokens, vocabulary) for node in said[variant == "paper" :]]
    return -sum(rises) / max(len(rises), 1)


def fork_chance(base: float, rise: float, fading: float) -> float:
    """Return the code's probability of a fork, where the entropy has risen and `fading` is penalty·l."""
    return min(max(1 - base / (1 - fading) + rise, 0.0), 1.0) if fading < 1 else 0.0


def forked_before(tree: Tree, said: list[int]) -> int:
    """Return l of the paper: behind how many answers in a row, up to the last but one turn, the path was forked."""
    count = 0
    for node in reversed(said[1:-1]):
        behind = sum(turn.parent == tree.turns[node].parent for turn in tree.turns)
        if behind < 2:
            break
        count += 1
    return count


def forks_in_a_row(tree: Tree, turns: int) -> int:
    """Return l of the code: after how many turns in a row, up to the last but one of `turns`, the tree was forked."""
    depth = [0] * len(tree.turns)
    behind: dict[int, int] = {}
    for node, turn in enumerate(tree.turns):
        if turn.parent >= 0:
            depth[node] = depth[turn.parent] + (turn.role == "assistant")
            behind[turn.parent] = behind.get(turn.parent, 0) + (turn.role == "assistant")
    forked = {depth[node] for node, count in behind.items() if count > 1 and node}
    count = 0
    while turns - 1 - count in forked:
        count += 1
    return count


def standardized(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return (values - mean) / std, unbiased, over the step's tokens, each counted once; 0 where there is no spread."""
    if not len(values):
        return values
    count, above = batch.share.sum(), values - values.min()  # so that rounding cannot part equal values
    centred = above - (batch.share * above).sum() / count
    std = ((batch.share * centred.square()).sum() / (count - 1).clamp(min=1)).sqrt()
    return centred / torch.where(std > 0, std, 1.0)
