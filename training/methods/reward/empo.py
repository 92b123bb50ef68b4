"""EMPO (arXiv 2504.05812): a path is worth what share of its group agrees with its answer.

Knob: sampling (the reward). Learning without labels, by agreement. Answers are equal where the environment says that
they are the same.

    s_i = share of the group with the answer of path i; 0 without one, and 0 for all where none agree

Defaults: none to set.
Evidence: A, read in released code (QingyangZhang/EMPO).
Deviations: equality by the environment's grader stands for entailment.
Off: mix 0 keeps the environment's score.
"""

from collections import Counter

from ....agents.evaluation.votes import Same, classes
from ...control.parameters import Share, checked
from ...data.batch import Column
from ...data.packing import Vote
from ..base import Batch, Control, Needs, Rows, State, Tree

AGREED = "empo"


@checked
def empo(*, mix: Share = 1.0) -> Control:
    """Return EMPO's score in place of the environment's, `mix` of it."""
    return in_place(AGREED, agreed, mix)


def in_place(name: str, score: Column, mix: float) -> Control:
    """Return a control that has `mix` of another score of whole trees in place of the environment's."""
    if mix == 0:  # the other score is not even computed
        return Control(name=name)

    def reward(batch: Batch, state: State) -> Rows:
        return (1 - mix) * batch.turns.score + mix * batch.turns.columns[name].to(batch.turns.score)

    return Control(name=name, needs=Needs(columns={name: score}), reward=reward)


def answers(tree: Tree, same: Same) -> list[tuple[int, object]]:
    """Return the places of leaves that are learned from, and their answers; without one each is its own.

    Of answers that are the same all are written as the first of them.
    """
    found = [
        (place, tree.last_info(leaf).get("answer"))
        for place, leaf in enumerate(tree.leaves)
        if leaf.learned
    ]
    given = [answer for _, answer in found if answer is not None]
    number_of = classes(given, same)
    firsts = {
        number: repr(answer)
        for number, answer in zip(reversed(number_of), reversed(given), strict=True)
    }
    written = iter([firsts[number] for number in number_of])
    return [(place, (place,) if answer is None else next(written)) for place, answer in found]


@Vote
def agreed(tree: Tree, same: Same) -> list[float]:
    """Return EMPO's score of each leaf."""
    found = answers(tree, same)
    counts = Counter(answer for _, answer in found)
    scores = [0.0] * len(tree.leaves)
    for place, answer in found:
        if len(counts) < len(found) and isinstance(answer, str):
            scores[place] = counts[answer] / len(found)
    return scores
