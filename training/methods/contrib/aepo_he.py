"""AEPO of He et al. (arXiv 2511.06380): in a second stage, what reflects on itself may stay uncertain.

Knob: objective. A bonus on the entropy of all tokens, and a larger one behind the first cue of reflection.

    stage 1 (the first `first` share of the run): L ← L - c1·mean H
    stage 2: L ← L - c1·mean H of tokens before a cue - c2·mean H of those behind it

Defaults: first 0.5, c1 0.0005, c2 0.002: ours, with c1 < c2 as in the paper.
Evidence: C. Two stages, and more entropy in reflection, are the paper's; formulas could not be established.
Deviations: a cue is one of `CUES` in the text of a turn; its token is found by its share of the text's length.
Off: c1 and c2 0.
"""

import re
from math import inf

import torch

from ...control.parameters import NonNegative, Share, checked
from ..base import Batch, Control, Needs, Now, State, Terms, Tree, replace

COLUMN = "aepo-he"
CUES = re.compile(
    r"\b(wait|hmm|check|verify|again|mistake|reconsider|actually|alternatively)\b", re.IGNORECASE
)


@checked
def aepo_he(*, first: Share = 0.5, c1: NonNegative = 0.0005, c2: NonNegative = 0.002) -> Control:
    """Return the bonus; coefficients are per nat."""
    off = c1 == c2 == 0

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        if off:
            return terms
        place = torch.arange(batch.n_slots) - torch.searchsorted(batch.path, batch.path)
        behind = place >= batch.turns.columns[COLUMN][batch.row]
        second = batch.at.step >= first * batch.at.steps
        return replace(
            terms, entropy_coef=terms.entropy_coef + torch.where(behind & second, c2, c1)
        )

    needs = Needs() if off else Needs(entropy_grad=True, columns={COLUMN: reflects})
    return Control(name="aepo-he", needs=needs, shape=shape)


def reflects(tree: Tree) -> list[float]:
    """Return of each leaf how many drawn tokens of its path come before a cue; inf where there is none."""
    found = []
    for leaf in tree.leaves:
        before, at = 0, inf
        for node in tree.replies(leaf):
            turn, drawn = tree.turns[node], int(tree.turns[node].sampled.sum())
            if at == inf and (cue := CUES.search(turn.text)):
                at = before + round(drawn * cue.start() / len(turn.text))
            before += drawn
        found.append(float(at))
    return found
