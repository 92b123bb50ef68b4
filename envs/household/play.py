"""The rules of a game: what a command does, the answers, and which commands are admissible.

`step` is a pure function of world, state and command; `commands` lists the commands that it
accepts.

The rules are those of ALFWorld's PDDL domain. The sentences are those of its text grammar: the
present one and the one before 0.4, which differ in the answer to `go to` and in the words for
putting a thing down. Only the present one has `help`.

Things and receptacles are indices, sets of them are bit masks (see `State`).
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from .pddl import State, iterate_bits, replace_item
from .world import World

NOTHING_HAPPENS = "Nothing happens."
TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
HELP: str = TEXTS["help"]

Result: TypeAlias = tuple[State, str] | None
"""The state after a command and the game's answer; None if the rules do not allow the command."""


def intro(world: World) -> str:
    """Return the first text of a game, which lists the receptacles and states the task."""
    look = _look_around(world, world.start, world.receptacle_names)
    template: str = TEXTS["intro"]
    return template.format(look=look, task=world.task)


def step(world: World, state: State, command: str) -> tuple[State, str]:
    """Return the state after a command, and the game's answer.

    Args:
        world: The house.
        state: The state before the command; it is not changed.
        command: The command, such as `take mug 1 from desk 2`, maybe with blanks around it.

    Returns:
        The new state and the answer. If the rules do not allow the command, the state is `state`
        and the answer `Nothing happens.`
    """
    command = command.strip()
    if command in world.dialect.anywhere:  # `help`, `inventory` or `look`
        return state, _answer_question(world, state, command)
    verb, _, arguments = command.partition(" ")
    result: Result
    if verb == "go" and arguments.startswith("to "):
        result = _go(world, state, arguments.removeprefix("to "))
    elif verb in _RULE_BY_VERB:  # the commands with only one name after the verb
        result = _RULE_BY_VERB[verb](world, state, arguments)
    elif verb == world.dialect.put:
        thing, _, target = arguments.partition(f" {world.dialect.into} ")
        result = _put(world, state, thing, target)
    elif verb == "take":
        thing, _, source = arguments.partition(" from ")
        result = _take(world, state, thing, source)
    elif verb == "slice":
        thing, _, knife = arguments.partition(" with ")
        result = _slice(world, state, thing, knife)
    else:  # `clean`, `heat` or `cool`; `_treat` refuses any other verb
        thing, _, appliance = arguments.partition(" with ")
        result = _treat(world, state, verb, thing, appliance)
    if result is None:
        return state, NOTHING_HAPPENS
    return result


# -- what each command does -----------------------------------------------------------------------


def _find_within_reach(world: World, state: State, name: str) -> int:
    """Return the receptacle called `name` if it is at the agent's place, else -1."""
    receptacle = world.receptacle_by_name.get(name, -1)
    if receptacle >= 0 and world.place_of[receptacle] == state.place:
        return receptacle
    return -1


def _go(world: World, state: State, name: str) -> Result:
    """Go to the receptacle called `name`; None unless it is at another place."""
    receptacle = world.receptacle_by_name.get(name, -1)  # an index, -1 for an unknown name
    if receptacle < 0 or world.place_of[receptacle] == state.place:
        return None
    state = state._replace(place=world.place_of[receptacle])
    destination = world.place_names[state.place] if world.dialect.arrives_at_place else name
    return state, f"You arrive at {destination}. {_look_at(world, state, receptacle)}"


def _open(world: World, state: State, name: str) -> Result:
    """Open the receptacle called `name`; None unless it is within reach and closed."""
    receptacle = _find_within_reach(world, state, name)
    if receptacle < 0 or not world.is_closed(state, receptacle):
        return None
    state = state._replace(opened=state.opened | 1 << receptacle)
    return state, f"You open the {name}. {_look_at(world, state, receptacle)}"


def _close(world: World, state: State, name: str) -> Result:
    """Close the receptacle called `name`; None unless it is within reach and open."""
    receptacle = _find_within_reach(world, state, name)
    if receptacle < 0:
        return None
    receptacle_bit = 1 << receptacle  # sets of receptacles are bit masks
    if not world.openable & state.opened & receptacle_bit:
        return None
    state = state._replace(opened=state.opened & ~receptacle_bit)
    return state, f"You close the {name}."


