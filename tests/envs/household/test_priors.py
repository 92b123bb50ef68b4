import json
import lzma
from itertools import islice

from turngym.envs.household.game import game_of_row
from turngym.envs.household.priors import FILE, RARE, Priors, count, load_priors, to_json


def test_shares_of_the_house(make_house):
    house = make_house()
    priors = count([house, make_house(facts="(opened Drawer_bar__plus_01_dot_00)")])
    assert priors.found["apple"] == {"drawer": 0.5, "sidetable": 1.0}  # one of two drawers, the one side table
    assert priors.found["mug"] == {"sidetable": 1.0}
    assert priors.shut["drawer"] == 0.75 and priors.shut["fridge"] == 1.0 and priors.shut["sidetable"] == 0.0
    assert priors.chance("apple", "drawer") == 0.5
    assert priors.chance("apple", "fridge") == priors.chance("sword", "moat") == RARE


def test_as_json(make_house):
    priors = count([make_house()])
    assert Priors(**json.loads(to_json(priors))) == priors


def test_the_file_is_what_is_counted_in_the_train_split(shared_data):
    priors = load_priors()
    assert to_json(priors) == FILE.read_text("utf-8")
    with lzma.open(shared_data / "household" / "games_train.jsonl.xz", "rt") as lines:
        some = count(game_of_row(json.loads(line), "train").world() for line in islice(lines, 0, None, 40))
    assert set(some.found) <= set(priors.found) and set(some.shut) <= set(priors.shut)
    for kind, shares in some.found.items():
        assert set(shares) <= set(priors.found[kind]), kind
    assert abs(some.found["mug"]["coffeemachine"] - priors.found["mug"]["coffeemachine"]) < 0.1
    assert abs(some.shut["drawer"] - priors.shut["drawer"]) < 0.1
