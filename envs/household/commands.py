"""Which commands a game offers in a state.

They are made group by group in alphabetical order, so that nothing but the few of a group has to be sorted.
"""

from __future__ import annotations

from .state import State, members
from .world import World


def commands(world: World, state: State) -> list[str]:
    """Return the admissible commands, sorted."""
    place, held, things, names = state.place, state.held, world.things, world.receptacles
    here = world.here[place]
    closes: list[str] = []
    opens: list[str] = []
    takes: list[str] = []
    uses: list[str] = []
    examines = [f"examine {names[r]}" for r in here]
    pickup, toggle = world.can["pickup"] if held < 0 else 0, world.can["toggle"]
    reached = 0
    for r in here:
        inside, shut = state.inside[r], world.shut(state, r)
        if shut:
            opens.append(f"open {names[r]}")
        elif world.openable >> r & 1:
            closes.append(f"close {names[r]}")
        if inside & pickup and not shut:
            takes += [f"take {things[o]} from {names[r]}" for o in members(inside & pickup)]
        if inside & toggle:
            uses += [f"use {things[o]}" for o in members(inside & toggle & ~reached)]
            reached |= inside
    for found in (closes, opens, takes, uses):
        found.sort()
    if held < 0:
        examines.sort()
        return [*closes, *examines, *_goings(world, place), *world.dialect.anywhere, *opens, *takes, *uses]
    examines.append(f"examine {things[held]}")
    examines.sort()
    cleans, cools, heats, puts, slices = _with_held(world, state, here)
    going, anywhere = _goings(world, place), world.dialect.anywhere
    last = (*opens, *puts) if world.dialect.put > "open" else (*puts, *opens)
    return [*cleans, *closes, *cools, *examines, *going, *heats, *anywhere, *last, *slices, *uses]


def _with_held(world: World, state: State, here: tuple[int, ...]) -> tuple[list[str], ...]:
    held, names = state.held, world.receptacles
    thing, bit = world.things[held], 1 << held
    treats = []
    for verb in ("clean", "cool", "heat"):
        using = world.used_to(verb)
        able = world.can[verb] & bit
        treats.append(sorted(f"{verb} {thing} with {names[r]}" for r in here if able and using >> r & 1))
    put, into, shut = world.dialect.put, world.dialect.into, world.openable & ~state.opened
    puts = [f"{put} {thing} {into} {names[r]}" for r in here if world.fits[r] & bit and not shut >> r & 1]
    slices = []
    if world.can["cut"] & bit:
        around, at = state.around, 1 << state.place
        slices = [f"slice {world.things[o]} with {thing}" for o in members(world.can["slice"]) if around[o] & at]
    return (*treats, sorted(puts), sorted(slices))


def _goings(world: World, place: int) -> list[str]:
    known = world.goings.get(place)
    if known is None:  # going where one is does nothing, and is not offered
        names = zip(world.receptacles, world.where)
        known = world.goings[place] = sorted(f"go to {name}" for name, where in names if where != place)
    return known
