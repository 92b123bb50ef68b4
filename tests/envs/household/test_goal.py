import pytest

from turngym.envs.household.goal import Held, Lit, Placed


def test_the_kinds_of_goals(make_house):
    (place,), (heat,), (two,) = (make_house(kind).goal for kind in ("place", "heat", "two"))
    assert place == Placed(0b11, (0, 1), (), 1) or place.receptacles == (0, 1)
    assert (place.number, place.flags) == (1, ()) and (two.number, two.flags) == (2, ())
    assert heat.flags == ("hot",) and heat.things == place.things == two.things
    lit, held = make_house("light").goal
    assert isinstance(lit, Lit) and isinstance(held, Held)


def test_one_apple_in_a_drawer_is_there_from_the_start(make_house):
    assert make_house("place").won(make_house("place").start)
    assert not make_house("two").won(make_house("two").start)


def test_two_things_must_be_on_the_same_receptacle(make_house):
    world = make_house("two")
    first, second = (world.thing[f"apple {i}"] for i in (1, 2))
    drawers = [world.receptacle[f"drawer {i}"] for i in (1, 2)]
    apart, together = list(world.start.inside), list(world.start.inside)
    apart[drawers[0]], apart[drawers[1]] = 1 << first, 1 << second
    together[drawers[0]], together[drawers[1]] = 1 << first | 1 << second, 0
    assert not world.won(world.start._replace(inside=tuple(apart)))
    assert world.won(world.start._replace(inside=tuple(together)))


def test_a_thing_is_looked_at_where_the_lamp_that_was_turned_on_is(make_house):
    world = make_house("light")
    table, mug, lamp = world.where[world.receptacle["sidetable 1"]], world.thing["mug 1"], world.thing["desklamp 1"]
    won = world.start._replace(place=table, held=mug, toggled=1 << lamp)
    assert world.won(won)
    for wrong in ({"place": world.start.place}, {"held": -1}, {"held": world.thing["apple 1"]}, {"toggled": 0}):
        assert not world.won(won._replace(**wrong))


@pytest.mark.parametrize("kind", ["place", "heat", "two", "light"])
@pytest.mark.parametrize(("old", "new"), [("objectType ?o", "strange ?o"), ("inReceptacle", "near"), ("?r", "?x")])
def test_a_goal_of_no_known_kind_is_refused(make_house, goals, kind, old, new):
    goal = goals[kind]
    if old not in goal or old == "?r":
        goal, new = f"{goal} (not (isHot Mug_bar_1))", ""
    with pytest.raises(ValueError, match=r"has (a goal that none|\S+ in its goal)"):
        make_house(goal.replace(old, new, 1) if new else goal)


@pytest.mark.parametrize(
    "goal",
    [
        "(not (exists (?o - object) (isHot ?o)))",
        "(exists (?o - object) (holds agent1 ?o))",
        "(exists (?o - object ?a - agent) (and (isHot ?o) (objectType ?o MugType) (holds ?a ?o)))",
        "(or (isHot Mug_bar_1))",
        "()",
    ],
)
def test_other_goals_are_refused(make_house, goal):
    with pytest.raises(ValueError, match="goal"):
        make_house(goal)


def test_two_things_need_not_differ_by_accident(make_house, goals):
    with pytest.raises(ValueError, match="has a goal that none"):
        make_house(goals["two"].replace("(not (= ?o1 ?o2))", ""))
    with pytest.raises(ValueError, match="has a goal that none"):
        make_house(goals["two"].replace("(not (= ?o1 ?o2))", "(not (= ?o1 ?o2)) (isHot ?o2)"))
    with pytest.raises(ValueError, match="has a goal that none"):
        make_house(goals["heat"].replace("(isHot ?o)", "(not (isHot ?o))"))
