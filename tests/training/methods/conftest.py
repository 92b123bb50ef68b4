"""Trees for methods that branch: written by hand, or grown by the real scheduler from random talk."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.engine import Sampling
from turngym.agents.models.resolve import TINY
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome, Reply, StopReason, TextEnv
from turngym.tests.support.scripted_engine import ScriptedEngine
from turngym.training.control.control import Control

WORDS = ("yes", "no", "why not", "go on and on", "stop it now please")


class Talk(TextEnv):
    """Answers anything; an episode has one to `most` turns, as its texts decide, and a score that they decide, too."""

    def __init__(self, most: int = 4) -> None:
        super().__init__(max_turns=9)
        self.most, self.told = most, list[str]()

    @property
    def tasks(self) -> range:
        return range(100)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self.told, self.task_id = [], f"talk-{options['task']}"
        return f"begin {options['task']}"

    def on_step(self, text: str) -> Reply:
        self.told.append(text)
        dice = sha256("|".join(self.told).encode()).digest()
        over = len(self.told) == self.most or dice[1] < 40
        return Reply(
            f"heard {dice[2]}", reward=dice[0] % 3 / 2, stop=StopReason.ANSWERED if over else None
        )


def written(
    paths: Sequence[Sequence[Sequence[float]]], scores: Sequence[float] | None = None
) -> Tree:
    """Return a tree of paths from the prompt: of each agent turn the entropies of its tokens, answers in between."""
    tree = Tree((0, 0, 0), 0, "written", [Turn.unsampled(-1, "user", "?", np.zeros(2, np.int32))])
    for branch, turns in enumerate(paths):
        node = 0
        for entropies in turns:
            if node:
                node = tree.add(Turn.unsampled(node, "tool", "!", np.zeros(3, np.int32)))
            node = tree.add(drawn(node, entropies))
        score = 0.0 if scores is None else scores[branch]
        tree.leaves.append(Leaf(node, branch, Outcome.DONE, "answered", score))
    return tree


def drawn(parent: int, entropies: Sequence[float]) -> Turn:
    """Return an agent's turn."""
    entropy = np.array(entropies, np.float32)
    count = len(entropies)
    return Turn(
        parent,
        "assistant",
        "said",
        np.zeros(count, np.int32),
        np.ones(count, np.bool_),
        -entropy,
        entropy,
        ended="end",
    )


@pytest.fixture(scope="session")
def tree_of() -> Callable[..., Tree]:
    return written


@pytest.fixture(scope="session")
def turn_of() -> Callable[..., Turn]:
    return drawn


@pytest.fixture(scope="session")
def grow() -> Callable[..., list[Tree]]:
    """Return the trees that a control grows: `grow(control, group, most=4, tasks=12, **options of collect)`."""
    chat = Chat.from_folder(TINY)
    actor = Actor(
        ScriptedEngine(chat, lambda heard, rng: str(rng.choice(WORDS))), chat, chat.end_ids
    )

    def grown(
        control: Control, group: int, most: int = 4, tasks: int = 12, **options: Any
    ) -> list[Tree]:
        plan = control.plan and (
            lambda tree, event, key: control.plan(tree, event, key, control.init())
        )
        given = {"key": (1, 2), "sampling": Sampling(), **options}
        return collect(actor, Talk(most), range(tasks), group=group, plan=plan, **given)

    return grown
