from collections import Counter
from statistics import mean

import pytest

from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.generate import DIFFICULTIES, MAX_COPIES, SIZES, draw_house
from turngym.envs.household.house import (
    FOR_ONE,
    OPENABLE,
    PAIRED,
    ROOMS,
    THINGS,
    House,
    list_hiding_places,
)
from turngym.envs.keyed_random import KeyedRandom
from turngym.envs.splits import SPLIT_SHARES, text_share


def drawn(size="small", difficulty=3, split="train", number=20):
    """Some houses of each task type."""
    return [
        draw_house(
            task_type, size, difficulty, split, KeyedRandom("test", i, size, difficulty, split)
        )
        for task_type in TASK_TYPES
        for i in range(number)
    ]


@pytest.mark.parametrize("size", SIZES)
def test_a_house_is_of_its_size_and_makes_sense(size):
    for house in drawn(size, 2, number=12):
        limits, kinds = SIZES[size], Counter(receptacle.kind for receptacle in house.receptacles)
        assert limits.receptacles[0] <= len(house.receptacles) <= limits.receptacles[1]
        assert limits.things[0] <= len(house.things) <= limits.things[1]
        assert len(set(house.rooms)) == len(house.rooms) <= max(3, limits.rooms[1])
        for kind, number in kinds.items():
            assert number <= sum(ROOMS[room].get(kind, 0) for room in house.rooms), kind
        assert len({receptacle.name for receptacle in house.receptacles}) == len(house.receptacles)
        assert len({thing.name for thing in house.things}) == len(house.things)
        for thing in house.things:
            assert house.receptacles[thing.inside].kind in THINGS[thing.kind].fits
        others = Counter(thing.kind for thing in house.things if thing.kind != house.chore.thing)
        assert max(others.values()) <= MAX_COPIES


@pytest.mark.parametrize("size", SIZES)
def test_two_of_a_kind_may_be_reached_from_one_place(size):
    for house in drawn(size, 2, number=12):
        places = Counter(receptacle.place for receptacle in house.receptacles)
        assert sorted(places) == list(range(1, len(places) + 1))
        assert size != "tiny" or set(places.values()) == {1}
        for place in [place for place, number in places.items() if number > 1]:
            kinds = {
                receptacle.kind for receptacle in house.receptacles if receptacle.place == place
            }
            assert len(kinds) == 1 and kinds <= PAIRED


@pytest.mark.parametrize("size", SIZES)
def test_there_are_turns_enough_to_look_everywhere_and_do_the_chore(size):
    for house in drawn(size, 5, number=12):
        opened = sum(receptacle.kind in OPENABLE for receptacle in house.receptacles)
        rest = [command for command in house.walkthrough() if not command.startswith("open")][1:]
        assert len(house.receptacles) + opened + len(rest) <= SIZES[size].turns


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_wanted_things_lie_where_the_difficulty_says(difficulty):
    level, spare = DIFFICULTIES[difficulty], set()
    for house in drawn(difficulty=difficulty):
        wanted = [thing for thing in house.things if thing.kind == house.chore.thing]
        places = {house.receptacles[thing.inside].kind for thing in wanted}
        assert list(house.things[: len(wanted)]) == wanted
        assert places <= set(list_hiding_places(house.chore, level.usual, level.hidden))
        assert not places & {house.chore.target, house.chore.appliance}
        spare.add(len(wanted) - house.chore.number)
    assert spare == set(range(level.spare + 1))


def test_they_are_harder_to_find_the_higher_it_is():
    def hidden(difficulty):
        houses = drawn(difficulty=difficulty, number=40)
        return mean(house.receptacles[house.things[0].inside].kind in OPENABLE for house in houses)

    assert hidden(1) < 0.1 < hidden(3) < 0.5 < hidden(4)


def test_houses_differ():
    houses = drawn(number=60)
    assert len({house.signature for house in houses}) == len(houses)
    assert len({house.chore for house in houses}) > len(houses) / 2
    assert {room for house in houses for room in house.rooms} == set(ROOMS)
    assert {house.form for house in houses} == {0, 1}
    assert {thing.kind for house in houses for thing in house.things} == set(THINGS)
    shared = sum(
        len({receptacle.place for receptacle in house.receptacles}) < len(house.receptacles)
        for house in houses
    )
    assert 0.1 < shared / len(houses) < 0.9
    tiny = drawn("tiny", number=60)
    assert len({house.signature for house in tiny}) > 0.98 * len(tiny)


@pytest.mark.parametrize("split", SPLIT_SHARES)
def test_what_the_task_is_decides_the_split(split):
    low, high = SPLIT_SHARES[split]
    for size in ("tiny", "small"):
        for house in drawn(size, split=split, number=5):
            assert low <= text_share(house.signature) < high
    assert sorted(share for shares in SPLIT_SHARES.values() for share in shares) == [
        0,
        0.1,
        0.1,
        0.2,
        0.2,
        1,
    ]


def test_nothing_but_the_dice_decides(monkeypatch):
    house = drawn(number=1)[0]
    assert drawn(number=1)[0] == house and drawn(split="valid", number=1)[0] != house
    assert text_share("the same") > 0.2  # so it lies with `train`
    monkeypatch.setattr(House, "signature", "the same")
    with pytest.raises(
        RuntimeError, match="pick_and_place_simple at size tiny has no house for split valid"
    ):
        monkeypatch.setattr("turngym.envs.household.generate.ATTEMPTS", 3)
        draw_house(TASK_TYPES[0], "tiny", 1, "valid", KeyedRandom(0))


def test_only_one_thing_hangs_where_one_hangs():
    assert not any(
        house.chore.number == 2 and house.chore.target in FOR_ONE for house in drawn(number=60)
    )
