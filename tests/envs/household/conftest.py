"""A house made up for tests: two drawers at one place, a kitchen, a lamp and a knife."""

import json

import pytest

from turngym.envs.household.game import game_of_row
from turngym.envs.household.pddl import parse_problem
from turngym.envs.household.world import get_dialect, make_world

PLACES = {
    "Drawer_bar__plus_01_dot_00": "loc_bar_1",
    "Drawer_bar__plus_02_dot_00": "loc_bar_1",
    "SideTable_bar__minus_01_dot_00": "loc_bar_2",
    "Sink_bar_1_bar_SinkBasin": "loc_bar_3",
    "Microwave_bar_1": "loc_bar_4",
    "Fridge_bar_1": "loc_bar_5",
}
TYPES = (
    "DrawerType",
    "DrawerType",
    "SideTableType",
    "SinkBasinType",
    "MicrowaveType",
    "FridgeType",
)
THINGS = {
    "Apple_bar_1": "SideTable_bar__minus_01_dot_00",
    "Apple_bar_2": "Drawer_bar__plus_01_dot_00",
    "Mug_bar_1": "SideTable_bar__minus_01_dot_00",
    "Knife_bar_1": "SideTable_bar__minus_01_dot_00",
    "DeskLamp_bar_1": "SideTable_bar__minus_01_dot_00",
}
PLACED = """(exists (?r - receptacle) (exists (?o - object)
    (and {} (inReceptacle ?o ?r) (objectType ?o {}) (receptacleType ?r {}))))"""
GOALS = {
    "place": PLACED.format("", "AppleType", "DrawerType"),
    "heat": PLACED.format("(heatable ?o) (isHot ?o)", "AppleType", "SideTableType"),
    "two": """(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType) (inReceptacle ?o1 ?r)
        (receptacleType ?r DrawerType) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 AppleType)
        (receptacleType ?r DrawerType) (inReceptacle ?o2 ?r))))))""",
    "light": """(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType)
        (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
        (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o)))""",
}


def problem_text(goal=GOALS["heat"], facts="", objects=""):
    """The house as PDDL, with a goal and further facts and objects."""
    typed = {**dict.fromkeys(PLACES, "receptacle"), **dict.fromkeys(THINGS, "object")}
    typed |= dict.fromkeys([*PLACES.values(), "loc_bar_9"], "location")
    lines = [f"(receptacleAtLocation {r} {at})" for r, at in PLACES.items()]
    lines += [f"(receptacleType {r} {kind})" for r, kind in zip(PLACES, TYPES)]
    kinds = {thing: thing.partition("_bar_")[0] + "Type" for thing in THINGS}
    lines += [f"(objectType {thing} {kind})" for thing, kind in kinds.items()]
    lines += [
        f"(inReceptacle {thing} {r}) (objectAtLocation {thing} {PLACES[r]})"
        for thing, r in THINGS.items()
    ]
    lines += [
        f"(canContain {kind} {thing})"
        for kind in set(TYPES)
        for thing in ("AppleType", "MugType", "KnifeType")
    ]
    lines += [f"(pickupable {thing})" for thing in THINGS if "Lamp" not in thing]
    apples = [thing for thing in THINGS if "Apple" in thing]
    lines += [
        f"({can}able {apple})" for can in ("heat", "cool", "clean", "slice") for apple in apples
    ]
    lines += [
        f"(openable {r})"
        for r, kind in zip(PLACES, TYPES)
        if kind in ("DrawerType", "MicrowaveType", "FridgeType")
    ]
    return f"""(define (problem house) ; made up
      (:domain alfred)
      (:objects agent1 - agent {" ".join(f"{id} - {kind}" for id, kind in typed.items())} {objects})
      (:init (= (total-cost) 0) (atLocation agent1 loc_bar_9) {" ".join(lines)}
        (toggleable DeskLamp_bar_1) (isReceptacleObject Mug_bar_1) {facts})
      (:goal (and {goal})))"""


TASK = "Your task is to: put a hot apple in sidetable."
WALK = [
    "go to sidetable 1",
    "take apple 2 from sidetable 1",
    "go to microwave 1",
    "heat apple 2 with microwave 1",
    "go to sidetable 1",
    "move apple 2 to sidetable 1",
]


@pytest.fixture
def problem():
    """Makes the PDDL text of the house."""
    return problem_text


@pytest.fixture
def goals():
    """A goal of each kind, as PDDL."""
    return dict(GOALS)


@pytest.fixture
def make_house(goals):
    """Makes the house."""

    def make(goal="heat", facts="", text="current"):
        return make_world(
            parse_problem(problem_text(goals.get(goal, goal), facts)), TASK, get_dialect(text)
        )

    return make


@pytest.fixture
def house(make_house):
    """The house, with a hot apple to be put on the side table."""
    return make_house()


@pytest.fixture
def row():
    """The house as a row of a JSONL file."""
    return {
        "id": "valid_seen/pick_heat_then_place_in_recep-Apple-None-SideTable-1/trial_1",
        "split": "valid_seen",
        "task_type": "pick_heat_then_place_in_recep",
        "task": TASK,
        "walkthrough": WALK,
        "pddl_problem": problem_text(),
        "solvable": True,
    }


@pytest.fixture
def game(row):
    """The house as a game."""
    return game_of_row(row, "here")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of its own for every test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    return folder / "turngym" / "household"


@pytest.fixture
def write_rows(tmp_path):
    """Writes rows to a file in the folder of the test."""

    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write
