from turngym.envs.household.names import name_all


def test_things_of_a_kind_are_numbered_backwards_in_the_order_of_their_ids():
    ids = ["mug_bar__plus_02_dot_10", "mug_bar__minus_00_dot_50", "fridge_bar__plus_1", "mug_bar__plus_02_dot_05"]
    names = name_all([*ids, ids[0]])
    assert [names[id] for id in sorted(ids)] == ["fridge 1", "mug 3", "mug 2", "mug 1"]


def test_a_basin_is_named_after_its_sink_and_counted_apart():
    names = name_all(["sink_bar_1", "sink_bar_1_bar_sinkbasin", "bathtub_bar_2_bar_bathtubbasin", "sink_bar_2"])
    assert names["sink_bar_1_bar_sinkbasin"] == "sinkbasin 1" and names["sink_bar_1"] == "sink 2"
    assert names["bathtub_bar_2_bar_bathtubbasin"] == "bathtubbasin 1"


def test_an_id_without_a_position_is_its_own_name():
    assert name_all(["desktype", "a_comma_b"]) == {"desktype": "desktype ", "a_comma_b": "a,b "}
