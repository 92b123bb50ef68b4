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

from typing import Literal

from ...control.branching import answered, decides, draws, forks, just_taken, surprise
from ...control.parameters import Count, Finite, NonNegative, Variant, checked, require
from ...loss.aggregation import shared_mean
from ..base import (
    Batch,
    Control,
    Event,
    Key,
    Now,
    Several,
    Spawn,
    State,
    Terms,
    Tree,
    Whole,
    replace,
)


@checked
def arpo(
    *,
    group: Count = 16,
    initial: Whole = 0,
    beam: Count = 2,
    base: Finite = 0.5,
    weight: NonNegative = 0.2,
    threshold: Finite = 0.5,
    tokens: Count = 20,
    vocabulary: Several = 151_936,
    attribution: Literal["soft", "hard"] = "soft",
    variant: Variant = "paper",
) -> Control:
    """Return ARPO's branching; with `initial` = `group` it changes nothing. `group` and `vocabulary` are the run's."""
    require(
        initial <= group, "arpo", "initial", initial, f"0 (half of the group) to {group}, the group"
    )
    first = initial or (group + 1) // 2

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, n=first)]
        if event.kind == "idle":
            return (
                [] if variant == "paper" else [Spawn(0)]
            )  # none: the whole budget begins at the prompt
        turns = just_taken(tree, event)
        if not (turns and event.budget):
            return []
        score = base + weight * surprise(tree, turns[-1], turns[0], tokens, vocabulary)
        if variant == "paper":
            return forks(
                answered(tree, turns), beam - 1 if score > threshold and decides(tree, turns) else 0
            )
        return forks(
            event.node, draws(score, beam - 1, (*key, len(turns))) if event.kind == "turn" else 0
        )

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return (
            replace(terms, advantage=shared_mean(terms.advantage, batch))
            if attribution == "hard"
            else terms
        )

    return Control(
        name="arpo",
        sets=frozenset({"branching"}),
        plan=plan if first < group else None,
        shape=shape,
    )
