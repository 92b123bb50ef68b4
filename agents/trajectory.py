"""Rollouts as trees: every turn is stored once with its parent and holds only the tokens it adds.

Invariant: the tokens along root → leaf, concatenated, are exactly what the model saw; a GRPO group is a tree whose
branches start at the prompt. What a plan for branches is asked and may answer is here too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ..envs import Message, Outcome, StopReason, TextEnv, outcome_of

ROLES = ("system", "user", "assistant", "tool")
PHASES = (
    "think",
    "call",
    "answer",
)  # of an agent's turn: what it thinks, then a call or its answer
CLASSES = (
    "words",
    "format",
    "arguments",
)  # of tokens: what frames a call or a marked answer, what it hands over
NO_TOKENS = np.zeros(0, np.int32)
Key = tuple[int, ...]  # (seed, step, task), then branch, then turn: all randomness derives from it


@dataclass(frozen=True)
class Turn:
    """The tokens one speaker adds. Arrays are all `(n,)`; where `sampled` is False the statistics are 0."""

    parent: int  # index in `Tree.turns`; -1 for the root
    role: str
    text: str
    tokens: NDArray[np.int32]
    sampled: NDArray[np.bool_]  # True where the policy drew the token
    logp_roll: NDArray[np.float32]  # nats, the sampler's own
    entropy: NDArray[np.float32]  # nats, full vocabulary, temperature 1
    temperature: float = 1.0
    version: int = 0  # of the weights that drew the tokens
    ended: str = ""  # why drawing stopped: end, closer, length or context
    estimate: bool = (
        False  # whether `entropy` is the sampler's estimate from its most likely tokens
    )
    reward: float = 0.0  # what the environment paid for this turn
    thought: int = 0  # tokens before its call or answer
    values: tuple[int, int] | None = (
        None  # its tokens that are arguments of a call, or a marked answer
    )
    twin: int = (
        -1
    )  # the turn of another path whose first `copied` tokens this turn begins with; -1 for none
    copied: int = 0
    counted: int = 0  # tokens that a server says it drew, where it does not say which
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"Turn.role is {self.role!r}; a speaker is one of {', '.join(ROLES)}")
        for name in ("sampled", "logp_roll", "entropy"):
            shape = getattr(self, name).shape
            if shape != self.tokens.shape:
                raise ValueError(
                    f"Turn.{name} has shape {shape}, Turn.tokens has {self.tokens.shape}"
                )

    @classmethod
    def unsampled(cls, parent: int, role: str, text: str, tokens: NDArray[np.int32]) -> Self:
        """Return a turn of tokens that the policy did not draw."""
        zeros = np.zeros(len(tokens), np.float32)
        return cls(parent, role, text, tokens, zeros.astype(np.bool_), zeros, zeros)


def root_turn(observation: str, info: Mapping[str, Any], tokens: NDArray[np.int32]) -> Turn:
    """Return the root of a tree: what `reset` gave, and the tokens that its messages and tools became."""
    shown = {name: info[name] for name in ("messages", "tools", "category") if name in info}
    return replace(Turn.unsampled(-1, "user", observation, tokens), info=shown)


@dataclass(frozen=True)
class Leaf:
    """How one path ended. Only `done` and `truncated` paths have a score."""

    node: int  # index of its last turn
    branch: int
    outcome: Outcome
    stop: str
    score: float  # sum of the turns' rewards; NaN where an infrastructure failure left none
    info: Mapping[str, Any] = field(default_factory=dict)
    parent: int = -1  # the branch it was forked from; -1 where it begins at the prompt
    fork: int = 0  # the turn behind which it was forked, or within which where `token` is above 0
    token: int = 0
    trained: bool = True  # False for a probe, which is not learned from

    @classmethod
    def ended(
        cls, node: int, branch: int, stop: StopReason, score: float, info: Mapping[str, Any]
    ) -> Self:
        """Return the end of a path for the reason `stop`; `score` is forgotten where it was a failure."""
        return cls(
            node, branch, outcome_of(stop), str(stop), score if earns_reward(stop) else nan, info
        )

    @property
    def rewarded(self) -> bool:
        """Whether the path earned a score."""
        return self.outcome in (Outcome.DONE, Outcome.TRUNCATED)

    @property
    def learned(self) -> bool:
        """Whether the path is learned from: it earned a score and is no probe."""
        return self.rewarded and self.trained


@dataclass
class Tree:
    """A task's rollouts. `key` is (seed, step, task), from which all its randomness derives."""

    key: Key
    task: int
    task_id: str
    turns: list[Turn] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)

    def add(self, turn: Turn) -> int:
        """Append a turn and return its index; its parent must exist, so the list stays topologically sorted."""
        if not -1 <= turn.parent < len(self.turns):
            raise ValueError(
                f"Turn.parent is {turn.parent}; the tree has turns 0 to {len(self.turns) - 1}"
            )
        self.turns.append(turn)
        return len(self.turns) - 1

    def path(self, leaf: Leaf) -> list[int]:
        """Return the indices of the turns from the root to `leaf`."""
        nodes = [leaf.node]
        while self.turns[nodes[-1]].parent >= 0:
            nodes.append(self.turns[nodes[-1]].parent)
        return nodes[::-1]

    def tokens(self, leaf: Leaf) -> NDArray[np.int32]:
        """Return the tokens `(n,)` the model saw along the path to `leaf`."""
        return np.concatenate([self.turns[node].tokens for node in self.path(leaf)])

    def replies(self, leaf: Leaf) -> list[int]:
        return [node for node in self.path(leaf) if self.turns[node].role == "assistant"]

    def last_info(self, leaf: Leaf) -> dict[str, Any]:
        """Return what the environment last said of a path, also where its context was full before the end."""
        replies = self.replies(leaf)
        return {**(self.turns[replies[-1]].info if replies else {}), **leaf.info}

    def rewards(self, leaf: Leaf) -> tuple[dict[str, float], dict[str, float]]:
        """Return the named rewards that a path earned, and their weights; none where it earned no score."""
        info = self.last_info(leaf) if leaf.rewarded else {}
        rewards, weights = info.get("rewards"), info.get("weights")
        if not (
            isinstance(rewards, Mapping)
            and isinstance(weights, Mapping)
            and rewards.keys() == weights.keys()
        ):
            return {}, {}
        return dict(rewards), dict(weights)

    def drawers(self, node: int) -> NDArray[np.int64]:
        """Return for each token `(n,)` of a turn the turn that it was drawn in: another one where it was copied."""
        turn = self.turns[node]
        drawn_in = np.full(len(turn.tokens), node, np.int64)
        if turn.copied:
            drawn_in[: turn.copied] = self.drawers(turn.twin)[: turn.copied]
        return drawn_in

    def canonical(self) -> "Tree":
        """Return the same tree with turns in depth-first order of branches, whatever order they were written in."""
        order: dict[int, int] = {}
        tree = Tree(self.key, self.task, self.task_id)
        for leaf in sorted(self.leaves, key=lambda leaf: leaf.branch):
            for node in self.path(leaf):
                if node not in order:
                    turn = self.turns[node]
                    parent, twin = order.get(turn.parent, -1), order.get(turn.twin, -1)
                    moved = (parent, twin) != (turn.parent, turn.twin)
                    order[node] = tree.add(
                        replace(turn, parent=parent, twin=twin) if moved else turn
                    )
            tree.leaves.append(replace(leaf, node=order[leaf.node], fork=order[leaf.fork]))
        return tree


