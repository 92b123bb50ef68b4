import json
import random

import gymnasium
import pytest

import turngym
from turngym.agents.check.clauses import check
from turngym.envs.household.alfworld import ALFWorldEnv, make_alfworld
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
    assert (rewards, done, cut, info["stop"], info["won"]) == ([0, 0, 0, 0, 0, 1], True, False, "goal", True)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_gold_leads_on_from_where_one_strayed(env, row):
    env.reset(seed=0)
    for action in ("go to fridge 1", "look", *row["walkthrough"][:2], "inventory"):
        env.step(action)
    assert env.gold() == row["walkthrough"][2:]


def test_without_success_an_episode_ends_with_its_turns(file):
    env = make_alfworld(file, "valid_seen", max_turns=2)
    env.reset(seed=0)
    assert env.step("look")[1:4] == (0, False, False)
    observation, reward, done, cut, info = env.step("dance")
    assert (observation, reward, done, cut, info["stop"]) == ("Nothing happens.", 0, False, True, "max_turns")
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
        ("", None),
        (" \n ", None),
        ("<action></action>", None),
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
    assert env.fork().reset() == env.fork().reset() == env.reset()  # the same generator, each its own


def test_a_class_of_its_own_is_copied_whole(file):
    class Noted(ALFWorldEnv):
        notes: tuple = ()

    env = Noted(make_alfworld(file, "valid_seen").games)
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
        text = "".join(part * number for part, number in row["parts"]) if "parts" in row else row["text"]
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
            action = draw.choice([" ".join(draw.choices(words, k=5)), *env.admissible_commands()[:20]])
            _, reward, won, cut, _ = env.step(action)
            earned, ended = earned + reward, won or cut
        assert earned == float(won) and (won or env.turn == 50)
        assert env.admissible_commands()
