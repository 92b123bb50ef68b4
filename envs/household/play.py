"""The rules of a game: what a command does, how the game answers, and which commands are admissible.

`step` is a pure function of world, state and command. A command that no rule allows changes nothing and is answered
with `Nothing happens.`. The rules are those of ALFWorld's PDDL domain, the sentences those of its text grammar: the
present one and the one before 0.4, which differ in the answer to `go to` and in the words for putting a thing down.
Only the present one has `help`.
"""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from .pddl import State, changed, members
from .world import World

NOTHING = "Nothing happens."
TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
HELP: str = TEXTS["help"]


def intro(world: World) -> str:
    """Return what the agent reads first."""
    return str(TEXTS["intro"]).format(
        look=_look(world, world.start, world.receptacles), task=world.task
    )


def step(world: World, state: State, command: str) -> tuple[State, str]:
    """Return the state after `command` and the game's answer; blanks around a command do not count."""
    command = command.strip()
    if command in world.dialect.anywhere:
        return state, _say(world, state, command)
    verb, _, rest = command.partition(" ")
    if verb == "go" and rest.startswith("to "):
        done = _go(world, state, rest[3:])
    elif verb in _ON_ONE:
        done = _ON_ONE[verb](world, state, rest)
    elif verb == world.dialect.put:
        first, _, second = rest.partition(f" {world.dialect.into} ")
        done = _put(world, state, first, second)
    elif verb == "take":
        first, _, second = rest.partition(" from ")
        done = _take(world, state, first, second)
    else:
        first, _, second = rest.partition(" with ")
        done = (
            _slice(world, state, first, second)
            if verb == "slice"
            else _treat(world, state, verb, first, second)
        )
    return done or (state, NOTHING)


def _reach(world: World, state: State, name: str) -> int:
    """Return the receptacle of that name where the agent is, else -1."""
    receptacle = world.receptacle.get(name, -1)
    return receptacle if receptacle >= 0 and world.where[receptacle] == state.place else -1


def _go(world: World, state: State, name: str) -> tuple[State, str] | None:
    receptacle = world.receptacle.get(name, -1)
    if receptacle < 0 or world.where[receptacle] == state.place:
        return None
    state = state._replace(place=world.where[receptacle])
    at = world.places[state.place] if world.dialect.arrives_at_place else name
    return state, f"You arrive at {at}. {_look_at(world, state, receptacle)}"


def _open(world: World, state: State, name: str) -> tuple[State, str] | None:
    receptacle = _reach(world, state, name)
    if receptacle < 0 or not world.shut(state, receptacle):
        return None
    state = state._replace(opened=state.opened | 1 << receptacle)
    return state, f"You open the {name}. {_look_at(world, state, receptacle)}"


def _close(world: World, state: State, name: str) -> tuple[State, str] | None:
    receptacle = _reach(world, state, name)
    if receptacle < 0 or not world.openable & state.opened & 1 << receptacle:
        return None
    return state._replace(opened=state.opened & ~(1 << receptacle)), f"You close the {name}."


def _examine(world: World, state: State, name: str) -> tuple[State, str] | None:
    receptacle = _reach(world, state, name)
    if receptacle >= 0:
        return state, _look_at(world, state, receptacle)
    # Of things only the one in hand can be examined: the domain's other case names a type that does not exist.
    thing = world.thing.get(name, -1)
    if thing < 0 or thing != state.held:
        return None
    if thing in world.inner:
        return state, f"This is a normal {name}. In it, you see {listed(world.inner[thing])}."
    flags = {
        "clean": state.clean,
        "hot": state.hot,
        "cool": state.cool,
        "sliced": state.sliced,
        "on": state.toggled,
    }
    return state, _condition(
        name, **{flag: things >> thing & 1 == 1 for flag, things in flags.items()}
    )


def _use(world: World, state: State, name: str) -> tuple[State, str] | None:
    thing = world.thing.get(name, -1)
    if thing < 0 or not world.can["toggle"] >> thing & 1:
        return None
    if not any(state.inside[r] >> thing & 1 for r in world.here[state.place]):
        return None
    # What was used counts as toggled for good, so it is turned on every time.
    return state._replace(toggled=state.toggled | 1 << thing), f"You turn on the {name}."


def _take(world: World, state: State, name: str, source: str) -> tuple[State, str] | None:
    thing, receptacle = world.thing.get(name, -1), _reach(world, state, source)
    if thing < 0 or receptacle < 0 or state.held >= 0 or world.shut(state, receptacle):
        return None
    inside, bit = state.inside[receptacle], 1 << thing
    if not inside & world.can["pickup"] & bit:
        return None
    state = state._replace(
        held=thing,
        inside=changed(state.inside, receptacle, inside & ~bit),
        around=changed(state.around, thing, state.around[thing] & ~(1 << state.place)),
        left=changed(state.left, receptacle, state.left[receptacle] | bit),
    )
    return state, f"You pick up the {name} from the {source}."


def _put(world: World, state: State, name: str, target: str) -> tuple[State, str] | None:
    thing, receptacle = world.thing.get(name, -1), _reach(world, state, target)
    if thing < 0 or receptacle < 0 or state.held != thing or world.shut(state, receptacle):
        return None
    bit = 1 << thing
    if not world.fits[receptacle] & bit:
        return None
    state = state._replace(
        held=-1,
        inside=changed(state.inside, receptacle, state.inside[receptacle] | bit),
        around=changed(state.around, thing, state.around[thing] | 1 << state.place),
        left=changed(state.left, receptacle, state.left[receptacle] & ~bit),
    )
    return state, f"You {world.dialect.put} the {name} {world.dialect.into} the {target}."


