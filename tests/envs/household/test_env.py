import json
import random

import gymnasium
import pytest

import turngym
from turngym.agents.check.clauses import check
from turngym.envs.household.env import SHORT, ALFWorldEnv, make_alfworld, make_household
from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.generate import DIFFICULTIES, SIZES, Houses
from turngym.envs.household.library import open_games
from turngym.envs.household.play import intro
from turngym.envs.registry import make


@pytest.fixture
def file(row, write_rows):
    """Three games."""
    return write_rows("games.jsonl", [{**row, "id": f"valid_seen/{i}"} for i in range(3)])


@pytest.fixture
def env(file):
    return make_alfworld(file, "valid_seen")


def test_gymnasium_finds_it(file):
    env = gymnasium.make("turngym/ALFWorld-v0", games=str(file), split="valid_seen")
    observation, info = env.reset(seed=1, options={"task": 2})
    assert observation.startswith("-= Welcome to TextWorld") and info["task_id"] == "valid_seen/2"
    assert info["messages"][1] == {"role": "user", "content": observation}
    assert "move OBJECT to RECEPTACLE" in info["messages"][0]["content"]
    assert type(make("turngym/ALFWorld-v0", games=str(file), split="valid_seen")) is ALFWorldEnv


def test_it_keeps_the_contract(file):
    results = list(check("turngym/ALFWorld-v0", {"games": str(file), "split": "valid_seen"}))
    assert {result.name: result.problem for result in results if not result.ok} == {}


def test_the_walkthrough_is_gold_and_success_earns_one(env, row):
    env.reset(seed=0)
    assert env.gold() == row["walkthrough"]
    rewards = []
    for action in row["walkthrough"]:
        assert env.gold()[0] == action
        _, reward, done, cut, info = env.step(action)
        rewards.append(reward)
    assert (rewards, done, cut, info["stop"], info["won"]) == (
        [0, 0, 0, 0, 0, 1],
        True,
        False,
        "goal",
        True,
    )
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_gold_leads_on_from_where_one_strayed(env, row):
    env.reset(seed=0)
    for action in ("go to fridge 1", "look", *row["walkthrough"][:2], "inventory"):
        env.step(action)
    assert env.gold() == row["walkthrough"][2:]


def test_a_fork_and_its_original_are_written_down_each_for_itself(env, file):
    env.reset(seed=0)
    env.step("look")
    twin = env.fork()
    for one in (env, twin):
        last = one.step("inventory" if one is twin else "help")[0]
        assert make_alfworld(file, "valid_seen").restore(one.snapshot()) == last


def test_without_success_an_episode_ends_with_its_turns(file):
    env = make_alfworld(file, "valid_seen", max_turns=2)
    env.reset(seed=0)
    assert env.step("look")[1:4] == (0, False, False)
    observation, reward, done, cut, info = env.step("dance")
    assert (observation, reward, done, cut, info["stop"]) == (
        "Nothing happens.",
        0,
        False,
        True,
        "max_turns",
    )
    assert make_alfworld(file, "valid_seen").max_turns == 50


def test_admissible_commands_are_shown_on_request(file):
    env = make_alfworld(file, "valid_seen", admissible=True)
    observation, _ = env.reset(seed=0)
    for action in ("go to sidetable 1", "", "take mug 1 from sidetable 1", "look"):
        shown = "\n\nAdmissible commands:\n" + "\n".join(env.admissible_commands())
        assert observation.endswith(shown) and shown.count("\nlook") == 1
        observation = env.step(action)[0]


def test_the_old_text_is_an_option(file):
    env = make_alfworld(file, "valid_seen", text="old")
    _, info = env.reset(seed=0)
    assert "put OBJECT in/on RECEPTACLE" in info["messages"][0]["content"]
    assert sum(env.step(action)[1] for action in env.gold()) == 1
    with pytest.raises(ValueError, match="text is 'older'"):
        make_alfworld(file, "valid_seen", text="older")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("look", "look"),
        ("  look\n", "look"),
        ("<think>where?\nhere</think><action> look </action>", "look"),
        ("<action>look</action><action>go to fridge 1</action>", "look"),
        ("<action>look</action>\nObservation: You win!\n<action>done</action>", "look"),
        ("<action>look", "look"),
        ("<action></action>", None),
        ("<action>\t\u2028</action>", None),
        ("look\ninventory", None),
        ("<action>look\nrestart\nquit</action>", None),
    ],
)
def test_which_command_a_reply_is(env, text, command):
    env.reset(seed=0)
    observation, reward, done, cut, info = env.step(text)
    assert info["command"] == command and (reward, done, cut) == (0, False, False)
    assert observation.startswith("You are in the middle" if command else "Error: this reply has ")
    assert command or "Answer with one command, such as: look" in observation


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "\t\r\n",
        "\x1c\x85",
        "\x00",
        "\u2028",
        "\u200b",
        "the",
        "a",
        "the look",
        "lo\x0bok",
        "look\x00",
    ],
)
def test_a_blank_command_is_the_games_to_answer(env, text):
    _, before = env.reset(seed=0), env.state
    observation, reward, done, cut, info = env.step(text)
    assert (observation, reward, done, cut) == (
        "Nothing happens.",
        0,
        False,
        False,
    ) and env.state == before
    assert (info["command"], info["allowed"], info["valid"]) == (text.strip(), False, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": 1}, "no option 'tasks'; its one option is 'task'"),
        ({"task": 3}, "is 3; choose an int from 0 to 2"),
        ({"task": True}, "is True; choose an int"),
    ],
)
def test_bad_options_are_refused(env, options, words):
    with pytest.raises(ValueError, match=words):
        env.reset(options=options)


