"""What a step measured, on policy tokens only; a token shared by several paths counts once.

Of the rollout: entropies, outcomes, tool calls and branches. Of the update: importance ratios, clips and divergences,
computed once an optimizer step from all its slots, so how they were cut into micro-batches does not show.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import isfinite, nan
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from ...agents.trajectory import CLASSES, PHASES, ROLES, Leaf, Tree
from ...envs import Outcome
from ..control.control import Stats
from ..data.batch import Batch, Terms
from ..loss.aggregation import average
from ..loss.kl import k3, log_ratio
from .actions import acted

PERCENTILES = (5, 50, 95)
GRAM = 4  # tokens in a row that are looked for again
ENDS = ("", "_behind", "_inside")  # of forks: all, behind an answer, inside a turn


def stats(step: int, batch: Batch, trees: Sequence[Tree]) -> Stats:
    """Return the statistics of a rollout."""
    learned = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.learned]
    keys, scores = (
        [(*tree.key, leaf.branch) for tree, leaf in learned],
        [leaf.score for _, leaf in learned],
    )
    every = torch.ones_like(batch.share, dtype=torch.bool)
    turns, extras = acted(trees, batch)
    extras |= dict(chain(_by_kind(batch), _by_outcome(batch)))
    named = [tree.rewards(leaf)[0] for tree, leaf in learned]  # their sum is the reward
    for name in dict.fromkeys(name for rewards in named for name in rewards):
        extras[f"reward/{name}"] = fmean(rewards.get(name, 0.0) for rewards in named)
    return Stats(
        step=step,
        phase="rollout",
        entropy=_mean(batch, batch.entropy, every),
        entropy_turns=tuple(_mean(batch, batch.entropy, where) for where in _turns(batch)),
        entropy_phases={
            name: _mean(batch, batch.entropy, where) for name, where in _named(PHASES, batch.phase)
        },
        entropy_nested=float(average("turn-mean", batch.entropy, batch)),
        entropy_sampled=_mean(batch, -batch.logp_old, every),
        reward=share(sum(scores), len(scores)),
        success=share(sum(score >= 1 for score in scores), len(scores)),
        scores=dict(zip(keys, scores)),
        acted=turns,
        columns={
            name: {
                keys[path]: value for path, value in zip(batch.turns.path.tolist(), column.tolist())
            }
            for name, column in batch.turns.columns.items()
        },
        extras=extras,
    )


def counts(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return how much was rolled out: paths by outcome, tokens by span, turns, groups without a signal, calls, forks.

    The span `prompt` is all that opens an episode; other tokens that were not drawn belong to who spoke after it.
    silent_groups: share of groups whose paths that are learned from all have one score, of those with several of them
    turns/cut, turns/cut_paths: share of drawn turns that ended at the token limit, and of paths with such a turn
    turns/length: drawn tokens of a turn of the agent, mean
    repetition: share of the runs of `GRAM` drawn tokens that stood in the same turn before; NaN where none is so long
    """
    leaves = [leaf for tree in trees for leaf in tree.leaves]
    turns = [turn for tree in trees for turn in tree.turns]
    given = dict.fromkeys(("prompt", *ROLES), 0)
    for turn in turns:
        given["prompt" if turn.parent < 0 else turn.role] += int(
            (~turn.sampled[turn.copied :]).sum()
        )
    learned = [[leaf.score for leaf in tree.leaves if leaf.learned] for tree in trees]
    scores = [found for found in learned if len(found) > 1]  # a path alone is compared with nothing
    paths = [
        [tree.turns[node] for node in tree.replies(leaf)] for tree in trees for leaf in tree.leaves
    ]
    cut = [any(turn.ended == "length" for turn in path) for path in paths]
    drawn = [turn.tokens[turn.sampled] for turn in turns if turn.role == "assistant"]
    return {
        "groups": len(trees),
        "paths": len(leaves),
        **{
            f"paths/{outcome}": sum(leaf.outcome is outcome for leaf in leaves)
            for outcome in Outcome
        },
        "tokens": sum(int(turn.sampled[turn.copied :].sum()) for turn in turns),
        **{f"tokens_given/{span}": count for span, count in given.items()},
        "turns": share(sum(turn.role == "assistant" for turn in turns), len(leaves)),
        "turns/cut": share(
            sum(turn.ended == "length" for turn in turns), sum(turn.ended != "" for turn in turns)
        ),
        "turns/cut_paths": share(sum(cut), len(cut)),
        "turns/length": share(sum(map(len, drawn)), len(drawn)),
        "repetition": repetition(drawn),
        "silent_groups": share(sum(len(set(found)) == 1 for found in scores), len(scores)),
        **calls(trees),
        **forks(trees),
    }


