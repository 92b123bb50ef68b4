"""What a game's name says of its task."""

import pytest

from turngym.envs.household import game_of_row
from turngym.tests.verify.household.goals import Aim, aim_of


def test_names_are_read(row):
    def read(name):
        return aim_of(game_of_row({**row, "id": name}, "here"))

    assert read(row["id"]) == Aim("pick_heat_then_place_in_recep", "apple", "sidetable")
    assert read("pick_and_place_simple-Mug-None-Sink-1/t") == Aim("pick_and_place_simple", "mug", "sinkbasin")
    assert read("made-up") is None


@pytest.mark.parametrize(
    ("aim", "change", "reached"),
    [
        (Aim("pick_and_place_simple", "apple", "microwave"), {}, True),
        (Aim("pick_and_place_simple", "apple", "sidetable"), {}, False),
        (Aim("pick_heat_then_place_in_recep", "apple", "microwave"), {}, False),
        (Aim("pick_heat_then_place_in_recep", "apple", "microwave"), {"hot": 1}, True),
        (Aim("pick_cool_then_place_in_recep", "apple", "microwave"), {"hot": 1}, False),
        (Aim("pick_clean_then_place_in_recep", "apple", "microwave"), {"clean": 1}, True),
        (Aim("pick_two_obj_and_place", "apple", "microwave"), {}, False),
        (Aim("look_at_obj_in_light", "apple", "desklamp"), {"held": 0, "toggled": 2, "place": 1}, True),
        (Aim("look_at_obj_in_light", "apple", "desklamp"), {"held": 0, "toggled": 2, "place": 0}, False),
        (Aim("look_at_obj_in_light", "apple", "desklamp"), {"held": 0, "place": 1}, False),
        (Aim("look_at_obj_in_light", "apple", "desklamp"), {"toggled": 2, "place": 1}, False),
    ],
)
def test_what_is_reached(catalogue, aim, change, reached):
    world = catalogue.read(0).world()
    assert aim.reached(world, world.start._replace(**change)) == reached
