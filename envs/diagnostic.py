"""Diagnostic worlds: small text environments that each isolate one thing a control of entropy has to get right.

They are `LateBloomer-v0`, `UselessChoice-v0`, `ManyWays-v0`, `Distractor-v0`, made of tables: states, the words that
count in each, and where they lead. In a state the agent is shown a word and says one. A right word leads on, and the
last one earns 1; any other word ends the episode with 0. Where `hidden` is 0 the right word is the one that is shown:
the state asks for a copy. Else so many of the words are right, drawn by the task and never shown: the agent can only
guess.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .outcomes import Reply, StopReason
from .tasks import choose_index, strict
from .text_env import TextEnv

START, WON, LOST, INVALID = "start", "won", "lost", "invalid"
COLOURS = ("red", "blue", "green")
DOORS = ("north", "south", "east", "west", "up", "down")
IDLE = ("wait", "look", "hum", "nod")
NOUNS = (
    "alpha",
    "bravo",
    "delta",
    "gamma",
    "hotel",
    "india",
    "kilo",
    "lima",
    "oscar",
    "papa",
    "sierra",
    "tango",
)


@dataclass(frozen=True)
class DiagnosticState:
    """What is shown (the task draws one of `shows`), the words that count here, and where they lead."""

    shows: tuple[str, ...]
    offers: tuple[str, ...]
    to: str = ""  # the state that a right word leads to; empty where no word is right
    hidden: int = (
        0  # right words that the task draws among `offers`; 0: the word shown is the right one
    )
    leads: Mapping[str, str] = field(
        default_factory=dict
    )  # other words that lead somewhere, and where

    @property
    def copies(self) -> bool:
        """Whether the right word is the one that is shown."""
        return bool(self.to) and not self.hidden

    @property
    def chance(self) -> float:
        """The best chance of saying a right word."""
        return self.hidden / len(self.offers) if self.hidden else 1.0

    def draws(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield each word that may be shown with each set of words that may be right."""
        for shown in self.shows:
            for right in combinations(self.offers, self.hidden) if self.hidden else ((shown,),):
                yield shown, frozenset(right if self.to else ())


@dataclass(frozen=True)
class DiagnosticWorld:
    """States by name, the first of them `start`."""

    name: str
    states: Mapping[str, DiagnosticState]
    turns: int  # agent's turns that the shortest way to success takes, which is the limit
    tool: str = "ask"  # the word of the first state whose fate is watched; empty where none is better than the others
    free: bool = (
        False  # whether an action may go on behind its first word with a text that means nothing
    )

    @cached_property
    def draws(self) -> dict[str, list[tuple[str, frozenset[str]]]]:
        """What a task may draw in each state."""
        return {name: list(state.draws()) for name, state in self.states.items()}

    def __len__(self) -> int:
        return math.prod(map(len, self.draws.values()))

    @cached_property
    def order(self) -> list[int]:
        """The combinations in an order of their own, so that every share of the tasks has all words."""
        return [int(i) for i in np.random.default_rng(0).permutation(len(self))]

    def task(self, index: int) -> dict[str, tuple[str, frozenset[str]]]:
        """Return what the task `index` shows in each state, and which words are right there."""
        place, drawn = self.order[index], {}
        for name, choices in self.draws.items():
            place, at = divmod(place, len(choices))
            drawn[name] = choices[at]
        return drawn

    def best(self, state: str = START, turns: int | None = None) -> float:
        """Return the highest chance of success from a state, for an agent that cannot see what is hidden."""
        turns = self.turns if turns is None else turns
        if state == WON or not turns:
            return float(state == WON)
        here = self.states[state]
        ways = [here.chance * self.best(here.to, turns - 1)] if here.to else []
        return max([*ways, *(self.best(to, turns - 1) for to in set(here.leads.values()))])


@dataclass(frozen=True)
class Start:
    """What a policy says in each state before it learns, as a table, which a warm-up imitates.

    A world alone isolates nothing: that a tool is dropped before it is mastered takes a policy that seldom uses it and
    uses it badly. The chances are those of the tool, of knowing which word to copy, of an idle word, and of a token
    drawn from all, evenly.
    """

    tool: float = 0.15
    skill: float = 0.4
    idle: float = 0.2
    noise: float = 0.02

    def says(self, world: DiagnosticWorld, state: DiagnosticState, shown: str) -> dict[str, float]:
        """Return the chance of each word that counts in a state, without noise."""
        if world.tool in state.offers:
            others = [word for word in state.offers if word != world.tool]
            return {world.tool: self.tool, **dict.fromkeys(others, (1 - self.tool) / len(others))}
        if not state.copies:
            return dict.fromkeys(state.offers, 1 / len(state.offers))
        idle = self.idle if state.leads else 0.0
        blind = (1 - self.skill - idle) / len(state.shows)
        said = dict.fromkeys(state.shows, blind) | dict.fromkeys(
            state.leads, idle / max(len(state.leads), 1)
        )
        return said | {shown: blind + self.skill}

    def expects(self, world: DiagnosticWorld) -> dict[str, float]:
        """Return what this policy measures in a world. Tokens of noise count as invalid, of which few are not.

        Shares: `tool` in first turns (left out where there is none), `skill`, right words where one copies, `valid`
        turns, `success`; and `pass_at_8`.
        """
        kept = (
            1 - self.noise
        )  # the share of turns without noise in the word; the end of a turn has it, too
        kept *= kept

        def walk(
            at: str, left: int
        ) -> NDArray[np.float64]:  # the mean of turns, of valid turns and of success
            if at not in world.states or not left:
                return np.array([0.0, 0.0, at == WON])
            state = world.states[at]
            shown, right = next(state.draws())  # by symmetry all draws have the same chances
            sums = np.array([1.0, kept, 0.0])
            for word, chance in self.says(world, state, shown).items():
                if led := state.to if word in right else state.leads.get(word, ""):
                    sums += kept * chance * walk(led, left - 1)
            return sums

        turns, valid, success = walk(START, world.turns).tolist()
        copying = next(state for state in world.states.values() if state.copies)
        skill = kept * self.says(world, copying, copying.shows[0])[copying.shows[0]]
        found = {
            "skill": skill,
            "valid": valid / turns,
            "success": success,
            "pass_at_8": 1 - (1 - success) ** 8,
        }
        return found | ({"tool": kept * self.tool} if world.tool else {})


