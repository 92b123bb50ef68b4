"""The changing part of a house, as an immutable value, and the conditions of success on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class State(NamedTuple):
    """The state of a world.

    Things, receptacles and places are numbers of the world's tables; a set of them is an int whose bit `i` is set
    where `i` is in it.
    """

    place: int  # where the agent is
    held: int  # the thing in its hand, -1 for none
    inside: tuple[int, ...]  # for each receptacle the set of things in or on it
    around: tuple[
        int, ...
    ]  # for each thing the set of places it is known to be at (only `slice` and `look` ask for it)
    opened: int  # the receptacles that are open
    clean: int  # the things that were cleaned, and likewise below
    hot: int
    cool: int
    sliced: int
    toggled: int
    left: tuple[int, ...]  # for each receptacle the set of things that were taken from it and not put back


def members(set_: int) -> Iterator[int]:
    """Iterate over a set of numbers, in order."""
    while set_:
        lowest = set_ & -set_
        yield lowest.bit_length() - 1
        set_ ^= lowest


def changed(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Return `values` with `value` at `i`."""
    return (*values[:i], value, *values[i + 1 :])


@dataclass(frozen=True)
class Placed:
    """Enough things of a kind, in the wanted state, are in or on one receptacle of a kind."""

    things: int
    receptacles: tuple[int, ...]
    flags: tuple[str, ...]
    number: int

    def met(self, state: State) -> bool:
        things = self.things
        for flag in self.flags:
            things &= getattr(state, flag)
        if not things:
            return False
        inside, number = state.inside, self.number
        return any((inside[receptacle] & things).bit_count() >= number for receptacle in self.receptacles)


@dataclass(frozen=True)
class Lit:
    """A switched-on lamp is in or on a receptacle where the agent is; `here` are the receptacles of each place."""

    lamps: int
    here: tuple[tuple[int, ...], ...]

    def met(self, state: State) -> bool:
        lamps = self.lamps & state.toggled
        return lamps != 0 and any(state.inside[receptacle] & lamps for receptacle in self.here[state.place])


@dataclass(frozen=True)
class Held:
    """The agent holds a thing of a kind."""

    things: int

    def met(self, state: State) -> bool:
        return state.held >= 0 and self.things >> state.held & 1 == 1


Condition: TypeAlias = "Placed | Lit | Held"