def _examine(world: World, state: State, name: str) -> Result:
    """Look at the receptacle or the thing called `name`.

    None unless it is a receptacle within reach or the thing in the agent's hand.
    """
    receptacle = _find_within_reach(world, state, name)
    if receptacle >= 0:
        return state, _look_at(world, state, receptacle)
    # ALFWorld's domain has a rule for examining things that are not in hand, too, but it names a
    # type that does not exist, so it never applies.
    thing = world.thing_by_name.get(name, -1)
    if thing < 0 or thing != state.in_hand:
        return None
    if thing in world.inner_names:
        contents = join_with_articles(world.inner_names[thing])
        return state, f"This is a normal {name}. In it, you see {contents}."
    thing_bit = 1 << thing  # sets of things are bit masks
    return state, describe_thing(
        name,
        clean=state.clean & thing_bit != 0,
        hot=state.hot & thing_bit != 0,
        cool=state.cool & thing_bit != 0,
        sliced=state.sliced & thing_bit != 0,
        on=state.toggled & thing_bit != 0,
    )


def _use(world: World, state: State, name: str) -> Result:
    """Turn on the lamp called `name`; None unless it is in or on a receptacle within reach."""
    thing = world.thing_by_name.get(name, -1)
    if thing < 0:
        return None
    thing_bit = 1 << thing  # sets of things are bit masks
    if not world.toggleable & thing_bit:
        return None
    receptacles_here = world.receptacles_at[state.place]
    if not any(state.inside[receptacle] & thing_bit for receptacle in receptacles_here):
        return None
    # In ALFWorld a lamp stays on once it was used, so `use` has the same answer each time.
    return state._replace(toggled=state.toggled | thing_bit), f"You turn on the {name}."


def _take(world: World, state: State, name: str, source: str) -> Result:
    """Take the thing called `name` from the receptacle called `source`.

    None unless the hand is empty, the receptacle is within reach and not closed, and the thing is
    in or on it.
    """
    thing = world.thing_by_name.get(name, -1)
    receptacle = _find_within_reach(world, state, source)
    if thing < 0 or receptacle < 0:
        return None
    if state.in_hand >= 0 or world.is_closed(state, receptacle):
        return None
    thing_bit = 1 << thing  # sets of things are bit masks
    things_inside = state.inside[receptacle]
    if not things_inside & world.pickupable & thing_bit:
        return None
    known_places = state.known_places[thing] & ~(1 << state.place)  # no longer at this place
    things_taken = state.taken_from[receptacle] | thing_bit
    state = state._replace(
        in_hand=thing,
        inside=replace_item(state.inside, receptacle, things_inside & ~thing_bit),
        known_places=replace_item(state.known_places, thing, known_places),
        taken_from=replace_item(state.taken_from, receptacle, things_taken),
    )
    return state, f"You pick up the {name} from the {source}."


def _put(world: World, state: State, name: str, target: str) -> Result:
    """Put the thing called `name` into or onto the receptacle called `target`.

    None unless the thing is in hand, and the receptacle is within reach, not closed and accepts it.
    """
    thing = world.thing_by_name.get(name, -1)
    receptacle = _find_within_reach(world, state, target)
    if thing < 0 or receptacle < 0:
        return None
    if state.in_hand != thing or world.is_closed(state, receptacle):
        return None
    thing_bit = 1 << thing  # sets of things are bit masks
    if not world.accepts[receptacle] & thing_bit:
        return None
    things_inside = state.inside[receptacle] | thing_bit
    known_places = state.known_places[thing] | 1 << state.place
    things_taken = state.taken_from[receptacle] & ~thing_bit
    state = state._replace(
        in_hand=-1,
        inside=replace_item(state.inside, receptacle, things_inside),
        known_places=replace_item(state.known_places, thing, known_places),
        taken_from=replace_item(state.taken_from, receptacle, things_taken),
    )
    return state, f"You {world.dialect.put} the {name} {world.dialect.into} the {target}."


