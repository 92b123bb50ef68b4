import pytest

from turngym.envs.household.grammar import get_dialect
from turngym.envs.household.problem import parse_problem
from turngym.envs.household.world import make_world


def test_the_house_is_what_the_problem_says(house):
    assert house.receptacles == ("drawer 2", "drawer 1", "fridge 1", "microwave 1", "sidetable 1", "sinkbasin 1")
    assert house.things == ("apple 2", "apple 1", "desklamp 1", "knife 1", "mug 1")
    assert house.here[house.where[0]] == (0, 1) and house.here[house.start.place] == ()
    assert house.openable == 0b1111 and house.sinks == 1 << 5
    assert house.microwaves == house.used_to("heat") == 1 << 3 and house.fridges == house.used_to("cool") == 1 << 2
    assert house.start.inside == (0b10, 0, 0, 0, 0b11101, 0) and house.start.held == -1
    assert house.fits[4] == 0b11011 and house.can["cut"] == 1 << 3 and house.can["slice"] == 0b11
    assert house.shut(house.start, 0) and not house.shut(house.start, 4)


def test_what_is_in_things_and_what_was_done_before_the_start_is_read(make_house):
    facts = "(inReceptacleObject Knife_bar_1 Mug_bar_1) (isCool Apple_bar_1) (opened Fridge_bar_1)"
    world = make_house(facts=facts)
    assert world.inner == {4: ("knife 1",)} and world.start.cool == 1 and world.start.opened == 0b100


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("agent1 - agent", "", "has no house"),
        ("(atLocation agent1 loc_bar_9)", "", "puts the agent at 0 places|has no house"),
        ("(receptacleAtLocation Fridge_bar_1 loc_bar_5)", "", "without a place or with two: fridge_bar_1"),
        ("(openable Fridge_bar_1)", "(receptacleAtLocation Fridge_bar_1 loc_bar_9)", "without a place or with two"),
    ],
)
def test_what_is_no_house_is_refused(problem, old, new, words):
    text = problem()
    assert old in text
    with pytest.raises(ValueError, match=words):
        make_world(parse_problem(text.replace(old, new)), "", get_dialect("current"))
