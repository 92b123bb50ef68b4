"""The search for shortcuts, on engines that have one."""

from turngym.envs.household.generate import Houses, make_house
from turngym.envs.household.world import World
from turngym.tests.verify.household import shortcuts
from turngym.tests.verify.household.goals import Aim, aim_of_task

TINY = ("tiny",)


def test_a_sentence_says_what_is_wanted():
    for i in range(60):
        _, house = make_house(i, Houses(size="tiny", seed=7).options)
        chore = house.chore
        assert aim_of_task(house.task) == Aim(chore.task_type, chore.thing, chore.target)


def test_deeds_are_read_from_the_words_of_commands():
    hot = Aim("pick_heat_then_place_in_recep", "apple", "shelf")
    heated = ["heat apple 1 with microwave 1", "go to shelf 1", "move apple 1 to shelf 1"]
    assert shortcuts.done(hot, heated) and not shortcuts.done(hot, heated[::-1])
    assert not shortcuts.done(hot, ["heat apple 2 with microwave 1", *heated[1:]])
    two = Aim("pick_two_obj_and_place", "apple", "shelf")
    assert not shortcuts.done(two, heated * 2) and shortcuts.done(
        two, [*heated, "move apple 2 to shelf 1"]
    )
    lit = Aim("look_at_obj_in_light", "apple", "desklamp")
    assert shortcuts.done(lit, ["use desklamp 1", "take apple 1 from bed 1"])
    assert not shortcuts.done(lit, ["take apple 1 from bed 1", "look"])


def test_a_goal_that_is_paid_too_early_is_found(monkeypatch, catalogue):
    monkeypatch.setattr(shortcuts, "STATES", 30)
    assert shortcuts._breadth(0).good and shortcuts._left_out(catalogue, 0).good
    real = World.is_won
    monkeypatch.setattr(
        World, "is_won", lambda world, state: real(world, state) or state.in_hand >= 0
    )
    assert not shortcuts._breadth(0).good and not shortcuts._left_out(catalogue, 0).good


def test_a_thing_given_away_is_found(monkeypatch):
    few = [house for house, _ in shortcuts._houses(0, 0, TINY)]
    monkeypatch.setattr(shortcuts, "_houses", lambda *args: ((house, None) for house in few))
    assert shortcuts._hidden(0, 0).good
    real = shortcuts.step

    def telling(world, state, command):
        state, answer = real(world, state, command)
        hides = any(
            world.is_closed(state, r) and state.inside[r] & 1
            for r in world.receptacles_at[state.place]
        )
        return state, f"{answer} Something rattles." if hides and command == "look" else answer

    monkeypatch.setattr(shortcuts, "step", telling)
    row = shortcuts._hidden(0, 0)
    assert not row.good and "look" in row.note
    monkeypatch.setattr(shortcuts, "step", real)
    listing = shortcuts.commands
    monkeypatch.setattr(
        shortcuts,
        "commands",
        lambda world, state: listing(world, state) + ["shake it"] * bool(state.inside[0]),
    )
    assert not shortcuts._hidden(0, 0).good


def test_a_favourite_place_is_found(monkeypatch):
    few = [(house, None) for house, _ in shortcuts._houses(0, 300, TINY)]
    monkeypatch.setattr(shortcuts, "_houses", lambda *args: iter(few))
    assert shortcuts._places(0, 0).good
    for house, _ in few:
        kind = house.receptacles[house.things[0].inside].kind
        first = next(i for i, one in enumerate(house.receptacles) if one.kind == kind)
        object.__setattr__(
            house, "things", (house.things[0]._replace(inside=first), *house.things[1:])
        )
    assert not shortcuts._places(0, 0).good