def repetition(drawn: Iterable[NDArray[np.int32]]) -> float:
    """Return the share of the runs of `GRAM` tokens in some turns that stood in the same turn before; NaN without any.

    Texts that go round in circles come near 1 (rep-n of Welleck et al. 2020, arXiv 1908.04319, Sec. 6.1).
    """
    again = runs = 0
    for tokens in drawn:
        if len(tokens) >= GRAM:
            row = sliding_window_view(np.ascontiguousarray(tokens), GRAM)
            seen = np.unique(np.ascontiguousarray(row).view(f"V{row.itemsize * GRAM}"))
            runs, again = runs + len(row), again + len(row) - len(seen)
    return share(again, runs)


def _by_kind(batch: Batch) -> Iterator[tuple[str, float]]:
    """Yield token means: `extras/NAME` of what controls asked for, `entropy_class/CLASS` of classes with a token."""
    for name, column in batch.extras.items():
        if column.ndim == 1:
            yield f"extras/{name}", _mean(batch, column, batch.share > 0)
    for name, where in _named(CLASSES, batch.kind):
        yield f"entropy_class/{name}", _mean(batch, batch.entropy, where)


def _by_outcome(batch: Batch) -> Iterator[tuple[str, float]]:
    """Yield entropy, its token means by turn and by phase too, on paths that succeeded (score at least 1) and others.

    A token weighs the share of its paths that have the outcome; what has no token is left out.
    """
    won = batch.turns.score[batch.row] >= 1
    parts = [
        ("entropy_{}", torch.ones_like(won)),
        *((f"entropy_turn_{{}}/{turn}", where) for turn, where in enumerate(_turns(batch))),
        *((f"entropy_phase_{{}}/{name}", where) for name, where in _named(PHASES, batch.phase)),
    ]
    for outcome, paths in (("success", won), ("failure", ~won)):
        for name, where in parts:
            if bool((paths & where).any()):
                yield name.format(outcome), _mean(batch, batch.entropy, paths & where)


def _turns(batch: Batch) -> list[Bool[Tensor, "s"]]:
    return [
        batch.turn == number for number in range(int(batch.turn.max()) + 1 if batch.n_slots else 0)
    ]


def _named(
    names: Sequence[str], label: Int[Tensor, "s"]
) -> Iterator[tuple[str, Bool[Tensor, "s"]]]:
    for number, name in enumerate(names):
        if bool((where := label == number).any()):
            yield name, where


def _mean(batch: Batch, values: Float[Tensor, "s"], where: Bool[Tensor, "s"]) -> float:
    weight = batch.share[where]
    return float((weight * values[where]).sum() / weight.sum()) if weight.numel() else nan


