"""What trained policies do in the end: counted from episodes that they play, or from those they were trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from ...agents.cli.settings import SamplingOptions
from ...agents.evaluation import run as evaluate
from ...agents.evaluation.results import TREES
from ...agents.evaluation.scores import pass_at_k
from ...agents.journal.trees import read_trees
from ...agents.trajectory import Tree
from ...envs.diagnostic import DiagnosticWorld
from ...envs.question.env import QuestionEnv

EPISODES, SAMPLES = 1024, 8  # of a measurement at temperature 1; of each task


@dataclass(frozen=True)
class Measured:
    """Shares, None where there was nothing to count; `entropy` is the token mean of each turn (nats).

    tool: first turns with the world's tool; elsewhere episodes with a call
    skill: right words among turns in which one copies
    valid: turns whose action counts where it was said
    pass_at_8: chance that one of 8 episodes of a task succeeds; None of fewer
    """

    episodes: int
    tool: float | None
    skill: float | None
    valid: float | None
    success: float
    pass_at_8: float | None
    entropy: list[float]

    @classmethod
    def of(
        cls, trees: Sequence[Tree], world: DiagnosticWorld | None = None, tools: bool = False
    ) -> Self:
        """Count what paths with a score did; shared turns count once. Raises ValueError where there is none."""
        leaves = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.rewarded]
        if not leaves:
            raise ValueError(
                "no episode of the final validation has a score; continue with --resume to play it again"
            )
        turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
        paths = [[tree.turns[node] for node in tree.replies(leaf)] for tree, leaf in leaves]
        won = [[leaf.score >= 1 for leaf in tree.leaves if leaf.rewarded] for tree in trees]
        said = [turn.info["valid"] for turn in turns if isinstance(turn.info.get("valid"), bool)]
        copying = [
            (turn, state)
            for turn in turns
            if world and (state := world.states[turn.info["state"]]).copies
        ]
        depth = range(max(map(len, paths)))
        tokens = [
            np.concatenate([path[i].entropy[path[i].sampled] for path in paths if len(path) > i])
            for i in depth
        ]
        if world:
            called = (
                [path[0].text.partition(" ")[0] == world.tool for path in paths]
                if world.tool
                else []
            )
        else:
            called = (
                [any("tool_status" in turn.info for turn in path) for path in paths]
                if tools
                else []
            )
        return cls(
            episodes=len(paths),
            tool=_share(called),
            skill=_share([turn.info["led"] == state.next_state for turn, state in copying]),
            valid=_share(said),
            success=sum(map(sum, won)) / len(paths),
            pass_at_8=fmean(pass_at_k(len(w), sum(w), 8) for w in won)
            if min(map(len, won)) >= 8
            else None,
            entropy=[float(found.mean()) for found in tokens],
        )


@dataclass(frozen=True)
class Final:
    """What a trained policy is measured on, and when its task counts as solved: by at least these shares."""

    episodes: int = EPISODES  # at temperature 1, `SAMPLES` or more of a task; 0: it is not measured
    success: float = 0.8
    pass_at_8: float = 0.0
    world: DiagnosticWorld | None = None

    @property
    def file(self) -> str:
        """The file of a run folder with what was measured, which is written last."""
        return "diagnosis.json" if self.world else "final.json"

    def solved(self, found: Measured) -> bool:
        return found.success >= self.success and (found.pass_at_8 or 0.0) >= self.pass_at_8

    def play(
        self, env: str, options: Mapping[str, Any], policy: Path, greedy: bool = False, **given: Any
    ) -> Measured:
        """Return what the policy of a model or run folder does; `greedy` is one episode of each task at temperature 0.

        `given` are arguments of `evaluate.prepare`, with `max_tokens` in place of its `sampling`. Raises as it does.
        """
        drawn = SamplingOptions(given.pop("max_tokens"), 0.0 if greedy else 1.0)
        with TemporaryDirectory() as folder:
            opened = partial(
                evaluate.prepare,
                env,
                options,
                str(policy),
                sampling=drawn,
                out=Path(folder),
                **given,
            )
            found = opened(episodes=-(-self.episodes // SAMPLES), samples=1 if greedy else SAMPLES)
            if not greedy:  # a small task set is played more often
                samples = max(SAMPLES, -(-self.episodes // len(found.tasks)))
                found = replace(found, samples=samples)
            evaluate.run(found)
            tools = isinstance(found.env, QuestionEnv) and bool(len(found.env.toolbox))
            return Measured.of(list(read_trees(Path(folder) / TREES)), self.world, tools)

    def curve(self, run: Path) -> list[dict[str, Any]]:
        """Return of each step of a run what its rollout did: the fields of `Measured`."""
        steps = sorted((run / "trees").glob("step-*.jsonl"))
        return [asdict(Measured.of(list(read_trees(path)), self.world)) for path in steps]


def _share(of: Sequence[bool]) -> float | None:
    return sum(of) / len(of) if of else None
