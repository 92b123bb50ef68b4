"""What a step measured, on policy tokens only; a token shared by several paths counts once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..agents.trajectory import ROLES, Tree
from ..envs import Outcome
from .aggregate import average
from .columns import Batch
from .control import Stats


def stats(step: int, batch: Batch, trees: Sequence[Tree]) -> Stats:
    """Return the statistics of a rollout."""
    leaves = [leaf for tree in trees for leaf in tree.leaves if leaf.rewarded]
    turns = int(batch.turn.max()) + 1 if batch.n_slots else 0
    return Stats(
        step=step,
        phase="rollout",
        entropy=_mean(batch, torch.ones_like(batch.share, dtype=torch.bool), batch.entropy),
        entropy_turns=tuple(_mean(batch, batch.turn == turn, batch.entropy) for turn in range(turns)),
        entropy_nested=float(average("turn-mean", batch.entropy, batch)),
        entropy_sampled=_mean(batch, torch.ones_like(batch.share, dtype=torch.bool), -batch.logp_old),
        reward=sum(leaf.score for leaf in leaves) / max(len(leaves), 1),
        success=sum(leaf.score >= 1 for leaf in leaves) / max(len(leaves), 1),
    )


def counts(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return how much was rolled out: paths by outcome, tokens by span, turns, calls, groups that teach nothing.

    The span `prompt` is all that opens an episode; other given tokens are of who spoke after it, with their template.
    """
    leaves = [leaf for tree in trees for leaf in tree.leaves]
    turns = [turn for tree in trees for turn in tree.turns]
    given = dict.fromkeys(("prompt", *ROLES), 0)
    for turn in turns:
        given["prompt" if turn.parent < 0 else turn.role] += int((~turn.sampled).sum())
    same = sum(len({leaf.score for leaf in tree.leaves if leaf.rewarded}) < 2 for tree in trees)
    tools = [turn.info["tool_status"] for turn in turns if "tool_status" in turn.info]
    return {
        "groups": len(trees),
        "paths": len(leaves),
        **{f"paths/{outcome}": sum(leaf.outcome is outcome for leaf in leaves) for outcome in Outcome},
        "tokens": sum(int(turn.sampled.sum()) for turn in turns),
        **{f"tokens_given/{span}": count for span, count in given.items()},
        "turns": sum(turn.role == "assistant" for turn in turns) / max(len(leaves), 1),
        "tool_calls": len(tools),
        "tool_ok": sum(status == "ok" for status in tools) / max(len(tools), 1),
        "used_tool": sum(bool(leaf.info.get("used_tool")) for leaf in leaves) / max(len(leaves), 1),
        "silent_groups": same / max(len(trees), 1),
    }


def _mean(batch: Batch, where: torch.Tensor, values: torch.Tensor) -> float:
    weight = batch.share[where]
    return float((weight * values[where]).sum() / weight.sum()) if weight.numel() else 0.0
