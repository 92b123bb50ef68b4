"""What a step measured, on policy tokens only; a token shared by several paths counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..agents.phases import PHASES
from ..agents.trajectory import ROLES, Tree
from ..envs import Outcome
from .aggregate import average
from .calls import calls, share
from .columns import Batch
from .control import Stats
from .forks import forks


def stats(step: int, batch: Batch, trees: Sequence[Tree]) -> Stats:
    """Return the statistics of a rollout."""
    leaves = [leaf for tree in trees for leaf in tree.leaves if leaf.learned]
    every = torch.ones_like(batch.share, dtype=torch.bool)
    return Stats(
        step=step,
        phase="rollout",
        entropy=_mean(batch, every, batch.entropy),
        entropy_turns=tuple(_mean(batch, where, batch.entropy) for where in _turns(batch)),
        entropy_phases={name: _mean(batch, where, batch.entropy) for name, where in _phases(batch)},
        entropy_nested=float(average("turn-mean", batch.entropy, batch)),
        entropy_sampled=_mean(batch, every, -batch.logp_old),
        reward=share(sum(leaf.score for leaf in leaves), len(leaves)),
        success=share(sum(leaf.score >= 1 for leaf in leaves), len(leaves)),
        scores={(*tree.key, leaf.branch): leaf.score for tree in trees for leaf in tree.leaves if leaf.learned},
        extras=dict(_by_outcome(batch)),
    )


def counts(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return how much was rolled out: paths by outcome, tokens by span, turns, groups that teach nothing, calls, forks.

    The span `prompt` is all that opens an episode; other given tokens are of who spoke after it, with their template.
    silent_groups: share of groups whose paths that are learned from all have one score, of those that have such paths.
    """
    leaves = [leaf for tree in trees for leaf in tree.leaves]
    turns = [turn for tree in trees for turn in tree.turns]
    given = dict.fromkeys(("prompt", *ROLES), 0)
    for turn in turns:
        given["prompt" if turn.parent < 0 else turn.role] += int((~turn.sampled[turn.copied :]).sum())
    scores = [len({leaf.score for leaf in tree.leaves if leaf.learned}) for tree in trees]
    return {
        "groups": len(trees),
        "paths": len(leaves),
        **{f"paths/{outcome}": sum(leaf.outcome is outcome for leaf in leaves) for outcome in Outcome},
        "tokens": sum(int(turn.sampled[turn.copied :].sum()) for turn in turns),
        **{f"tokens_given/{span}": count for span, count in given.items()},
        "turns": share(sum(turn.role == "assistant" for turn in turns), len(leaves)),
        "silent_groups": share(sum(found == 1 for found in scores), sum(found > 0 for found in scores)),
        **calls(trees),
        **forks(trees),
    }


def _by_outcome(batch: Batch) -> Iterator[tuple[str, float]]:
    """Yield entropy, its token means by turn and by phase too, on paths that succeeded (score at least 1) and others.

    A token weighs the share of its paths that are of the outcome; nothing is told of what no token is there for.
    """
    won = batch.turns.score[batch.row] >= 1
    parts = [
        ("entropy_{}", torch.ones_like(won)),
        *((f"entropy_turn_{{}}/{turn}", where) for turn, where in enumerate(_turns(batch))),
        *((f"entropy_phase_{{}}/{name}", where) for name, where in _phases(batch)),
    ]
    for outcome, paths in (("success", won), ("failure", ~won)):
        for name, where in parts:
            if bool((paths & where).any()):
                yield name.format(outcome), _mean(batch, paths & where, batch.entropy)


def _turns(batch: Batch) -> list[Bool[Tensor, "s"]]:
    """Return the slots of each of the agent's turns."""
    turn = batch.turn
    return [turn == number for number in range(int(turn.max()) + 1 if batch.n_slots else 0)]


def _phases(batch: Batch) -> Iterator[tuple[str, Bool[Tensor, "s"]]]:
    """Yield the slots of each phase that has any."""
    for number, name in enumerate(PHASES):
        if bool((where := batch.phase == number).any()):
            yield name, where


def _mean(batch: Batch, where: Bool[Tensor, "s"], values: Float[Tensor, "s"]) -> float:
    weight = batch.share[where]
    return float((weight * values[where]).sum() / weight.sum()) if weight.numel() else nan
