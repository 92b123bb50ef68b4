import json
import lzma
import random
from collections import Counter
from itertools import islice

import pytest

from turngym.envs.household.env import make_alfworld, make_household
from turngym.envs.household.expert import FILE, RARE, Expert, Priors, load_priors
from turngym.envs.household.game import game_of_row
from turngym.envs.household.library import open_games
from turngym.envs.household.play import commands, intro, step
from turngym.tests.verify.household.priors import count, to_json

SENTENCES = {
    "place": "put some apple on fridge",
    "heat": "put a hot apple in sidetable",
    "two": "find two apple and put them in drawer",
    "light": "look at mug under the desklamp",
}


@pytest.fixture
def play():
    """Plays a world and returns the commands and the last text; nothing but text goes to the expert."""

    def play(world, first=None, expert=None, turns=50):
        expert, state, text = expert or Expert(), world.start, first or intro(world)
        commands = []
        while not world.is_won(state) and len(commands) < turns:
            commands.append(expert.act(text))
            state, text = step(world, state, commands[-1])
        return commands, text, world.is_won(state)

    return play


def with_task(world, goal):
    return intro(world).replace(world.task, f"Your task is to: {SENTENCES[goal]}.")


@pytest.mark.parametrize("goal", SENTENCES)
@pytest.mark.parametrize("text", ["current", "old"])
def test_each_kind_of_goal_in_both_forms(make_house, play, goals, goal, text):
    goals["place"] = goals["place"].replace("DrawerType", "FridgeType")
    world = make_house(goal, text=text)
    commands, _, won = play(world, with_task(world, goal))
    assert won and len(commands) <= (15 if goal == "two" else 6)
    assert any(command.startswith(world.dialect.put) for command in commands) is (goal != "light")


def test_the_shortest_way_where_all_lies_as_usual(house, play):
    commands, _, won = play(house)
    assert won and commands == [
        "go to sidetable 1",
        "take apple 2 from sidetable 1",
        "go to microwave 1",
        "heat apple 2 with microwave 1",
        "go to sidetable 1",
        "move apple 2 to sidetable 1",
    ]


def test_a_thing_in_a_drawer_that_is_reached_from_another(make_house, play):
    """Drawers 1 and 2 are at one place: one does not go from one to the other."""
    priors = Priors({"apple": {"drawer": 1.0}}, {"drawer": 1.0})
    for facts in ("", "(opened Drawer_bar__plus_01_dot_00)"):
        world = make_house("heat", facts)
        commands, _, won = play(world, expert=Expert(priors))
        assert won and commands[:3] == ["go to drawer 1", "open drawer 1", "go to drawer 2"]
        after = (
            ["open drawer 2"] + ["examine drawer 2"] * bool(facts) + ["take apple 1 from drawer 2"]
        )
        assert commands[3 : 3 + len(after)] == after


def test_of_two_things_the_second_goes_where_the_first_lies():
    lying = {"shelf 1": "nothing", "shelf 2": "a pen 2", "desk 1": "a pen 1"}
    expert = Expert(Priors({"pen": {"shelf": 0.9, "desk": 0.1}}, {}))
    text, commands = (
        "you see a desk 1, a shelf 2, and a shelf 1.\n\nYour task is to: put two pen in shelf.",
        [],
    )
    while len(commands) < 6:
        commands.append(expert.act(text))
        place = commands[-1].removeprefix("go to ")
        text = (
            f"You arrive at {place}. On the {place}, you see {lying[place]}."
            if place in lying
            else "Nothing happens."
        )
        text = text if "take" not in commands[-1] else "You pick up the pen 1 from the desk 1."
    assert commands[:4] == [
        "go to shelf 1",
        "go to shelf 2",
        "go to desk 1",
        "take pen 1 from desk 1",
    ]
    assert commands[4:] == ["go to shelf 2", "move pen 1 to shelf 2"]


def test_one_expert_plays_one_episode_after_the_other(house, play):
    expert = Expert()
    first = play(house, expert=expert)
    assert play(house, intro(house) + "\n\nAdmissible commands:\nlook", expert=expert) == first


def test_a_put_that_is_refused_is_said_in_the_other_form(make_house):
    expert, world = Expert(), make_house(text="old")
    state, text, commands = world.start, intro(world), []
    while not world.is_won(state) and len(commands) < 20:
        commands.append(expert.act(text))
        state, text = step(world, state, commands[-1])
        arrived, _, seen = text.partition(". ")
        text = (
            seen if arrived.startswith("You arrive at ") else text
        )  # as the prompts of ReAct shorten it
    assert commands[-2:] == ["move apple 2 to sidetable 1", "put apple 2 in/on sidetable 1"]