@dataclass(frozen=True)
class StepResult:
    """What an environment gave for one action; `reward` is NaN where `stop` names a failure."""

    messages: list[Message]
    reward: float
    stop: StopReason | None
    info: dict[str, Any]  # without what the other fields say


def step(env: TextEnv, text: str) -> StepResult:
    """Step an environment. A reward that is no number is an infrastructure failure; what it raises passes through."""
    _, reward, terminated, truncated, info = env.step(text)
    stop = StopReason(info["stop"]) if terminated or truncated else None
    if not isfinite(reward) and (stop is None or earns_reward(stop)):
        return failed_step({"error": f"the environment paid a reward of {reward}"})
    rest = {
        name: value for name, value in info.items() if name not in ("messages", "stop", "outcome")
    }
    return StepResult(info["messages"], reward, stop, rest)


def failed_step(info: Mapping[str, Any]) -> StepResult:
    """Return the result that stands for an infrastructure failure; `info` says which."""
    return StepResult([], nan, StopReason.INFRA_ERROR, dict(info))


def earns_reward(stop: StopReason) -> bool:
    """Return whether a path that stops so has earned its reward."""
    return outcome_of(stop) in (Outcome.DONE, Outcome.TRUNCATED)


@dataclass(frozen=True)
class Event:
    """A point of a growing tree at which a plan may ask for more rollouts.

    kind: "start" (only the prompt is there), "turn" (a turn and the answer to it ended), "end" (a path ended) or "idle"
        (every path ended)
    node: the last turn: the answer, or what the agent said where its path ended; 0, the prompt, for "start" and "idle"
    branch: the path it happened on; -1 for "start" and "idle"
    budget: trained paths that may still be asked for
    """

    kind: Literal["start", "turn", "end", "idle"]
    node: int
    branch: int
    budget: int


@dataclass(frozen=True)
class Spawn:
    """`n` new paths behind turn `node`; with a `token` above 0, behind the first `token` tokens of the agent's turn.

    max_tokens: most tokens of the first new turn, where less than the rollout's own
    forced_token: the first token of the new path, given instead of drawn
    temperature: of the first new turn; None leaves it to the rollout
    whole: whether temperature and max_tokens hold for all turns of the path, not only its first new one
    trained: False for a probe, which takes nothing of the budget and is not learned from
    """

    node: int
    token: int = 0
    n: int = 1
    temperature: float | None = None
    forced_token: int | None = None
    max_tokens: int | None = None
    trained: bool = True
    whole: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("node", self.node, 0),
            ("token", self.token, 0),
            ("n", self.n, 1),
        ):
            if value < least:
                raise ValueError(f"Spawn.{name} is {value}; it must be at least {least}")


Plan = Callable[[Tree, Event, Key], list[Spawn]]
"""A rule that answers an event. Spawns beyond the budget are not granted; what an idle tree has left of it is spent at
the prompt, unless the rule asks for something else."""
