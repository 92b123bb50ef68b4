"""The environments of the diagnostic worlds: a word is shown, and the agent's action is a word."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..core import Reply, StopReason, TextEnv
from ..tasks import choose_index, strict
from .worlds import INVALID, LOST, START, WON, WORLDS, World

_ENDS = {WON: StopReason.GOAL, LOST: StopReason.ANSWERED, INVALID: StopReason.NO_ANSWER}


class WorldEnv(TextEnv):
    """An episode in a world; success earns 1.

    `info` of a turn holds `state`, where it was taken, and `led`, what it led to: a state, `won`, `lost`, or `invalid`
    where the action is none of the words that count there.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"world", "tasks", "drawn"}

    def __init__(self, world: World, max_turns: int, size: int = 0) -> None:
        super().__init__(max_turns)
        self.world, self.tasks = world, range(min(size, len(world)) if size else len(world))
        self.state = START
        self.drawn: Mapping[str, tuple[str, frozenset[str]]] = {}

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Begin a task: what it draws is fixed by its number."""
        index = choose_index(rng, options, self.tasks)
        self.state, self.drawn, self.task_id = START, self.world.task(index), f"{self.world.name}-{index}"
        return self.drawn[START][0]

    def on_step(self, text: str) -> Reply:
        before, self.state = self.state, self._led(text)
        info, stop = {"state": before, "led": self.state}, _ENDS.get(self.state)
        shown = "" if stop else self.drawn[self.state][0]
        return Reply(shown, float(self.state == WON), stop, info=info, valid=self.state != INVALID)

    def gold(self) -> list[str]:
        """Return the shortest way to success from here: the first right word, or a word that leads to one."""
        words, at = [], self.state
        while at not in _ENDS:
            here, right = self.world.states[at], self.drawn[at][1]
            leads = dict.fromkeys(sorted(right), here.to) | (dict(here.leads) if not right else {})
            word, at = max(leads.items(), key=lambda lead: self.world.best(lead[1]))
            words.append(word)
        return words

    def _led(self, text: str) -> str:
        here, word = self.world.states[self.state], text.partition(" ")[0] if self.world.free else text
        if word not in here.offers:
            return INVALID
        if word in self.drawn[self.state][1]:
            return here.to
        return here.leads.get(word, LOST)


@strict
def make_late_bloomer(max_turns: int = WORLDS["late-bloomer"].turns) -> WorldEnv:
    """Make the world of a tool that pays only once it is mastered, beside a guess that pays a third from the start."""
    return WorldEnv(WORLDS["late-bloomer"], max_turns)


@strict
def make_useless_choice(max_turns: int = WORLDS["useless-choice"].turns) -> WorldEnv:
    """Make the late bloomer with words that are allowed while copying, lead back to the same word and cost a turn."""
    return WorldEnv(WORLDS["useless-choice"], max_turns)


@strict
def make_many_ways(max_turns: int = WORLDS["many-ways"].turns, size: int = 0) -> WorldEnv:
    """Make the world of six doors that are equally good, of which every task leaves three open.

    With a `size` there are only so many tasks, whose doors are open more or less often.
    """
    if size < 0:
        raise ValueError(f"size is {size}; give a number of tasks, or 0 for all there are")
    return WorldEnv(WORLDS["many-ways"], max_turns, size)


@strict
def make_distractor(max_turns: int = WORLDS["distractor"].turns) -> WorldEnv:
    """Make the late bloomer in which every action may go on with a free text that means nothing."""
    return WorldEnv(WORLDS["distractor"], max_turns)
