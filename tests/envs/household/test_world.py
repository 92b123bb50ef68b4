import pytest

from turngym.envs.household.pddl import iterate_bits, parse_problem, replace_item
from turngym.envs.household.world import get_dialect, make_world, name_all


def test_the_house_is_what_the_problem_says(house):
    assert house.receptacle_names == (
        "drawer 2",
        "drawer 1",
        "fridge 1",
        "microwave 1",
        "sidetable 1",
        "sinkbasin 1",
    )
    assert house.thing_names == ("apple 2", "apple 1", "desklamp 1", "knife 1", "mug 1")
    assert (
        house.receptacles_at[house.place_of[0]] == (0, 1)
        and house.receptacles_at[house.start.place] == ()
    )
    assert house.openable == 0b1111 and house.appliances["clean"] == 1 << 5
    assert house.appliances["heat"] == 1 << 3 and house.appliances["cool"] == 1 << 2
    assert house.start.inside == (0b10, 0, 0, 0, 0b11101, 0) and house.start.in_hand == -1
    assert house.accepts[4] == 0b11011 and house.knives == 1 << 3 and house.sliceable == 0b11
    assert house.is_closed(house.start, 0) and not house.is_closed(house.start, 4)


def test_what_is_in_things_and_what_was_done_before_the_start_is_read(make_house):
    facts = "(inReceptacleObject Knife_bar_1 Mug_bar_1) (isCool Apple_bar_1) (opened Fridge_bar_1)"
    world = make_house(facts=facts)
    assert (
        world.inner_names == {4: ("knife 1",)}
        and world.start.cool == 1
        and world.start.opened == 0b100
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("agent1 - agent", "", "has no house"),
        ("(atLocation agent1 loc_bar_9)", "", "puts the agent at 0 places|has no house"),
        (
            "(receptacleAtLocation Fridge_bar_1 loc_bar_5)",
            "",
            "without a place or with two: fridge_bar_1",
        ),
        (
            "(openable Fridge_bar_1)",
            "(receptacleAtLocation Fridge_bar_1 loc_bar_9)",
            "without a place or with two",
        ),
    ],
)
def test_what_is_no_house_is_refused(problem, old, new, words):
    text = problem()
    assert old in text
    with pytest.raises(ValueError, match=words):
        make_world(parse_problem(text.replace(old, new)), "", get_dialect("current"))


def test_things_of_a_kind_are_numbered_backwards_in_the_order_of_their_ids():
    ids = [
        "mug_bar__plus_02_dot_10",
        "mug_bar__minus_00_dot_50",
        "fridge_bar__plus_1",
        "mug_bar__plus_02_dot_05",
    ]
    names = name_all([*ids, ids[0]])
    assert [names[id] for id in sorted(ids)] == ["fridge 1", "mug 3", "mug 2", "mug 1"]


def test_a_basin_is_named_after_its_sink_and_counted_apart():
    names = name_all(
        ["sink_bar_1", "sink_bar_1_bar_sinkbasin", "bathtub_bar_2_bar_bathtubbasin", "sink_bar_2"]
    )
    assert names["sink_bar_1_bar_sinkbasin"] == "sinkbasin 1" and names["sink_bar_1"] == "sink 2"
    assert names["bathtub_bar_2_bar_bathtubbasin"] == "bathtubbasin 1"


def test_an_id_without_a_position_is_its_own_name():
    assert name_all(["desktype", "a_comma_b"]) == {"desktype": "desktype ", "a_comma_b": "a,b "}


def test_sets_are_iterated_in_order():
    assert list(iterate_bits(0)) == []
    assert list(iterate_bits(1 << 70 | 0b1011)) == [0, 1, 3, 70]


def test_one_value_is_changed():
    assert replace_item((1, 2, 3), 0, 9) == (9, 2, 3) and replace_item((1, 2, 3), 2, 9) == (1, 2, 9)
