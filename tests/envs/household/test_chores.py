import pytest

from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.house import (
    APPLIANCES,
    FOR_ONE,
    LAMP,
    OPENABLE,
    PAIRED,
    PORTABLE,
    ROOMS,
    THINGS,
    Chore,
    chores,
    list_hiding_places,
)
from turngym.envs.household.pddl import parse_problem

STANDING = {kind for room in ROOMS.values() for kind in room}


def test_the_tables_are_read_whole():
    assert set(ROOMS) == {"kitchen", "livingroom", "bedroom", "bathroom", "study"}
    assert ROOMS["kitchen"]["cabinet"] == 12 and ROOMS["kitchen"]["garbagecan"] == 1
    assert len(THINGS) == 51 and len(STANDING) == 27
    apple = THINGS["apple"]
    assert apple.can == {"clean", "heat", "cool", "slice"} and apple.usual == (
        "countertop",
        "diningtable",
        "fridge",
    )
    assert apple.fits == (*apple.usual, "sinkbasin", "garbagecan", "microwave", "sidetable")
    assert THINGS["desklamp"].can == {"lamp"} and set(PORTABLE) == set(THINGS) - {LAMP}


def test_the_tables_name_only_what_is_in_them():
    for kind in THINGS.values():
        assert (
            kind.usual and set(kind.fits) <= STANDING and len(set(kind.fits)) == len(kind.fits)
        ), kind
        assert kind.can <= {"clean", "heat", "cool", "slice", "cut", "vessel", "lamp"}, kind
    assert OPENABLE | PAIRED | FOR_ONE | set(APPLIANCES.values()) <= STANDING


def test_everything_that_stands_there_can_hold_something():
    held = {place for kind in THINGS.values() for place in kind.fits}
    assert held == STANDING


def test_what_is_heated_or_cooled_fits_there():
    for verb in ("heat", "cool"):
        for kind in THINGS.values():
            assert verb not in kind.can or APPLIANCES[verb] in kind.fits, kind


PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_every_chore_can_be_done(task_type):
    found = chores(task_type)
    assert len(found) > 5
    for thing, of_thing in found.items():
        for chore in of_thing:
            kind = THINGS[thing]
            assert chore.thing == thing and chore.verb in ("", *kind.can) and "lamp" not in kind.can
            assert chore.target == LAMP if task_type == LOOK else chore.target in kind.fits
            assert chore.sources() and not {chore.target, chore.appliance} & set(chore.sources())
    assert ("saltshaker" in found) == (task_type in (PLACE, LOOK, TWO))
    assert ("toiletpaperhanger" in {chore.target for chore in found.get("toiletpaper", ())}) == (
        task_type == PLACE
    )


@pytest.mark.parametrize(
    ("task_type", "forms"),
    [
        (PLACE, ("put a mug in desk", "put some mug on desk")),
        (LOOK, ("look at mug under the desklamp", "examine the mug with the desklamp")),
        (CLEAN, ("put a clean mug in desk", "clean some mug and put it in desk")),
        (HEAT, ("put a hot mug in desk", "heat some mug and put it in desk")),
        (COOL, ("put a cool mug in desk", "cool some mug and put it in desk")),
        (TWO, ("put two mug in desk", "find two mug and put them in desk")),
    ],
)
def test_the_sentences(task_type, forms):
    chore = Chore(task_type, "mug", LAMP if task_type == LOOK else "desk")
    assert tuple(chore.sentence(form) for form in (0, 1)) == tuple(
        f"Your task is to: {form}." for form in forms
    )


def test_the_goals_are_those_of_the_official_games(official_goals):
    for (task_type, thing, target), goal in official_goals.items():
        ours = Chore(task_type, thing, target).goal()
        assert _literals(ours) == _literals(goal), task_type


def _literals(expression):
    """The literals of a goal in any order, `and` and the nesting of `exists` aside."""
    if expression[0] == "and":
        return sorted(literal for part in expression[1:] for literal in _literals(part))
    if expression[0] == "exists":
        return sorted([*_pairs(expression[1]), *_literals(expression[2])])
    return [repr(expression)]


def _pairs(words):
    return [f"{variable} is {kind}" for variable, kind in zip(words[::3], words[2::3], strict=True)]


@pytest.fixture
def official_goals():
    """A goal of each type, written as the official games have it."""
    placed = """(define (:objects) (:init) (:goal (and (exists (?r - receptacle) (exists (?o - object) (and {}
        (objectType ?o MugType) (receptacleType ?r DeskType) {} (inReceptacle ?o ?r)))))))"""
    two = """(define (:objects) (:init) (:goal (and (exists (?r - receptacle) (exists (?o1 - object) (and
        (objectType ?o1 MugType) (receptacleType ?r DeskType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and
        (not (= ?o1 ?o2)) (objectType ?o2 MugType) (receptacleType ?r DeskType) (inReceptacle ?o2 ?r)))))))))"""
    light = """(define (:objects) (:init) (:goal (and (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
        (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
        (atLocation ?a ?l) (inReceptacle ?ot ?r))) (exists (?o - object ?a - agent) (and (objectType ?o MugType)
        (holds ?a ?o))))))"""
    texts = {
        (PLACE, "mug", "desk"): placed.format("", ""),
        (LOOK, "mug", "desklamp"): light,
        (CLEAN, "mug", "desk"): placed.format("(cleanable ?o)", "(isClean ?o)"),
        (HEAT, "mug", "desk"): placed.format("(heatable ?o)", "(isHot ?o)"),
        (COOL, "mug", "desk"): placed.format("(coolable ?o)", "(isCool ?o)"),
        (TWO, "mug", "desk"): two,
    }
    return {key: parse_problem(text).goal for key, text in texts.items()}


def test_where_wanted_things_lie():
    chore = Chore(PLACE, "pen", "desk")
    assert chore.sources() == (
        "drawer",
        "sidetable",
        "dresser",
        "shelf",
        "coffeetable",
        "diningtable",
        "garbagecan",
        "countertop",
    )
    assert list_hiding_places(chore, usual=True, hidden=None) == ("drawer",)
    assert (
        list_hiding_places(chore, usual=True, hidden=False) == chore.sources()[1:]
    )  # where they usually lie is to be opened
    assert list_hiding_places(chore, usual=True, hidden=True) == ("drawer",)
    assert list_hiding_places(chore, usual=False, hidden=True) == (
        "drawer",
    )  # there is no unlikely one to open
    assert list_hiding_places(chore, usual=False, hidden=None) == chore.sources()[1:]
    cool = Chore(COOL, "apple", "countertop")
    assert list_hiding_places(cool, usual=True, hidden=None) == (
        "diningtable",
    )  # not the fridge, which would cool it
