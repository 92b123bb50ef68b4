"""Branching of Agentic Entropy-Balanced Policy Optimisation (AEPO, Dong et al., arXiv 2510.14545).

Knob: sampling. A probe decides how many paths begin at the prompt and how many are forked, and a path branches less
where it has just branched.

    m = k·σ(beta·(H_root - H_tool)) of k paths begin at the prompt; H of a probe's turns                  (Sec. 3.1)
    branch where (base + weight·Δ)·(1 - penalty·l) > threshold, Δ as in ARPO, l forks in a row on the path

Defaults: beta 0.5, penalty 0.05, base 0.5, weight 0.2, beam 2, tokens 20: released script; threshold 0.5 is ours.
Evidence: A for variant "code" (RUC-NLPIR/ARPO, folder AEPO, read through public forks), B for the paper's rule.
Deviations: H of a turn is ARPO's statistic. H_root is that of the probe's own first turn, not of 50 tokens drawn apart.
m is rounded, and at least 1.
Variant "code": m is rounded down, plus 1, and H_tool counts the first turn, too; forks as in ARPO's code, but with
probability clip(1 - base/f + weight·Δ, 0, 1), f = max(0, 1 - penalty·l); l counts the turns in a row after which the
tree was forked (in the code: passes over all trees of a batch, in which paths at the prompt count, too).
"""

from math import exp

from ...control.branching import (
    answered,
    decides,
    draws,
    forked_before,
    forks,
    forks_in_a_row,
    just_taken,
    surprise,
)
from ...control.parameters import Count, Finite, NonNegative, Variant, checked
from ..base import Control, Event, Key, Several, Spawn, State, Tree


@checked
def aepo_branching(
    *,
    group: Several = 12,  # a path at the prompt and one to fork
    beta: Finite = 0.5,
    penalty: NonNegative = 0.05,
    beam: Count = 2,
    base: Finite = 0.5,
    weight: NonNegative = 0.2,
    threshold: Finite = 0.5,
    tokens: Count = 20,
    vocabulary: Several = 151_936,
    variant: Variant = "paper",
) -> Control:
    """Return the budget and the rule; `group` and `vocabulary` are the run's."""
    paper = variant == "paper"

    def begin(probe: Tree) -> int:
        tilt = beta * probed(probe, tokens, vocabulary, first=1 if paper else 0)
        return prompt_paths(group, tilt) if paper else code_prompt_paths(group, tilt)

    def fork(tree: Tree, event: Event, key: Key, turns: list[int]) -> list[Spawn]:
        rise = weight * surprise(tree, turns[-1], turns[0], tokens, vocabulary)
        if paper:
            score = (base + rise) * max(0.0, 1 - penalty * forked_before(tree, turns))
            return forks(
                answered(tree, turns), beam - 1 if score > threshold and decides(tree, turns) else 0
            )
        chance = fork_chance(base, rise, penalty * forks_in_a_row(tree, len(turns)))
        return forks(
            event.node, draws(chance, beam - 1, (*key, len(turns))) if event.kind == "turn" else 0
        )

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, trained=False)]
        if event.kind == "idle":
            rest = [] if paper else [Spawn(0)]  # none: all of the budget
            return [Spawn(0, n=begin(tree))] if event.budget == group else rest
        turns = just_taken(tree, event)
        return (
            fork(tree, event, key, turns) if turns and 0 < event.budget < group else []
        )  # a probe is not forked

    return Control(name="aepo-branching", sets=frozenset({"branching"}), plan=plan)


def prompt_paths(group: int, tilt: float) -> int:
    """Return m: how many of `group` paths begin at the prompt, for `tilt` = beta·(H_root - H_tool)."""
    return max(round(_share(group, tilt)), 1)


def code_prompt_paths(group: int, tilt: float) -> int:
    """Return m of the released code."""
    return min(int(_share(group, tilt)) + 1, group)


def _share(group: int, tilt: float) -> float:
    return group / (1 + exp(-tilt)) if tilt > -700 else 0.0


def probed(tree: Tree, tokens: int, vocabulary: int, first: int = 1) -> float:
    """Return H_root - H_tool of the probe, the one path of the tree, H_tool from its turn `first` on; 0 without one."""
    turns = [node for node, turn in enumerate(tree.turns) if turn.role == "assistant"]
    rises = [surprise(tree, node, turns[0], tokens, vocabulary) for node in turns[first:]]
    return -sum(rises) / max(len(rises), 1)


def fork_chance(base: float, rise: float, fading: float) -> float:
    """Return the code's probability of a fork, where the entropy has risen and `fading` is penalty·l."""
    return min(max(1 - base / (1 - fading) + rise, 0.0), 1.0) if fading < 1 else 0.0