def _treat(
    world: World, state: State, verb: str, name: str, target: str
) -> tuple[State, str] | None:
    thing, receptacle = world.thing.get(name, -1), _reach(world, state, target)
    if verb not in world.used_to or thing < 0 or receptacle < 0 or state.held != thing:
        return None
    bit = 1 << thing
    if not (world.can[verb] & bit and world.used_to[verb] >> receptacle & 1):
        return None
    if verb == "clean":
        state = state._replace(clean=state.clean | bit)
    elif verb == "heat":
        state = state._replace(hot=state.hot | bit, cool=state.cool & ~bit)
    else:
        state = state._replace(cool=state.cool | bit, hot=state.hot & ~bit)
    return state, f"You {verb} the {name} using the {target}."


def _slice(world: World, state: State, name: str, knife: str) -> tuple[State, str] | None:
    thing, held = world.thing.get(name, -1), world.thing.get(knife, -1)
    if thing < 0 or held < 0 or state.held != held or not world.can["cut"] >> held & 1:
        return None
    if not world.can["slice"] >> thing & 1 or not state.around[thing] >> state.place & 1:
        return None
    return state._replace(
        sliced=state.sliced | 1 << thing
    ), f"You sliced the {name} with the {knife}."


def _say(world: World, state: State, command: str) -> str:
    if command == "help":
        return HELP
    if command == "inventory":
        held = f": a {world.things[state.held]}"
        return f"You are carrying{held}." if state.held >= 0 else "You are not carrying anything."
    return _look(world, state, [])


def _look(world: World, state: State, around: Sequence[str]) -> str:
    here = world.here[state.place]
    if not here:
        return f"You are in the middle of a room. Looking quickly around you, you see {listed(around)}."
    names = facing([world.receptacles[r] for r in here])
    # A thing lies "next to" a receptacle that it was taken from, once for each, when it is at the same place again.
    at = 1 << state.place
    loose = (
        [o for o in range(len(world.things)) if state.around[o] & at]
        if any(state.left[r] for r in here)
        else []
    )
    floor = [world.things[o] for o in loose for r in here if state.left[r] >> o & 1]
    return f"You are facing the {names}. Next to it, you see {listed(floor)}."


def _look_at(world: World, state: State, receptacle: int) -> str:
    name = world.receptacles[receptacle]
    if world.shut(state, receptacle):
        return f"The {name} is closed."
    where = f"The {name} is open. In it" if world.openable >> receptacle & 1 else f"On the {name}"
    return (
        f"{where}, you see {listed([world.things[o] for o in members(state.inside[receptacle])])}."
    )


_ON_ONE = {"open": _open, "close": _close, "examine": _examine, "use": _use}


def commands(world: World, state: State) -> list[str]:
    """Return the admissible commands, sorted."""
    goings = (
        f"go to {name}"
        for name, where in zip(world.receptacles, world.where)
        if where != state.place
    )
    return sorted(
        [*world.dialect.anywhere, *goings, *_with_near(world, state), *_with_held(world, state)]
    )


def _with_near(world: World, state: State) -> Iterator[str]:
    things, names, used = world.things, world.receptacles, 0
    pickup = world.can["pickup"] if state.held < 0 else 0
    for r in world.here[state.place]:
        inside, shut = state.inside[r], world.shut(state, r)
        yield f"examine {names[r]}"
        if world.openable >> r & 1:
            yield f"{'open' if shut else 'close'} {names[r]}"
        if not shut:
            yield from (f"take {things[o]} from {names[r]}" for o in members(inside & pickup))
        yield from (f"use {things[o]}" for o in members(inside & world.can["toggle"] & ~used))
        used |= inside


def _with_held(world: World, state: State) -> Iterator[str]:
    if state.held < 0:
        return
    here, names, put, into = (
        world.here[state.place],
        world.receptacles,
        world.dialect.put,
        world.dialect.into,
    )
    thing, bit = world.things[state.held], 1 << state.held
    yield f"examine {thing}"
    for verb, places in world.used_to.items():
        if world.can[verb] & bit:
            yield from (f"{verb} {thing} with {names[r]}" for r in here if places >> r & 1)
    yield from (
        f"{put} {thing} {into} {names[r]}"
        for r in here
        if world.fits[r] & bit and not world.shut(state, r)
    )
    if world.can["cut"] & bit:
        near = (o for o in members(world.can["slice"]) if state.around[o] >> state.place & 1)
        yield from (f"slice {world.things[o]} with {thing}" for o in near)


def listed(names: Sequence[str]) -> str:
    """Return `a mug 2, a mug 1, and a pen 1`, or `nothing`."""
    return facing([f"a {name}" for name in names]) if names else "nothing"


def facing(names: Sequence[str]) -> str:
    """Return `cabinet 2, and cabinet 1`: receptacles come without an article here."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"


def _condition(name: str, *, clean: bool, hot: bool, cool: bool, sliced: bool, on: bool) -> str:
    words = ["hot"] * hot + ["cool"] * (cool and not hot) + ["clean"] * clean
    if words:
        alone = words == ["cool"] and not sliced
        return f"This is a {'cold' if alone else ' and '.join(words)}{' sliced' if sliced else ''} {name}."
    if on:
        return f"This {name} is on."
    return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."