def _copying(links: int, idle: tuple[str, ...] = ()) -> dict[str, DiagnosticState]:
    """Return states in which `links` words are to be copied; a word of `idle` leads back to where it is said."""
    names = [f"copy-{i}" for i in range(1, links + 1)]
    return {
        name: DiagnosticState(NOUNS, (*NOUNS, *idle), to, leads=dict.fromkeys(idle, name))
        for name, to in zip(names, (*names[1:], WON), strict=True)
    }


def _bloomer(name: str, idle: tuple[str, ...] = (), free: bool = False) -> DiagnosticWorld:
    """Return a world of a sure third by guessing, and of a tool that pays in full once three words can be copied."""
    first = DiagnosticState(
        ("start",), ("guess", "ask"), leads={"guess": "colour", "ask": "copy-1"}
    )
    guess = DiagnosticState(("colour",), COLOURS, WON, hidden=1)
    return DiagnosticWorld(name, {START: first, "colour": guess, **_copying(3, idle)}, 4, free=free)


def _ways() -> DiagnosticWorld:
    """Return a world of six doors, of which each task leaves three open; behind each there are two words to copy."""
    first = DiagnosticState(("start",), DOORS, "copy-1", hidden=3)
    return DiagnosticWorld("many-ways", {START: first, **_copying(2)}, 3, tool="")


_ALL = (
    _bloomer("late-bloomer"),
    _bloomer("useless-choice", idle=IDLE),
    _ways(),
    _bloomer("distractor", free=True),
)
WORLDS = {world.name: world for world in _ALL}
_ENDS = {WON: StopReason.GOAL, LOST: StopReason.ANSWERED, INVALID: StopReason.NO_ANSWER}


class WorldEnv(TextEnv):
    """An episode in a world; success earns 1.

    `info` of a turn holds `state`, where it was taken, and `led`, what it led to: a state, `won`, `lost`, or `invalid`
    where the action is none of the words that count there.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"world", "tasks", "drawn"}

    def __init__(self, world: DiagnosticWorld, max_turns: int, size: int = 0) -> None:
        super().__init__(max_turns)
        self.world, self.tasks = world, range(min(size, len(world)) if size else len(world))
        self.state = START
        self.drawn: Mapping[str, tuple[str, frozenset[str]]] = {}

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        index = choose_index(rng, options, self.tasks)
        self.state, self.drawn, self.task_id = (
            START,
            self.world.task(index),
            f"{self.world.name}-{index}",
        )
        return self.drawn[START][0]

    def on_step(self, text: str) -> Reply:
        before, here = self.state, self.world.states[self.state]
        word = text.partition(" ")[0] if self.world.free else text
        self.state = INVALID
        if word in here.offers:
            self.state = here.to if word in self.drawn[before][1] else here.leads.get(word, LOST)
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


def _maker(name: str) -> Callable[..., WorldEnv]:
    def make(max_turns: int = WORLDS[name].turns) -> WorldEnv:
        return WorldEnv(WORLDS[name], max_turns)

    make.__name__ = f"make_{name.replace('-', '_')}"
    return strict(make)


# A tool that pays only once it is mastered, beside a guess that pays a third from the start; the same with words that
# are allowed while copying, lead back to the same word and cost a turn; the first with free text behind every action.
make_late_bloomer, make_useless_choice, make_distractor = map(
    _maker, ("late-bloomer", "useless-choice", "distractor")
)


@strict
def make_many_ways(max_turns: int = WORLDS["many-ways"].turns, size: int = 0) -> WorldEnv:
    """Make the world of six doors that are equally good, of which every task leaves three open.

    With a `size` there are only so many tasks, whose doors are open more or less often.
    """
    if size < 0:
        raise ValueError(f"size is {size}; give a number of tasks, or 0 for all there are")
    return WorldEnv(WORLDS["many-ways"], max_turns, size)