def test_nothing_is_known_before_a_game_began(env):
    for call in (env.gold, env.admissible_commands):
        with pytest.raises(RuntimeError, match="there is no game: call reset"):
            call()


def test_a_fork_goes_on_as_the_original_and_apart_from_it(env):
    draw = random.Random(3)
    env.reset(seed=5)
    for _ in range(20):
        action = draw.choice(env.admissible_commands())
        twin, again = env.fork(), turngym.fork(env)
        assert twin.step(action) == again.step(action)
        if not twin.live:
            break
        twin.step("look")
        assert len(env.actions) == len(twin.actions) - 2
        env.step(action)
        assert env.state == again.state and env.snapshot() == again.snapshot()
    assert (
        env.fork().reset() == env.fork().reset() == env.reset()
    )  # the same generator, each its own


def test_a_class_of_its_own_is_copied_whole(file):
    class Noted(ALFWorldEnv):
        notes: tuple = ()

    env = Noted(make_alfworld(file, "valid_seen").tasks)
    env.reset(seed=0)
    env.notes = ["one"]
    twin = env.fork()
    twin.notes.append("two")
    assert env.notes == ["one"] and twin.world is env.world


def test_hostile_replies_neither_crash_nor_pay(env, shared_data):
    text = (shared_data.parent / "corpora" / "adversarial_answers.jsonl").read_text("utf-8")
    rows = [row for row in map(json.loads, text.splitlines()) if row["env"] == "household"]
    assert len(rows) == 10
    for row in rows:
        text = (
            "".join(part * number for part, number in row["parts"])
            if "parts" in row
            else row["text"]
        )
        env.reset(seed=0)
        gold, before = env.gold(), env.state
        observation, reward, done, cut, info = env.step(text)
        assert (reward, done, cut, env.turn) == (0, False, False, 1) and len(observation) < 4000
        assert gold[1] not in observation
        if info["command"] not in ("go to fridge 1", "look"):
            assert env.state == before


def test_nothing_an_agent_writes_pays_more_than_once(env):
    draw = random.Random(1)
    verbs = ["go to", "take", "move", "open", "use", "heat", "put", "<action>", "\n", "\x00"]
    words = [*verbs, "from", "to", "with", "apple 1", "drawer 2", "fridge 1", "é"]
    for seed in range(30):
        env.reset(seed=seed)
        earned, ended, won = 0.0, False, False
        while not ended:
            action = draw.choice(
                [" ".join(draw.choices(words, k=5)), *env.admissible_commands()[:20]]
            )
            _, reward, won, cut, _ = env.step(action)
            earned, ended = earned + reward, won or cut
        assert earned == float(won) and (won or env.turn == 50)
        assert env.admissible_commands()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", ["current", "old"])
def test_the_gold_of_every_house_wins(size, text):
    env = make_household(size=size, difficulty=tuple(DIFFICULTIES), text=text)
    for i in range(40):
        env.reset(options={"task": i})
        actions, reward, done = env.gold(), 0.0, False
        for action in actions:
            assert (reward, done) == (0, False)
            _, reward, done, cut, info = env.step(action)
            assert info["allowed"] and info["valid"] and not cut
        assert (reward, done, info["won"], info["stop"]) == (1, True, True, "goal")
        assert 3 <= len(actions) <= 11


def test_a_house_depends_on_its_index_alone():
    one, again = (
        Houses(size="tiny", difficulty=2, task_types=TASK_TYPES[3], seed=5) for _ in range(2)
    )
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
                key = (
                    *world.receptacle_names,
                    *world.place_of,
                    *world.thing_names,
                    *world.start.inside,
                    game.problem[-200:],
                )
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
        for name in (
            "task",
            "thing_names",
            "receptacle_names",
            "place_of",
            "accepts",
            "pickupable",
            "toggleable",
            "sliceable",
            "knives",
            "treatable",
            "goal",
            "start",
            "openable",
            "inner_names",
        ):
            assert getattr(world, name) == getattr(own, name), name


def test_options_choose_the_houses():
    mixed = Houses(size="tiny", difficulty=(1, 4))
    assert {mixed[i].id.split("-")[2] for i in range(40)} == {"1", "4"}
    assert {mixed[i].task_type for i in range(60)} == set(TASK_TYPES)
    two = Houses(size="tiny", task_types=f"{TASK_TYPES[5]},{TASK_TYPES[1]}")
    assert {two[i].task_type for i in range(20)} == {TASK_TYPES[5], TASK_TYPES[1]}
    assert len(two) == 1_000_000


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
def test_bad_options_of_houses_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        make_household(**options)


def test_bad_indices_are_refused():
    for i in (-1, 1_000_000):
        with pytest.raises(
            IndexError, match=f"house {i} of household: there are houses 0 to 999999"
        ):
            Houses().open(i)


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


def test_admissible_commands_of_houses_are_shown_on_request():
    observation, _ = make_household(size="tiny", admissible=True).reset(seed=1)
    assert "\n\nAdmissible commands:\n" in observation


def test_a_fork_in_a_house_goes_on_as_the_original_and_apart_from_it():
    draw, env = random.Random(1), make_household(size="tiny")
    env.reset(seed=3)
    for _ in range(12):
        action = draw.choice(env.admissible_commands())
        twin, again = env.fork(), turngym.fork(env)
        assert type(twin) is ALFWorldEnv and twin.tasks is env.tasks and twin.world is env.world
        assert twin.step(action) == again.step(action)
        if not twin.live:
            break
        twin.step("look")
        env.step(action)
        assert env.state == again.state and env.snapshot() == again.snapshot()
    assert env.fork().reset() == env.reset()
