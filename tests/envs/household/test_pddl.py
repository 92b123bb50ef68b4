import pytest

from turngym.envs.household.pddl import (
    InHandCondition,
    LampCondition,
    PlacedCondition,
    parse_problem,
    parse_typed_list,
)

TEXT = """(define (problem P) (:domain alfred) ; a comment with ( in it
  (:objects agent1 - agent Mug_1 Cup_1 - object  thing)
  (:init (= (total-cost) 0) (holds agent1 MUG_1) (isHot cup_1) (isHot cup_1))
  (:goal (and (exists (?o - object) (isHot ?o)))))"""


def test_a_problem_is_read_in_lower_case():
    problem = parse_problem(TEXT)
    assert problem.types == {
        "agent1": "agent",
        "mug_1": "object",
        "cup_1": "object",
        "thing": "object",
    }
    assert problem.facts == {("holds", "agent1", "mug_1"), ("ishot", "cup_1")}
    assert problem.goal == ["and", ["exists", ["?o", "-", "object"], ["ishot", "?o"]]]
    assert problem.arguments_by_predicate == {"holds": [("agent1", "mug_1")], "ishot": [("cup_1",)]}


def test_typed_lists():
    assert parse_typed_list(["?a", "?b", "-", "object", "?r", "-", "receptacle"]) == [
        ("?a", "object"),
        ("?b", "object"),
        ("?r", "receptacle"),
    ]
    with pytest.raises(ValueError, match="an expression in a list of names"):
        parse_typed_list(["?a", ["b"]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not one PDDL expression"),
        ("(define", "does not close its parentheses"),
        ("(define))", "closes a parenthesis that it did not open"),
        ("(problem)", "does not begin with"),
        ("define", "does not begin with"),
        ("(define (:objects) (:init))", "has no :goal"),
        ("(define (:objects) (:init) (:goal))", "not one expression"),
        ("(define (:objects) (:init x) (:goal x))", "where a fact should be"),
        ("(define (:objects) (:init (not (x))) (:goal x))", "no plain fact"),
        ("(define (:objects (a)) (:init) (:goal x))", "an expression in a list of names"),
    ],
)
def test_what_is_no_problem_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_problem(text)


def test_the_kinds_of_goals(make_house):
    (place,), (heat,), (two,) = (make_house(kind).goal for kind in ("place", "heat", "two"))
    assert place == PlacedCondition(0b11, (0, 1), (), 1) or place.receptacles == (0, 1)
    assert (place.number, place.flags) == (1, ()) and (two.number, two.flags) == (2, ())
    assert heat.flags == ("hot",) and heat.things == place.things == two.things
    lit, held = make_house("light").goal
    assert isinstance(lit, LampCondition) and isinstance(held, InHandCondition)


def test_one_apple_in_a_drawer_is_there_from_the_start(make_house):
    assert make_house("place").is_won(make_house("place").start)
    assert not make_house("two").is_won(make_house("two").start)


def test_two_things_must_be_on_the_same_receptacle(make_house):
    world = make_house("two")
    first, second = (world.thing_by_name[f"apple {i}"] for i in (1, 2))
    drawers = [world.receptacle_by_name[f"drawer {i}"] for i in (1, 2)]
    apart, together = list(world.start.inside), list(world.start.inside)
    apart[drawers[0]], apart[drawers[1]] = 1 << first, 1 << second
    together[drawers[0]], together[drawers[1]] = 1 << first | 1 << second, 0
    assert not world.is_won(world.start._replace(inside=tuple(apart)))
    assert world.is_won(world.start._replace(inside=tuple(together)))


def test_a_thing_is_looked_at_where_the_lamp_that_was_turned_on_is(make_house):
    world = make_house("light")
    table, mug, lamp = (
        world.place_of[world.receptacle_by_name["sidetable 1"]],
        world.thing_by_name["mug 1"],
        world.thing_by_name["desklamp 1"],
    )
    won = world.start._replace(place=table, in_hand=mug, toggled=1 << lamp)
    assert world.is_won(won)
    for wrong in (
        {"place": world.start.place},
        {"in_hand": -1},
        {"in_hand": world.thing_by_name["apple 1"]},
        {"toggled": 0},
    ):
        assert not world.is_won(won._replace(**wrong))


@pytest.mark.parametrize("kind", ["place", "heat", "two", "light"])
@pytest.mark.parametrize(
    ("old", "new"), [("objectType ?o", "strange ?o"), ("inReceptacle", "near"), ("?r", "?x")]
)
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
