import random

import pytest

import turngym
from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.generate import LEVELS, SIZES
from turngym.envs.household.household import SHORT, HouseholdEnv, Houses, make_household
from turngym.envs.household.library import open_games
from turngym.envs.household.play import intro


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ["current", "old"])
def test_the_gold_of_every_house_wins(size, text):
    env = make_household(size=size, difficulty=tuple(LEVELS), text=text)
    for i in range(40):
        env.reset(options={"task": i})
        actions, reward, done = env.gold(), 0.0, False
        for action in actions:
            assert (reward, done) == (0, False)
            _, reward, done, cut, info = env.step(action)
            assert info["allowed"] and not cut
        assert (reward, done, info["won"], info["stop"]) == (1, True, True, "goal")
        assert 3 <= len(actions) <= 11


def test_a_house_depends_on_its_index_alone():
    one, again = (Houses(size="tiny", difficulty=2, task_types=TASK_TYPES[3], seed=5) for _ in range(2))
    assert [again[i] for i in (7, 3, 900_000)] == [one[i] for i in (7, 3, 900_000)]
    assert one[7].id == "pick_heat_then_place_in_recep-tiny-2-train-5-7" and one[7].split == "train"
    assert one.open(7)[1] is again.open(7)[1]  # made once
    others = Houses(size="tiny", difficulty=2, task_types=TASK_TYPES[3], seed=6)
    assert others[7].problem != one[7].problem != one[8].problem


KNOWN = (
    "pick_heat_then_place_in_recep-tiny-1-train-0-0",
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a desk 1, and a "
    "microwave 1.\n\nYour task is to: put a hot plate in cabinet.",
    (
        "go to countertop 1",
        "take plate 1 from countertop 1",
        "go to microwave 1",
        "heat plate 1 with microwave 1",
        "go to cabinet 1",
        "open cabinet 1",
        "move plate 1 to cabinet 1",
    ),
)


def test_a_known_house_stays_as_it_is():
    game, world = Houses(size="tiny", difficulty=1).open(0)
    assert (game.id, intro(world).partition("\n\n")[2], game.walkthrough) == KNOWN


def test_splits_share_no_task():
    seen = {}
    for split in ("train", "valid", "test"):
        for seed in (0, 1):
            houses = Houses(split, "tiny", 1, TASK_TYPES[0], seed)
            for i in range(60):
                game, world = houses.open(i)
                # What an agent can find out, and what it has to do.
                key = (*world.receptacles, *world.where, *world.things, *world.start.inside, game.problem[-200:])
                assert seen.setdefault(key, split) == split
    assert len(seen) > 340


def test_it_can_be_written_and_read_as_games(write_rows):
    houses = Houses(size="small")
    rows = [
        {
            "id": game.id,
            "split": game.split,
            "task_type": game.task_type,
            "task": game.task,
            "pddl_problem": game.problem,
            "walkthrough": list(game.walkthrough),
        }
        for game in (houses[i] for i in range(5))
    ]
    read = open_games(write_rows("games.jsonl", rows), "train")
    for game, world in map(read.open, range(5)):
        made, own = houses.open(int(game.id.rpartition("-")[2]))
        assert game == made
        for name in ("task", "things", "receptacles", "where", "fits", "can", "goal", "start", "openable", "inner"):
            assert getattr(world, name) == getattr(own, name), name


def test_options_choose_the_houses():
    mixed = Houses(size="tiny", difficulty=(1, 4))
    assert {mixed[i].id.split("-")[2] for i in range(40)} == {"1", "4"}
    assert {mixed[i].task_type for i in range(60)} == set(TASK_TYPES)
    two = Houses(size="tiny", task_types=f"{TASK_TYPES[5]},{TASK_TYPES[1]}")
    assert {two[i].task_type for i in range(20)} == {TASK_TYPES[5], TASK_TYPES[1]}
    assert len(two) == 1_000_000 and len(Houses(number=3)) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "valid_seen"}, "split is 'valid_seen'; the splits are train, valid, test"),
        ({"size": "huge"}, "size is 'huge'; the sizes are tiny, small, medium, large"),
        ({"difficulty": 6}, "difficulty is 6; choose one or several of 1, 2, 3, 4, 5"),
        ({"difficulty": ()}, r"difficulty is \(\)"),
        ({"task_types": "pick_heat_then_place"}, "did you mean 'pick_heat_then_place_in_recep'"),
        ({"text": "older"}, "text is 'older'"),
        ({"max_turns": 0}, "max_turns is 0"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        make_household(**options)


def test_bad_indices_are_refused():
    with pytest.raises(ValueError, match="number is 0"):
        Houses(number=0)
    for i in (-1, 3):
        with pytest.raises(IndexError, match=f"house {i} of household: there are houses 0 to 2"):
            Houses(number=3).open(i)


def test_the_system_prompt_and_the_turns_go_with_the_size():
    env = make_household(size="tiny")
    observation, info = env.reset(seed=1)
    assert [message["content"] for message in info["messages"]] == [SHORT, observation]
    assert (env.max_turns, len(env.tasks)) == (20, 1_000_000)
    env = make_household(text="old")
    assert "put OBJECT in/on RECEPTACLE" in env.reset(seed=1)[1]["messages"][0]["content"]
    assert (env.max_turns, make_household(max_turns=7).max_turns) == (50, 7)
    env = make_household(system="Say {put}.")
    assert env.reset(seed=1)[1]["messages"][0]["content"] == "Say {put}."


def test_admissible_commands_are_shown_on_request():
    observation, _ = make_household(size="tiny", admissible=True).reset(seed=1)
    assert "\n\nAdmissible commands:\n" in observation


def test_a_fork_goes_on_as_the_original_and_apart_from_it():
    draw, env = random.Random(1), make_household(size="tiny")
    env.reset(seed=3)
    for _ in range(12):
        action = draw.choice(env.admissible_commands())
        twin, again = env.fork(), turngym.fork(env)
        assert type(twin) is HouseholdEnv and twin.tasks is env.tasks and twin.world is env.world
        assert twin.step(action) == again.step(action)
        if not twin.live:
            break
        twin.step("look")
        env.step(action)
        assert env.state == again.state and env.snapshot() == again.snapshot()
    assert env.fork().reset() == env.reset()