def _treat(world: World, state: State, verb: str, name: str, target: str) -> Result:
    """Clean, heat or cool the thing called `name` with the appliance called `target`.

    None unless the verb is `clean`, `heat` or `cool`, the thing is in hand and can be treated like
    that, and the appliance is within reach and serves for it.
    """
    if verb not in world.appliances:
        return None
    thing = world.thing_by_name.get(name, -1)
    appliance = _find_within_reach(world, state, target)
    if thing < 0 or appliance < 0 or state.in_hand != thing:
        return None
    thing_bit = 1 << thing  # sets of things are bit masks
    appliance_bit = 1 << appliance
    if not world.treatable[verb] & thing_bit or not world.appliances[verb] & appliance_bit:
        return None
    if verb == "clean":
        state = state._replace(clean=state.clean | thing_bit)
    elif verb == "heat":
        state = state._replace(hot=state.hot | thing_bit, cool=state.cool & ~thing_bit)
    else:
        state = state._replace(cool=state.cool | thing_bit, hot=state.hot & ~thing_bit)
    return state, f"You {verb} the {name} using the {target}."


def _slice(world: World, state: State, name: str, knife_name: str) -> Result:
    """Slice the thing called `name`.

    None unless the thing can be sliced and is known to be at the agent's place, and the knife
    called `knife_name` is in hand.
    """
    thing = world.thing_by_name.get(name, -1)
    knife = world.thing_by_name.get(knife_name, -1)
    if thing < 0 or knife < 0 or state.in_hand != knife:
        return None
    thing_bit = 1 << thing  # sets of things are bit masks
    if not world.knives & 1 << knife or not world.sliceable & thing_bit:
        return None
    if not state.known_places[thing] & 1 << state.place:
        return None
    state = state._replace(sliced=state.sliced | thing_bit)
    return state, f"You sliced the {name} with the {knife_name}."


_RULE_BY_VERB: dict[str, Callable[[World, State, str], Result]] = {
    "open": _open,
    "close": _close,
    "examine": _examine,
    "use": _use,
}
"""The rules of commands with one name after the verb."""


# -- what the game says ---------------------------------------------------------------------------


def _answer_question(world: World, state: State, command: str) -> str:
    """Return the answer to `help`, `inventory` or `look`."""
    if command == "help":
        return HELP
    if command == "inventory":
        if state.in_hand < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {world.thing_names[state.in_hand]}."
    return _look_around(world, state, [])


def _look_around(world: World, state: State, distant_names: Sequence[str]) -> str:
    """Return what the agent sees from its place.

    In the middle of the room it sees `distant_names`. Elsewhere it sees the receptacles at its
    place and the things "next to" them. For ALFWorld these are the things that were taken from one
    of the receptacles and put down at the same place again, but not in or on that receptacle. Such
    a thing is listed once for each receptacle that it was taken from.
    """
    receptacles_here = world.receptacles_at[state.place]
    if not receptacles_here:
        names = join_with_articles(distant_names)
        return f"You are in the middle of a room. Looking quickly around you, you see {names}."
    things_taken_here = 0
    for receptacle in receptacles_here:
        things_taken_here |= state.taken_from[receptacle]
    place_bit = 1 << state.place  # sets of things and of places are bit masks
    names_next_to = []
    for thing in iterate_bits(things_taken_here):
        if not state.known_places[thing] & place_bit:
            continue
        for receptacle in receptacles_here:
            if state.taken_from[receptacle] & 1 << thing:
                names_next_to.append(world.thing_names[thing])
    names_here = join_names([world.receptacle_names[receptacle] for receptacle in receptacles_here])
    names_next_to_it = join_with_articles(names_next_to)
    return f"You are facing the {names_here}. Next to it, you see {names_next_to_it}."


def _look_at(world: World, state: State, receptacle: int) -> str:
    """Return what the agent sees of a receptacle: that it is closed, or its contents.

    Args:
        world: The house.
        state: The state of the house.
        receptacle: The index of the receptacle.
    """
    name = world.receptacle_names[receptacle]
    if world.is_closed(state, receptacle):
        return f"The {name} is closed."
    things = iterate_bits(state.inside[receptacle])
    contents = join_with_articles([world.thing_names[thing] for thing in things])
    if world.openable & 1 << receptacle:
        return f"The {name} is open. In it, you see {contents}."
    return f"On the {name}, you see {contents}."


