import itertools
import random

import pytest

from turngym.envs.household.commands import commands
from turngym.envs.household.grammar import NOTHING
from turngym.envs.household.play import step


def everything(world):
    """Every command that could be said in a house, and more."""
    things, places = [*world.things, "apple 9"], [*world.receptacles, "drawer 7"]
    put, into = world.dialect.put, world.dialect.into
    yield from ("look", "inventory", "help", "put", "go to", "open", "use", "undo", "wait")
    for name in (*things, *places):
        yield from (f"{verb} {name}" for verb in ("go to", "open", "close", "examine", "use", "take", "eat"))
    for thing, place in itertools.product((*things, *places), repeat=2):
        yield f"take {thing} from {place}"
        yield f"{put} {thing} {into} {place}"
        yield from (f"{verb} {thing} with {place}" for verb in ("heat", "cool", "clean", "slice"))


@pytest.mark.parametrize("text", ["current", "old"])
def test_what_is_offered_is_sorted_and_exactly_what_does_not_leave_nothing_happening(make_house, text):
    world = make_house("light", text=text)
    pool = sorted(set(everything(world)))
    draw = random.Random(0)
    state, seen = world.start, set()
    for _ in range(500):
        offered = commands(world, state)
        answered = [command for command in pool if step(world, state, command)[1] != NOTHING]
        assert offered == answered
        local = [command for command in offered if not command.startswith(("go", "examine", "help", "look", "inv"))]
        state, _ = step(world, state, draw.choice(local if local and draw.random() < 0.4 else offered))
        seen.update(command.split()[0] for command in offered)
    verbs = {*world.dialect.anywhere, "go", "open", "close", "examine", "use", "take", "heat", "cool", "clean"}
    assert seen == verbs | {"slice", world.dialect.put}


def test_what_nobody_did_is_not_offered(house):
    first = commands(house, house.start)
    assert first == [*(f"go to {name}" for name in sorted(house.receptacles)), "help", "inventory", "look"]


def test_a_place_of_two_receptacles_is_offered_as_both(house):
    state, _ = step(house, house.start, "go to drawer 2")
    assert "go to drawer 1" not in commands(house, state)
    assert [command for command in commands(house, state) if "drawer" in command] == [
        "examine drawer 1",
        "examine drawer 2",
        "open drawer 1",
        "open drawer 2",
    ]
