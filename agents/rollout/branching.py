"""Branching: points of a growing tree at which a plan may ask for more rollouts, and what it asks for.

A tree has a budget of trained paths. It grows in rounds: each path takes one turn, then the plan is asked about every
path in the order of their numbers, so what is asked and granted does not depend on who was fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..trajectory import Key, Tree


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
    trained: False for a probe, which takes nothing of the budget and is not learned from
    """

    node: int
    token: int = 0
    n: int = 1
    temperature: float | None = None
    forced_token: int | None = None
    max_tokens: int | None = None
    trained: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be grown."""
        for name, value, least in (("node", self.node, 0), ("token", self.token, 0), ("n", self.n, 1)):
            if value < least:
                raise ValueError(f"Spawn.{name} is {value}; it must be at least {least}")


Plan = Callable[[Tree, Event, Key], list[Spawn]]
"""A rule that answers an event. Spawns beyond the budget are not granted; what an idle tree has left of it is spent at
the prompt, unless the rule asks for something else."""
