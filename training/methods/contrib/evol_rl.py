"""EVOL-RL (arXiv 2509.15194): learning without labels, by the majority's answer and by being unlike others.

Knob: sampling (the reward). The vote of a group says which paths are right, novelty how much each is worth. Answers are
one where the environment's grader says that they are the same.

    u_i = 1 - (mean similarity to others of its side + largest similarity to any other)/2;   ũ = min-max of u by side
    score = 0.5 + ũ/2 with the majority, -1 + ũ/2 against it, -1 without an answer

Defaults: paper, which adds clip-high 0.28, an entropy bonus of 0.003, and learns from 32 of 64 paths that vote.
Evidence: C. The reward is read in released code (YujunZhou/EVOL-RL, `semantic_novelty.py`); its similarity is the
cosine of embeddings of a 4B model, ours that of counts of three characters in a row, which no paper has tried.
Deviations: all paths are learned from. Of answers with as many votes the first one's wins. Equal u give ũ 0.5 where a
side has several paths and 1 where it has one; with a single answer among paths without, all get -1.
Off: mix 0 keeps the environment's score.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ....agents.evaluation.votes import Same
from ...control.parameters import Share, checked
from ...data.packing import Vote
from ..base import Control, Tree
from ..reward.empo import answers, in_place

COLUMN = "evol-rl"


@checked
def evol_rl(*, mix: Share = 1.0) -> Control:
    """Return EVOL-RL's score in place of the environment's, `mix` of it."""
    return in_place(COLUMN, voted, mix)


@Vote
def voted(tree: Tree, same: Same) -> list[float]:
    """Return the score of each leaf of a tree; that of one that is not learned from is not used."""
    scores = [-1.0] * len(tree.leaves)
    answer_of = {place: answer for place, answer in answers(tree, same) if isinstance(answer, str)}
    learned = sum(leaf.learned for leaf in tree.leaves)
    if not answer_of or (len(answer_of) == 1 and learned > 1):
        return scores
    majority = Counter(answer_of.values()).most_common(1)[0][0]
    in_majority = [answer == majority for answer in answer_of.values()]
    texts = [
        " ".join(tree.turns[node].text for node in tree.replies(tree.leaves[place]))
        for place in answer_of
    ]
    for place, score in zip(answer_of, worth(in_majority, similarities(texts)), strict=True):
        scores[place] = score
    return scores


def worth(right: Sequence[bool], alike: NDArray[np.float64]) -> list[float]:
    """Return the scores of answers by their side of the vote and how alike they are, `[n, n]`."""
    sides, count = np.array(right), len(right)
    if count == 1:
        return [0.5 if sides[0] else -1.0]
    others = alike + np.diag(np.full(count, np.nan))
    same = np.where(sides[:, None] == sides, others, np.nan)
    single = np.isnan(same).all(1)
    same[single] = others[single]
    unlike = 1 - (np.nanmean(same, 1) + np.nanmax(others, 1)) / 2
    share = np.ones(count)
    for side in (mine for mine in (sides, ~sides) if mine.sum() > 1):
        low, wide = unlike[side].min(), np.ptp(unlike[side])
        share[side] = (unlike[side] - low) / wide if wide > 1e-12 else 0.5
    return [float(value) for value in np.where(sides, 0.5, -1.0) + share / 2]


def similarities(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of the counts of three characters in a row of any two texts; an empty text is like none."""
    counts = [Counter(text[place : place + 3] for place in range(len(text) - 2)) for text in texts]
    names = {
        gram: place
        for place, gram in enumerate(dict.fromkeys(gram for one in counts for gram in one))
    }
    table = np.zeros((len(texts), len(names)))
    for row, one in zip(table, counts, strict=True):
        row[[names[gram] for gram in one]] = list(one.values())
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return np.clip(table @ table.T, 0, 1)
