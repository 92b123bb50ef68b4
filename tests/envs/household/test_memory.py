import json
import lzma

import pytest

from turngym.envs.household.expert import Memory, kind_of, parse_task
from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.house import Chore

PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES


@pytest.mark.parametrize(
    ("sentence", "task"),
    [
        ("put a mug in shelf", Chore(PLACE, "mug", "shelf")),
        ("put some mug on shelf", Chore(PLACE, "mug", "shelf")),
        ("find some apple and put it in sidetable", Chore(PLACE, "apple", "sidetable")),
        ("put a clean lettuce in diningtable", Chore(CLEAN, "lettuce", "diningtable")),
        ("put a hot egg in fridge", Chore(HEAT, "egg", "fridge")),
        ("put a cool pan in stoveburner", Chore(COOL, "pan", "stoveburner")),
        ("clean some soapbar and put it in toilet", Chore(CLEAN, "soapbar", "toilet")),
        ("heat some egg and put it in fridge", Chore(HEAT, "egg", "fridge")),
        ("cool some pan and put it in stoveburner", Chore(COOL, "pan", "stoveburner")),
        ("put two creditcard in dresser", Chore(TWO, "creditcard", "dresser")),
        ("find two cellphone and put them in sofa", Chore(TWO, "cellphone", "sofa")),
        ("examine the bowl with the desklamp", Chore(LOOK, "bowl", "desklamp")),
        ("look at pen under the desklamp", Chore(LOOK, "pen", "desklamp")),
    ],
)
def test_every_form_of_sentence(sentence, task):
    assert (
        parse_task(f"-= Welcome =-\n\nYou are in a room.\n\nYour task is to: {sentence}.") == task
    )
    assert parse_task(f"Your task is to: {sentence}.\n\nAdmissible commands:\nlook") == task


def test_a_task_of_another_form_is_named():
    with pytest.raises(ValueError, match="'paint the wall' is in none of ALFWorld's forms"):
        parse_task("Your task is to: paint the wall.")
    with pytest.raises(ValueError, match="'You are here' states no task"):
        parse_task("You are here")


def test_the_sentences_of_official_games_mean_their_task_types(shared_data):
    found = 0
    for name in ("valid_seen_A", "valid_unseen_A"):
        with lzma.open(shared_data / "household" / f"games_{name}.jsonl.xz", "rt") as rows:
            for line in rows:
                # the folder of a game says what it asks for: pick_cool_then_place_in_recep-Mug-None-Shelf-10
                id, _, sentence = line.partition('"task": "')
                kind, thing, _, target, _ = id.partition('"id": "')[2].split("/")[1].split("-")
                task = parse_task(sentence.partition('"')[0])
                assert (task.task_type, task.thing) == (kind, thing.lower())
                wanted = "desklamp" if "light" in kind else target.lower()
                assert task.target.removesuffix("basin") == wanted.removesuffix("basin")
                found += 1
    assert found == 141


ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, "
    "you see a drawer 2, a drawer 1, and a sidetable 1.\n\nYour task is to: put a mug 7 in drawer."
)


def test_the_first_text_lists_the_receptacles():
    memory = Memory.from_first_text(ROOM)
    assert memory.receptacles == ["sidetable 1", "drawer 1", "drawer 2"]
    assert memory.list_receptacles("drawer") == ["drawer 1", "drawer 2"]
    assert kind_of("drawer 12") == "drawer"


def test_what_lies_where_and_what_is_closed():
    memory = Memory.from_first_text(ROOM)
    memory.update(
        "go to sidetable 1",
        "You arrive at sidetable 1. On the sidetable 1, you see a mug 2, and a mug 1.",
    )
    assert memory.find_things("mug") == [("mug 2", "sidetable 1"), ("mug 1", "sidetable 1")]
    assert memory.within_reach == {"sidetable 1"} and memory.uses_old_text is False
    memory.update("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")
    assert memory.within_reach == {"drawer 1"} and memory.closed == {"drawer 1"}
    assert (
        memory.was_seen("drawer 1")
        and memory.was_seen("sidetable 1")
        and not memory.was_seen("drawer 2")
    )
    memory.update(
        "open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see nothing."
    )
    assert memory.closed == set() and memory.contents["drawer 1"] == []
    memory.update("close drawer 1", "You close the drawer 1.")
    assert memory.closed == {"drawer 1"} and memory.was_seen("drawer 1")


def test_what_is_in_hand_and_how_it_was_treated():
    memory = Memory.from_first_text(ROOM)
    memory.update("go to sidetable 1", "You arrive at loc 4. On the sidetable 1, you see a mug 1.")
    assert memory.uses_old_text is True and memory.within_reach == {"sidetable 1"}
    memory.update("take mug 1 from sidetable 1", "You pick up the mug 1 from the sidetable 1.")
    assert memory.in_hand == "mug 1" and memory.find_things("mug") == []
    memory.update("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1.")
    memory.update("clean mug 1 with sinkbasin 1", "You clean the mug 1 using the sinkbasin 1.")
    assert memory.states == {"mug 1": {"hot", "clean"}}
    memory.update("cool mug 1 with fridge 1", "You cool the mug 1 using the fridge 1.")
    assert memory.states == {"mug 1": {"cool", "clean"}}
    memory.update("put mug 1 in/on drawer 1", "You put the mug 1 in/on the drawer 1.")
    assert memory.in_hand == "" and memory.find_things("mug") == [("mug 1", "drawer 1")]
    memory.update("move mug 1 to drawer 1", "You move the mug 1 to the drawer 1.")
    assert memory.in_hand == ""


def test_who_cannot_go_somewhere_is_there():
    memory = Memory.from_first_text(ROOM)
    memory.update("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed.")
    memory.update("go to drawer 2", "Nothing happens.")
    assert memory.within_reach == {"drawer 1", "drawer 2"} and memory.refused == set()
    memory.update(
        "go to sidetable 1", "You arrive at sidetable 1. On the sidetable 1, you see nothing."
    )
    memory.update("go to drawer 2", "You arrive at drawer 2. The drawer 2 is closed.")
    assert memory.within_reach == {"drawer 1", "drawer 2"}


def test_what_was_refused_until_all_is_forgotten():
    memory = Memory.from_first_text(ROOM)
    memory.update("go to nowhere 1", "Nothing happens.")
    memory.update("take mug 1 from sidetable 1", "Nothing happens.")
    assert memory.refused == {"go to nowhere 1", "take mug 1 from sidetable 1"}
    memory.contents["drawer 1"] = []
    memory.forget()
    assert memory.refused == set() and memory.contents == {} and len(memory.receptacles) == 3


def test_published_episodes_are_understood(shared_data):
    """The demonstrations of ReAct and AgentBench end with the thing where it belongs, or in hand under the lamp."""
    lines = (shared_data / "household" / "demo_episodes_old_format.jsonl").read_text().splitlines()
    assert len(lines) == 27
    for episode in map(json.loads, lines):
        memory = Memory.from_first_text(episode["init_obs"])
        for step in episode["steps"]:
            memory.update(step["action"], step["observation"])
        last = episode["steps"][-1]["action"].split()
        if last[0] == "put":
            assert (f"{last[1]} {last[2]}", f"{last[4]} {last[5]}") in memory.find_things(
                last[1]
            ), episode["id"]
        else:
            assert last[0] == "use" and memory.in_hand and memory.find_things(last[1]), episode[
                "id"
            ]