def join_with_articles(names: Sequence[str]) -> str:
    """Return names as a list in English: `a mug 2, a mug 1, and a pen 1`, or `nothing`."""
    if not names:
        return "nothing"
    return join_names([f"a {name}" for name in names])


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in English: `mug 1`, or with ALFWorld's comma `mug 2, and mug 1`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def describe_thing(name: str, *, clean: bool, hot: bool, cool: bool, sliced: bool, on: bool) -> str:
    """Return the answer to `examine`, such as `This is a hot and clean sliced apple 1.`

    The sentences are those of ALFWorld's grammar, with its gaps: a lamp that is on is called so
    only if no state such as `clean` is named.
    """
    adjectives = []
    if hot:
        adjectives.append("hot")
    elif cool:
        adjectives.append("cool")
    if clean:
        adjectives.append("clean")
    if adjectives == ["cool"] and not sliced:
        return f"This is a cold {name}."  # ALFWorld says `cool` only together with another word
    if adjectives:
        slices = " sliced" if sliced else ""
        return f"This is a {' and '.join(adjectives)}{slices} {name}."
    if on:
        return f"This {name} is on."
    if sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


# -- which commands are admissible ----------------------------------------------------------------


def commands(world: World, state: State) -> list[str]:
    """Return the commands that the rules allow in a state, sorted."""
    admissible = [*world.dialect.anywhere]
    for name, place in zip(world.receptacle_names, world.place_of):
        if place != state.place:
            admissible.append(f"go to {name}")
    admissible += _commands_for_receptacles(world, state)
    if state.in_hand >= 0:
        admissible += _commands_for_thing_in_hand(world, state)
    return sorted(admissible)


def _commands_for_receptacles(world: World, state: State) -> Iterator[str]:
    """Yield the commands for the receptacles within reach and the things in or on them."""
    # Sets of things are bit masks; the empty set is 0.
    takeable = world.pickupable if state.in_hand < 0 else 0
    usable_lamps = world.toggleable
    for receptacle in world.receptacles_at[state.place]:
        name = world.receptacle_names[receptacle]
        things_inside = state.inside[receptacle]
        closed = world.is_closed(state, receptacle)
        yield f"examine {name}"
        if world.openable & 1 << receptacle:
            yield f"open {name}" if closed else f"close {name}"
        if not closed:
            for thing in iterate_bits(things_inside & takeable):
                yield f"take {world.thing_names[thing]} from {name}"
        # A lamp works in a closed receptacle too. `use` does not name the receptacle, so a lamp
        # that a problem puts in two of them is listed once.
        for thing in iterate_bits(things_inside & usable_lamps):
            yield f"use {world.thing_names[thing]}"
        usable_lamps &= ~things_inside


def _commands_for_thing_in_hand(world: World, state: State) -> Iterator[str]:
    """Yield the commands for the thing in hand: examine, treat, put it down, slice with it."""
    receptacles_here = world.receptacles_at[state.place]
    name = world.thing_names[state.in_hand]
    thing_bit = 1 << state.in_hand  # sets of things, receptacles and places are bit masks
    yield f"examine {name}"
    for verb, appliances in world.appliances.items():  # `clean`, `heat` and `cool`
        if not world.treatable[verb] & thing_bit:
            continue
        for receptacle in receptacles_here:
            if appliances & 1 << receptacle:
                yield f"{verb} {name} with {world.receptacle_names[receptacle]}"
    dialect = world.dialect
    for receptacle in receptacles_here:
        if world.accepts[receptacle] & thing_bit and not world.is_closed(state, receptacle):
            yield f"{dialect.put} {name} {dialect.into} {world.receptacle_names[receptacle]}"
    if world.knives & thing_bit:
        for thing in iterate_bits(world.sliceable):
            if state.known_places[thing] & 1 << state.place:
                yield f"slice {world.thing_names[thing]} with {name}"