def test_it_goes_on_when_all_is_refused():
    expert = Expert()
    room = "You are in the middle of a room. Looking quickly around you, you see a desk 1, and a drawer 1."
    commands = [expert.act(f"{room}\n\nYour task is to: put a pen in drawer.")]
    commands += [expert.act("Nothing happens.") for _ in range(8)]
    assert {"go to desk 1", "go to drawer 1"} <= set(commands)
    room = "You are facing the desk 1. Next to it, you see nothing."
    assert expert.act(f"{room}\n\nYour task is to: put a pen in drawer.") == "look"


def test_a_wrong_thing_in_hand_is_put_away(make_house):
    expert, world = Expert(), make_house()
    state, text = world.start, intro(world)
    for other in ("go to sidetable 1", "take knife 1 from sidetable 1", "go to fridge 1"):
        expert.act(text)
        expert.command = other  # somebody else decided
        state, text = step(world, state, other)
    commands = [expert.act(text)]
    for _ in range(2):
        state, text = step(world, state, commands[-1])
        commands.append(expert.act(text))
    assert commands == ["go to sinkbasin 1", "move knife 1 to sinkbasin 1", "go to sidetable 1"]


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_it_finds_its_way_back_when_somebody_else_decides_now_and_then(size):
    games, rng, expert, lost = make_household("test", size).tasks, random.Random(0), Expert(), []
    for i in range(20):
        _, world = games.open(i)
        state, text, turns = world.start, intro(world), 0
        while not world.is_won(state) and turns < 100:
            command = expert.act(text)
            if rng.random() < 0.3:
                command = expert.command = rng.choice(
                    [*commands(world, state), "dance", "go to moat 1"]
                )
            state, text = step(world, state, command)
            turns += 1
        lost += [i] * (not world.is_won(state))
    assert lost == []


def test_a_text_without_a_task():
    with pytest.raises(ValueError, match=r"states no task; begin with the first text of a game"):
        Expert().act("You are in the middle of a room.")
    with pytest.raises(ValueError, match=r"none of ALFWorld's forms"):
        Expert().act("Your task is to: sing.")


@pytest.mark.parametrize(("split", "games"), [("valid_seen", 72), ("valid_unseen", 69)])
def test_official_games(shared_data, play, split, games):
    found = open_games(shared_data / "household" / f"games_{split}_A.jsonl.xz", split)
    assert len(found) == games
    for text in ("current", "old"):
        won = Counter(play(found.open(i, text)[1])[2] for i in range(games))
        assert won[True] / games >= 0.95, won


@pytest.mark.parametrize("size", ["tiny", "small", "medium", "large"])
@pytest.mark.parametrize("difficulty", [1, 5])
def test_made_up_houses(play, size, difficulty):
    env = make_household("test", size, difficulty)
    assert [i for i in range(25) if not play(env.tasks.open(i)[1], turns=env.max_turns)[2]] == []


def test_through_an_environment_with_and_without_admissible_commands(shared_data):
    file, played = shared_data / "household" / "games_valid_seen_A.jsonl.xz", []
    for admissible in (False, True):
        env, expert = make_alfworld(file, "valid_seen", admissible=admissible), Expert()
        for task in range(0, 72, 12):
            text, _ = env.reset(seed=0, options={"task": task})
            ended, reward = False, 0.0
            while not ended:
                text, earned, terminated, truncated, _ = env.step(expert.act(text))
                ended, reward = terminated or truncated, reward + earned
            played.append((task, list(env.actions), reward))
    assert played[:6] == played[6:] and all(reward == 1.0 for _, _, reward in played)


def test_shares_of_the_house(make_house):
    house = make_house()
    priors = count([house, make_house(facts="(opened Drawer_bar__plus_01_dot_00)")])
    assert priors.found["apple"] == {
        "drawer": 0.5,
        "sidetable": 1.0,
    }  # one of two drawers, the one side table
    assert priors.found["mug"] == {"sidetable": 1.0}
    assert (
        priors.shut["drawer"] == 0.75
        and priors.shut["fridge"] == 1.0
        and priors.shut["sidetable"] == 0.0
    )
    assert priors.chance_inside("apple", "drawer") == 0.5
    assert priors.chance_inside("apple", "fridge") == priors.chance_inside("sword", "moat") == RARE


def test_as_json(make_house):
    priors = count([make_house()])
    assert Priors(**json.loads(to_json(priors))) == priors


@pytest.mark.slow
def test_the_file_is_what_is_counted_in_the_train_split(shared_data):
    priors = load_priors()
    assert to_json(priors) == FILE.read_text("utf-8")
    with lzma.open(shared_data / "household" / "games_train.jsonl.xz", "rt") as lines:
        some = count(
            game_of_row(json.loads(line), "train").world() for line in islice(lines, 0, None, 40)
        )
    assert set(some.found) <= set(priors.found) and set(some.shut) <= set(priors.shut)
    for kind, shares in some.found.items():
        assert set(shares) <= set(priors.found[kind]), kind
    assert abs(some.found["mug"]["coffeemachine"] - priors.found["mug"]["coffeemachine"]) < 0.1
    assert abs(some.shut["drawer"] - priors.shut["drawer"]) < 0.1