def calls(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return call statistics; NaN where a denominator is 0.

    tool_calls: calls made, malformed ones among them; that of a shared turn is one
    tool_ok: share of them with the status ok
    tool_share: share of the agent's turns that call
    tool_calls_path: calls on a path that is learned from, mean over these paths
    distinct_calls: different sequences of (tool, tokens of the call) in a group, summed over groups, per such path
    used_tool: share of all paths whose answer is a result that a tool gave
    """
    turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
    made = [turn.info["tool_status"] for turn in turns if "tool_status" in turn.info]
    used = [bool(leaf.info.get("used_tool")) for tree in trees for leaf in tree.leaves]

    def sequence(tree: Tree, leaf: Leaf) -> tuple[tuple[str | None, bytes], ...]:
        own = (tree.turns[node] for node in tree.replies(leaf))
        return tuple(
            (t.info.get("tool"), t.tokens[t.thought :].tobytes())
            for t in own
            if "tool_status" in t.info
        )

    groups = [[sequence(tree, leaf) for leaf in tree.leaves if leaf.learned] for tree in trees]
    paths = sum(map(len, groups))
    on_paths = sum(len(sequence) for group in groups for sequence in group)
    return {
        "tool_calls": len(made),
        "tool_ok": share(sum(status == "ok" for status in made), len(made)),
        "tool_share": share(len(made), len(turns)),
        "tool_calls_path": share(on_paths, paths),
        "distinct_calls": share(sum(len(set(group)) for group in groups), paths)
        if on_paths
        else nan,
        "used_tool": share(sum(used), len(used)),
    }


def share(part: int | float, whole: int | float) -> float:
    """Return part / whole, NaN where that is 0 / 0."""
    return part / whole if whole else nan


def forks(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return branch statistics; paths that begin at the prompt are no forks.

    probes: paths that are grown to be looked at and not learned from
    forks, forks_behind, forks_inside: paths forked off others, all, behind an answer and inside a turn
    forks_turn/T: those whose first turn of their own is the agent's turn T, counted from 0; absent where there is none
    forks_gain, and the same with these ends: score less that of the path forked from, mean over forks where both are
        learned from; NaN, or absent for a turn, where there is none
    """
    gains: dict[str, list[float]] = {end: [] for end in ENDS}
    for turn, kind, gain in sorted(
        (fork for tree in trees for fork in _forks(tree)), key=lambda fork: fork[0]
    ):
        for end in ("", kind, f"_turn/{turn}"):
            gains.setdefault(end, []).append(gain)
    known = {end: [gain for gain in found if isfinite(gain)] for end, found in gains.items()}
    return {
        "probes": sum(not leaf.trained for tree in trees for leaf in tree.leaves),
        **{f"forks{end}": len(found) for end, found in gains.items()},
        **{
            f"forks_gain{end}": fmean(found) if found else nan
            for end, found in known.items()
            if found or end in ENDS
        },
    }


def _forks(tree: Tree) -> Iterator[tuple[int, str, float]]:
    scores = {leaf.branch: leaf.score for leaf in tree.leaves if leaf.learned}
    for leaf in (leaf for leaf in tree.leaves if leaf.parent >= 0):
        shared = replace(leaf, node=tree.turns[leaf.fork].parent if leaf.token else leaf.fork)
        gain = scores.get(leaf.branch, nan) - scores.get(leaf.parent, nan)
        yield len(tree.replies(shared)), "_inside" if leaf.token else "_behind", gain


@torch.no_grad()
def diagnose(logp: Float[Tensor, "s"], batch: Batch, terms: Terms) -> dict[str, float]:
    """Return statistics of an update whose policy gives the slots `logp` nats, NaN where that was not computed.

    clip_low, clip_high: share of slots whose token's ratio is past the bound that would hold it; paths that were not
        computed have nothing to hold
    kl_old, kl: mean over slots of logp_old - logp, and of k3 to the reference where there is one, nats
    ratio_p05, ratio_p50, ratio_p95: of exp(logp - logp_old) of the computed tokens, shared ones counted once
    log_ratio_max: largest |logp - logp_old|, nats
    weight, entropy_coef: means over slots of what the controls made of these terms; absent where they left all alone
    mismatch, mismatch_max: mean (tokens once) and largest |logp_old - logp_roll|, nats; absent where they are equal

    Clips and ratios also by the agent's turn, as in `clip_low_turn/0`; absent where no slot of it was computed.
    """
    found, gap = dict(_moved(logp, batch, terms)), (batch.logp_old - batch.logp_roll).abs()
    if bool((gap > 0).any()):
        found |= {
            "mismatch": float((batch.share * gap).sum() / batch.share.sum()),
            "mismatch_max": float(gap.max()),
        }
    return found


def _moved(logp: Float[Tensor, "s"], batch: Batch, terms: Terms) -> Iterator[tuple[str, float]]:
    known = ~logp.isnan()
    if not bool(known.any()):
        return
    yield "kl_old", float((batch.logp_old - logp)[known].sum()) / batch.n_slots
    if batch.logp_ref is not None:
        yield "kl", float(k3(logp, batch.logp_ref)[known].sum()) / batch.n_slots
    x = log_ratio(logp, batch.logp_old)
    low = (terms.advantage < 0) & (x.exp() < 1 - terms.clip_low)
    high = (terms.advantage > 0) & (x.exp() > 1 + terms.clip_high)
    _, first = np.unique(batch.token[known].numpy(), return_index=True)
    once = torch.zeros_like(known)  # whether a slot is the first of its token
    once[known.nonzero()[:, 0][torch.from_numpy(first)]] = True
    turns = (
        (f"_turn/{number}", batch.turn == number)
        for number in torch.unique(batch.turn[known]).tolist()
    )
    for end, where in (("", torch.ones_like(known)), *turns):
        yield f"clip_low{end}", float(low[where].double().mean())
        yield f"clip_high{end}", float(high[where].double().mean())
        moved = (logp - batch.logp_old)[once & where].double()
        ratios = np.percentile(x[once & where].double().exp().numpy(), PERCENTILES)
        yield from (
            (f"ratio_p{p:02}{end}", float(ratio))
            for p, ratio in zip(PERCENTILES, ratios, strict=True)
        )
        yield f"log_ratio_max{end}", float(moved.abs().max())
        if bool((terms.weight != 1).any()):
            yield f"weight{end}", float(terms.weight[where].double().mean())
        if bool((terms.entropy_coef != 0).any()):
            yield f"entropy_coef{end}", float(terms.entropy_coef[where].double().mean())
