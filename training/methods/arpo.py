"""Agentic Reinforced Policy Optimisation (ARPO, arXiv 2507.19849).

Knob: sampling, and advantage where attribution is hard. Of `group` paths a tree, `initial` begin at the prompt; others
are forked behind an answer of the environment where the policy is less sure after it than it was at first.

    Δ = (Σ H of the first `tokens` tokens after the answer - Σ H of the first `tokens` of the path) / ln V
    branch into `beam` paths where base + weight·Δ > threshold                         (Sec. 3.1)
    what is left of the budget when all paths have ended begins at the prompt

Defaults: initial group / 2, beam 2, base 0.5, weight 0.2, tokens 20: released scripts; threshold 0.5 is ours, as the
paper's values are not in its text. Soft attribution: GRPO on all paths.
Evidence: A for variant "code" (RUC-NLPIR/ARPO, read in released code), B for the paper's rule.
Deviations: Δ is divided by ln V, as in the code; the paper's V makes it vanish. H is the full entropy, the code's that
of the ten likeliest tokens. What a path branches on is known when its turn is over; its sibling begins before that
turn, and an answer is decided on once, however many paths go on behind it. The reference is the path's own first turn,
and is forgotten with the path; in the code it is never cleared.
Variant "code": Δ compares the turn that led to the answer, and each of beam - 1 copies is forked with probability
clip(base + weight·Δ, 0, 1), behind the answer, while the path goes on. What is left of the budget begins at the prompt
one path after the other, and these are forked, too.
Attribution "hard": a token that several paths share gets the mean of their advantages (Sec. 3.2).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ...agents.engine import keyed_rng
from ...agents.rollout.branching import Event, Spawn
from ...agents.trajectory import Key, Tree
from ..columns import Batch, Now, Terms
from ..control import Control, State
from ..parameters import require

Variant = Literal["paper", "code"]
Attribution = Literal["soft", "hard"]
SALT = 0xA890  # parts a rule's draws from those of tokens


def arpo(
    *,
    group: int = 16,
    initial: int = 0,
    beam: int = 2,
    base: float = 0.5,
    weight: float = 0.2,
    threshold: float = 0.5,
    tokens: int = 20,
    vocabulary: int = 151_936,
    attribution: Attribution = "soft",
    variant: Variant = "paper",
) -> Control:
    """Return ARPO's branching; with `initial` = `group` it changes nothing. `group` and `vocabulary` are the run's.

    `initial` 0 stands for half of `group`. Raises ValueError on a bad parameter.
    """
    require(group >= 1, "arpo", "group", group, "at least 1")
    require(0 <= initial <= group, "arpo", "initial", initial, f"0 (half of the group) to {group}, the group")
    require(beam >= 1, "arpo", "beam", beam, "at least 1")
    require(abs(base) < inf, "arpo", "base", base, "finite")
    require(0 <= weight < inf, "arpo", "weight", weight, "0 or more")
    require(abs(threshold) < inf, "arpo", "threshold", threshold, "finite")
    require(tokens >= 1, "arpo", "tokens", tokens, "at least 1")
    require(vocabulary >= 2, "arpo", "vocabulary", vocabulary, "at least 2 tokens")
    require(attribution in ("soft", "hard"), "arpo", "attribution", attribution, "soft or hard")
    require(variant in ("paper", "code"), "arpo", "variant", variant, "paper or code")
    first = initial or (group + 1) // 2

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, n=first)]
        if event.kind == "idle":
            return one_by_one(variant)
        said = just_said(tree, event)
        if not said or not event.budget:
            return []
        score = base + weight * surprise(tree, said[-1], said[0], tokens, vocabulary)
        if variant == "code":
            return forks(event.node, event.kind == "turn" and draws(score, beam - 1, (*key, len(said))))
        return forks(answered(tree, said), score > threshold and decides(tree, said) and beam - 1)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, advantage=shared_mean(terms.advantage, batch)) if attribution == "hard" else terms

    return Control(name="arpo", sets=frozenset({"branching"}), plan=plan if first < group else None, shape=shape)


def just_said(tree: Tree, event: Event) -> list[int]:
    """Return the agent's turns of the path on which it has just taken one, that one last; else none."""
    said, node = list[int](), event.node
    if event.kind == "end" and tree.turns[node].role != "assistant":  # its context was full before the next
        return said
    while node > 0:
        if tree.turns[node].role == "assistant":
            said.append(node)
        node = tree.turns[node].parent
    return said[::-1]


def answered(tree: Tree, said: list[int]) -> int:
    """Return what the last of the turns `said` answers."""
    return tree.turns[said[-1]].parent


def decides(tree: Tree, said: list[int]) -> bool:
    """Return whether the last of the turns `said` is the first that was drawn behind an answer to the agent."""
    return len(said) > 1 and all(turn.parent != answered(tree, said) for turn in tree.turns[: said[-1]])


def draws(chance: float, trials: int, key: Key) -> int:
    """Return how many of `trials` independent ones of this `chance` came true; they depend on `key` alone."""
    return int((keyed_rng((*key, SALT)).random(trials) < chance).sum())


def forks(node: int, copies: int) -> list[Spawn]:
    """Return `copies` paths behind turn `node`."""
    return [Spawn(node, n=copies)] if copies else []


def one_by_one(variant: Variant) -> list[Spawn]:
    """Return what an idle tree is topped up with: the code's one path, else all that is left of the budget."""
    return [Spawn(0)] if variant == "code" else []


def surprise(tree: Tree, said: int, first: int, tokens: int, vocabulary: int) -> float:
    """Return Δ: by how much more uncertain the beginning of turn `said` is than that of turn `first`."""
    return uncertainty(tree, said, tokens, vocabulary) - uncertainty(tree, first, tokens, vocabulary)


def uncertainty(tree: Tree, node: int, tokens: int, vocabulary: int) -> float:
    """Return the sum of the entropies (nats) of the first `tokens` tokens that were drawn of a turn, over ln V."""
    turn = tree.turns[node]
    return float(turn.entropy[turn.sampled][:tokens].astype(float).sum()) / log(vocabulary)


def shared_mean(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the mean of `values` over all slots of its token."""
    count = torch.bincount(batch.token)
    total = values.new_zeros(len(count)).index_add(0, batch.token, values)
    return (total / count.clamp(min=1))[batch.token]
