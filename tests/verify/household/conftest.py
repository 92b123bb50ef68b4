"""A made-up house for the counts, as a row of games, its catalogue, and a recorded episode of it."""

import json

import pytest

from turngym.envs.household import commands, intro, step
from turngym.tests.verify.household.catalogue import Catalogue

ID = "valid_seen/pick_heat_then_place_in_recep-Apple-None-SideTable-1/trial_1"
TASK = "Your task is to: put a hot apple in sidetable."
WALK = [
    "go to microwave 1",
    "open microwave 1",
    "take apple 1 from microwave 1",
    "heat apple 1 with microwave 1",
    "go to sidetable 1",
    "move apple 1 to sidetable 1",
]
PROBLEM = """(define (problem house) (:domain alfred)
  (:objects agent1 - agent Microwave_bar_1 - receptacle SideTable_bar_1 - receptacle SideTable_bar_2 - receptacle
    Apple_bar_1 - object DeskLamp_bar_1 - object loc_bar_1 - location loc_bar_2 - location loc_bar_3 - location)
  (:init (= (total-cost) 0) (atLocation agent1 loc_bar_3) (receptacleAtLocation Microwave_bar_1 loc_bar_1)
    (receptacleAtLocation SideTable_bar_1 loc_bar_2) (receptacleAtLocation SideTable_bar_2 loc_bar_2)
    (receptacleType Microwave_bar_1 MicrowaveType) (receptacleType SideTable_bar_1 SideTableType)
    (receptacleType SideTable_bar_2 SideTableType) (objectType Apple_bar_1 AppleType)
    (objectType DeskLamp_bar_1 DeskLampType) (inReceptacle Apple_bar_1 Microwave_bar_1)
    (objectAtLocation Apple_bar_1 loc_bar_1) (inReceptacle DeskLamp_bar_1 SideTable_bar_1)
    (objectAtLocation DeskLamp_bar_1 loc_bar_2) (openable Microwave_bar_1) (pickupable Apple_bar_1)
    (heatable Apple_bar_1) (toggleable DeskLamp_bar_1) (canContain MicrowaveType AppleType)
    (canContain SideTableType AppleType))
  (:goal (and (exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) (objectType ?o AppleType)
    (receptacleType ?r SideTableType) (isHot ?o) (inReceptacle ?o ?r)))))))"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of its own for every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def row():
    """The house as a row of games."""
    return {
        "id": ID,
        "split": "valid_seen",
        "task_type": "pick_heat_then_place_in_recep",
        "task": TASK,
        "pddl_problem": PROBLEM,
        "walkthrough": WALK,
        "solvable": True,
    }


@pytest.fixture
def write(tmp_path):
    """Writes rows to a file in the folder of the test."""

    def written(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return written


@pytest.fixture
def catalogue(row, write):
    """The house alone."""
    return Catalogue([write("games.jsonl", [row])])


@pytest.fixture
def recorded(catalogue):
    """The walkthrough, written down as the real engine's episodes are."""
    world = catalogue.read(0).world()
    state, steps = world.start, []
    for action in ["dance", *WALK]:
        state, text = step(world, state, action)
        won = world.is_won(state)
        seen = {"action": action, "observation": text, "reward": int(won), "done": won, "won": won}
        steps.append({**seen, "admissible": commands(world, state)})
    opening = {"init_obs": intro(world), "init_admissible": commands(world, world.start)}
    return {"game_id": ID, **opening, "steps": steps}
