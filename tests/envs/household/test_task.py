import lzma

import pytest

from turngym.envs.household.task import Task, read_task


@pytest.mark.parametrize(
    ("sentence", "task"),
    [
        ("put a mug in shelf", Task("mug", "shelf")),
        ("put some mug on shelf", Task("mug", "shelf")),
        ("find some apple and put it in sidetable", Task("apple", "sidetable")),
        ("put a clean lettuce in diningtable", Task("lettuce", "diningtable", "clean")),
        ("put a hot egg in fridge", Task("egg", "fridge", "hot")),
        ("put a cool pan in stoveburner", Task("pan", "stoveburner", "cool")),
        ("clean some soapbar and put it in toilet", Task("soapbar", "toilet", "clean")),
        ("heat some egg and put it in fridge", Task("egg", "fridge", "hot")),
        ("cool some pan and put it in stoveburner", Task("pan", "stoveburner", "cool")),
        ("put two creditcard in dresser", Task("creditcard", "dresser", number=2)),
        ("find two cellphone and put them in sofa", Task("cellphone", "sofa", number=2)),
        ("examine the bowl with the desklamp", Task("bowl", lamp="desklamp")),
        ("look at pen under the desklamp", Task("pen", lamp="desklamp")),
    ],
)
def test_every_form_of_sentence(sentence, task):
    assert read_task(f"-= Welcome =-\n\nYou are in a room.\n\nYour task is to: {sentence}.") == task
    assert read_task(f"Your task is to: {sentence}.\n\nAdmissible commands:\nlook") == task


def test_a_task_of_another_form_is_named():
    with pytest.raises(ValueError, match="'paint the wall' is in none of ALFWorld's forms"):
        read_task("Your task is to: paint the wall.")
    with pytest.raises(ValueError, match="'You are here' states no task"):
        read_task("You are here")


def test_the_sentences_of_official_games_mean_their_task_types(shared_data):
    states = {"clean": "clean", "heat": "hot", "cool": "cool"}
    found = 0
    for name in ("valid_seen_A", "valid_unseen_A"):
        with lzma.open(shared_data / "household" / f"games_{name}.jsonl.xz", "rt") as rows:
            for line in rows:
                # the folder of a game says what it asks for: pick_cool_then_place_in_recep-Mug-None-Shelf-10
                id, _, sentence = line.partition('"task": "')
                kind, thing, _, target, _ = id.partition('"id": "')[2].split("/")[1].split("-")
                task = read_task(sentence.partition('"')[0])
                state, number = states.get(kind.split("_")[1], ""), 2 if "two" in kind else 1
                lamp = "desklamp" if "light" in kind else ""
                wanted = Task(thing.lower(), "" if lamp else target.lower(), state, number, lamp)
                assert task.target.removesuffix("basin") == wanted.target.removesuffix("basin")
                assert (task.kind, task.state, task.number, task.lamp) == (thing.lower(), state, number, lamp)
                found += 1
    assert found == 141
