"""The diagnostic worlds as tables: states, the words that count in each, and where they lead.

In a state the agent is shown a word and says one. A right word leads on, and the last one earns 1; any other word ends
the episode with 0. Where `hidden` is 0 the right word is the one that is shown, so that the state asks for a copy. Else
so many of the words are right, drawn by the task and never shown, so that the agent can only guess.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

START, WON, LOST, INVALID = "start", "won", "lost", "invalid"
COLOURS = ("red", "blue", "green")
DOORS = ("north", "south", "east", "west", "up", "down")
IDLE = ("wait", "look", "hum", "nod")
NOUNS = ("alpha", "bravo", "delta", "gamma", "hotel", "india", "kilo", "lima", "oscar", "papa", "sierra", "tango")


@dataclass(frozen=True)
class State:
    """What is shown (the task draws one of `shows`), the words that count here, and where they lead.

    to: the state that a right word leads to; empty where no word is right
    hidden: number of right words that the task draws among `offers`; 0 means that the word shown is the right one
    leads: other words that lead somewhere, and where
    """

    shows: tuple[str, ...]
    offers: tuple[str, ...]
    to: str = ""
    hidden: int = 0
    leads: Mapping[str, str] = field(default_factory=dict)

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
class World:
    """States by name, the first of them `start`.

    turns: agent's turns that the shortest way to success takes, which is the limit
    tool: the word of the first state whose fate is watched; empty where no word is better than the others
    free: whether an action may go on behind its first word with a text that means nothing
    """

    name: str
    states: Mapping[str, State]
    turns: int
    tool: str = "ask"
    free: bool = False

    @cached_property
    def draws(self) -> dict[str, list[tuple[str, frozenset[str]]]]:
        """What a task may draw in each state."""
        return {name: list(state.draws()) for name, state in self.states.items()}

    def __len__(self) -> int:
        """Return the number of tasks: every combination of what the states may draw."""
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


def _copying(links: int, idle: tuple[str, ...] = ()) -> dict[str, State]:
    """Return states in which `links` words are to be copied; a word of `idle` leads back to where it is said."""
    names = [f"copy-{i}" for i in range(1, links + 1)]
    return {
        name: State(NOUNS, (*NOUNS, *idle), to, leads=dict.fromkeys(idle, name))
        for name, to in zip(names, (*names[1:], WON), strict=True)
    }


def _bloomer(name: str, idle: tuple[str, ...] = (), free: bool = False) -> World:
    """Return a world of a sure third by guessing, and of a tool that pays in full once three words can be copied."""
    first = State(("start",), ("guess", "ask"), leads={"guess": "colour", "ask": "copy-1"})
    guess = State(("colour",), COLOURS, WON, hidden=1)
    return World(name, {START: first, "colour": guess, **_copying(3, idle)}, 4, free=free)


def _ways() -> World:
    """Return a world of six doors, of which each task leaves three open; behind each there are two words to copy."""
    first = State(("start",), DOORS, "copy-1", hidden=3)
    return World("many-ways", {START: first, **_copying(2)}, 3, tool="")


_ALL = (_bloomer("late-bloomer"), _bloomer("useless-choice", idle=IDLE), _ways(), _bloomer("distractor", free=True))
WORLDS = {world.name: world for world in _ALL}
