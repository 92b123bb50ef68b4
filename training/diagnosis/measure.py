"""What a policy does in a diagnostic world: counted from episodes that it plays, or from those it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from ...agents import evaluate
from ...agents.journal import read_trees
from ...agents.scores import pass_at_k
from ...agents.settings import SamplingOptions
from ...agents.trajectory import Tree
from ...envs.diagnostic import World
from .cases import Case

TASKS, SAMPLES = 128, 8  # of a measurement at temperature 1: 1,024 episodes


@dataclass(frozen=True)
class Measured:
    """Shares, None where there was nothing to count; `entropy` is the token mean of each turn (nats).

    tool: first turns with the world's tool
    skill: right words among turns in which one copies
    valid: turns whose action counts where it was said
    pass_at_8: chance that one of 8 episodes of a task succeeds; None of fewer
    """

    episodes: int
    tool: float | None
    skill: float | None
    valid: float
    success: float
    pass_at_8: float | None
    entropy: list[float]

    @classmethod
    def of(cls, trees: Sequence[Tree], world: World) -> Self:
        """Count what the paths of some trees did; a turn that paths share counts once."""
        turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
        paths = [[tree.turns[node] for node in tree.replies(leaf)] for tree in trees for leaf in tree.leaves]
        states = [world.states[turn.info["state"]] for turn in turns]
        copies = [turn.info["led"] == state.to for turn, state in zip(turns, states, strict=True) if state.copies]
        won = [[leaf.score >= 1 for leaf in tree.leaves] for tree in trees]
        depth = range(max(map(len, paths)))
        tokens = [np.concatenate([path[i].entropy[path[i].sampled] for path in paths if len(path) > i]) for i in depth]
        tools = sum(path[0].text.partition(" ")[0] == world.tool for path in paths)
        return cls(
            episodes=len(paths),
            tool=tools / len(paths) if world.tool else None,
            skill=sum(copies) / len(copies) if copies else None,
            valid=sum(turn.info["valid"] for turn in turns) / len(turns),
            success=sum(map(sum, won)) / len(paths),
            pass_at_8=fmean(pass_at_k(len(w), sum(w), 8) for w in won) if min(map(len, won)) >= 8 else None,
            entropy=[float(found.mean()) for found in tokens],
        )


def solved(case: Case, found: Measured) -> bool:
    """Return whether a policy that measures so has solved its world."""
    return found.success >= case.success and (found.pass_at_8 or 0.0) >= case.pass_at_8


def play(case: Case, policy: Path, seed: int, samples: int = SAMPLES, temperature: float = 1.0) -> Measured:
    """Return what the policy of a model or run folder does in held-out tasks. Raises as `evaluate.prepare` does."""
    with TemporaryDirectory() as folder:
        drawn = SamplingOptions(case.max_tokens, temperature)
        opened = partial(evaluate.prepare, case.env, {"split": "test"}, str(policy), sampling=drawn, seed=seed)
        evaluate.run(opened(episodes=TASKS, samples=samples, out=Path(folder)))
        return Measured.of(list(read_trees(Path(folder) / evaluate.TREES)), case.world)


def curve(case: Case, run: Path) -> list[dict[str, Any]]:
    """Return of each step of a run what its rollout did: the fields of `Measured`."""
    steps = sorted((run / "trees").glob("step-*.jsonl"))
    return [asdict(Measured.of(list(read_trees(path)), case.world)) for path in steps]
