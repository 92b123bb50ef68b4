"""ADR (EHPO, arXiv 2510.10207): paths fork where a path turns from easy to hard, and answer by the task's difficulty.

Knob: sampling, reward. Cheap units where the task is easy, expensive ones where it is not.

    SP = clip(alpha + ΔH, 0, 1): the chance of a fork where an easy turn is followed by a hard one
    R ← R·(beta + (1 - beta)·(pass·p_easy + (1 - pass)·p_hard));   pass: share of right paths of the group

Defaults: alpha 0.5: secondary notes; beta 0.5: ours.
Evidence: C. SP and the form of the reward are established, its normaliser, beta and the units could not be.
Deviations: a unit is a turn of the agent, hard where its mean entropy is above that of the path's first turn; ΔH is the
last token's entropy less the first's, of the hard turn, over ln V; p_easy and p_hard are shares of turns. A fork begins
at the answer before the hard turn. The rewards for format and units are not here.
Off: initial the group, beta 1.
"""

from math import log

from ...control.branching import answered, draws, forks, just_taken
from ...control.parameters import Count, Share, checked, require
from ...loss.credit import solved
from ..base import (
    Batch,
    Control,
    Event,
    Key,
    Needs,
    Rows,
    Several,
    Spawn,
    State,
    Tree,
    Vector,
    Whole,
)

COLUMN = "adr-easy"


@checked
def adr(
    *,
    group: Count = 8,
    initial: Whole = 0,
    alpha: Share = 0.5,
    beta: Share = 0.5,
    vocabulary: Several = 151_936,
) -> Control:
    """Return the branching and the reward; `group` and `vocabulary` are the run's, `initial` 0 is half of the group."""
    require(
        initial <= group, "adr", "initial", initial, f"0 (half of the group) to {group}, the group"
    )
    first = initial or max(group // 2, 1)

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, n=first)]
        turns = just_taken(tree, event)
        levels = [level(tree, node) for node in turns]
        if len(turns) < 2 or not event.budget or not levels[-2] <= levels[0] < levels[-1]:
            return []
        drawn = tree.turns[turns[-1]].entropy[tree.turns[turns[-1]].sampled]
        rise = float(drawn[-1] - drawn[0]) / log(vocabulary)
        return forks(answered(tree, turns), draws(chance(alpha, rise), 1, (*key, len(turns))))

    def reward(batch: Batch, state: State) -> Rows:
        turns = batch.turns
        share = mode(beta, solved(turns), turns.columns[COLUMN]) if beta < 1 else 1.0
        return (turns.score * share).to(turns.score)

    needs = Needs(columns={COLUMN: easy} if beta < 1 else {})
    rule = plan if first < group else None
    return Control(name="adr", needs=needs, sets=frozenset({"branching"}), plan=rule, reward=reward)


def level(tree: Tree, node: int) -> float:
    """Return the mean entropy (nats) of the tokens drawn of a turn."""
    turn = tree.turns[node]
    return float(turn.entropy[turn.sampled].mean()) if turn.sampled.any() else 0.0


def easy(tree: Tree) -> list[float]:
    """Return the share of easy turns of each leaf's path."""
    paths = [[level(tree, node) for node in tree.replies(leaf)] for leaf in tree.leaves]
    return [sum(own <= path[0] for own in path) / max(len(path), 1) for path in paths]


def chance(alpha: float, rise: float) -> float:
    """Return SP."""
    return min(max(alpha + rise, 0.0), 1.0)


def mode(beta: float, solved: Vector, easy: Vector) -> Vector:
    """Return R_mode of paths whose group has a share of right paths, and that have a share of easy turns."""
    return beta + (1 - beta) * (solved * easy + (1 - solved) * (1 - easy))
