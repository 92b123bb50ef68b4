"""SEED-GRPO (arXiv 2505.12346): a task whose answers are semantically spread moves the policy less.

Knob: advantage. Semantic entropy of a group's answers says how much the policy knows of the task.

    A ← A·f,  f = 1/(1 + a·SE), a = scale/ln G,  SE = -mean over different answers of ln of their probability

Defaults: scale 0.0417: a secondary report.
Evidence: C. SE is the paper's, with probabilities of sequences normalised over the group; f is not defined there.
Deviations: equality by the environment's grader stands for entailment. Name it behind grpo:normalize=none.
Off: scale 0.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log
from statistics import mean

from ....agents.evaluation.votes import Same
from ...control.parameters import NonNegative, checked
from ...data.packing import Vote
from ..base import Batch, Control, Needs, Now, State, Terms, Tree, replace
from ..reward.empo import answers

SPREAD = "seed-grpo"


@checked
def seed_grpo(*, scale: NonNegative = 0.0417) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        factor = 1 / (1 + scale * batch.turns.columns[SPREAD][batch.row].to(terms.advantage))
        return replace(terms, advantage=terms.advantage * factor)

    return Control(
        name="seed-grpo", needs=Needs(columns={SPREAD: spread} if scale else {}), shape=shape
    )


@Vote
def spread(tree: Tree, same: Same) -> list[float]:
    """Return SE / ln G of a tree, for each leaf."""
    found = answers(tree, same)
    turns = [[tree.turns[node] for node in tree.replies(tree.leaves[place])] for place, _ in found]
    logp = [sum(float(turn.logp_roll[turn.sampled].sum()) for turn in path) for path in turns]
    value = (
        semantic(logp, [answer for _, answer in found]) / log(len(found)) if len(found) > 1 else 0.0
    )
    return [value] * len(tree.leaves)


def semantic(logp: Sequence[float], answers: Sequence[object]) -> float:
    """Return SE (nats) of sequences with these log-probabilities: minus the mean of ln p over different answers."""
    share = [exp(own - max(logp)) for own in logp]
    mass = defaultdict[object, float](float)
    for answer, own in zip(answers, share):
        mass[answer] += own / sum(share)
    return -mean(log(max(p, 1e-300)) for p in mass.values())
