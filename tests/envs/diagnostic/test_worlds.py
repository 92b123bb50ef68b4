"""The diagnostic worlds: what their tables promise is counted by playing every task."""

import random

import pytest

from turngym.envs.diagnostic import (
    COLOURS,
    DOORS,
    IDLE,
    INVALID,
    LOST,
    NOUNS,
    WORLDS,
    Start,
    WorldEnv,
)
from turngym.envs.registry import make


def world_env(name):
    world = WORLDS[name]
    return WorldEnv(world, world.turns)


def play(env, task, actions):
    """Return the score and what each turn led to."""
    env.reset(options={"task": task})
    earned, led = 0.0, []
    for action in actions:
        _, reward, _, _, info = env.step(action)
        earned += reward
        led.append(info["led"])
        assert info["valid"] is (info["led"] != INVALID)
        if not env.live:
            break
    return earned, led


@pytest.mark.parametrize("name", WORLDS)
def test_every_task_is_another_and_its_gold_wins_in_as_many_turns_as_there_are(name):
    env = world_env(name)
    drawn = {tuple(sorted((state, shown, *sorted(right)) for state, (shown, right) in env.world.draws_of_task(i).items()))
             for i in range(len(env.tasks))}  # fmt: skip
    assert len(drawn) == len(env.tasks)
    for task in range(0, len(env.tasks), 97):
        env.reset(options={"task": task})
        gold = env.gold()
        assert len(gold) == env.world.turns
        assert play(env, task, gold)[0] == 1.0


@pytest.mark.slow
def test_the_best_success_is_that_of_the_best_words_over_all_tasks():
    assert {name: world.best_success() for name, world in WORLDS.items()} == {
        **dict.fromkeys(("late-bloomer", "useless-choice", "distractor"), 1.0),
        "many-ways": 0.5,
    }
    assert WORLDS["late-bloomer"].best_success("colour") == 1 / 3
    for colour in COLOURS:
        env = world_env("late-bloomer")
        assert (
            sum(play(env, task, ["guess", colour])[0] for task in env.tasks) == len(env.tasks) / 3
        )
    for door in DOORS:
        env, won = world_env("many-ways"), 0.0
        for task in env.tasks:
            env.reset(options={"task": task})
            words = [env.world.draws_of_task(task)[f"copy-{i}"][0] for i in (1, 2)]
            won += play(env, task, [door, *words])[0]
        assert won == len(env.tasks) / 2


def test_a_wrong_copy_ends_the_episode_and_so_does_what_is_no_word_of_the_state():
    env = world_env("late-bloomer")
    right = env.world.draws_of_task(5)["copy-1"][0]
    wrong = next(word for word in NOUNS if word != right)
    assert play(env, 5, ["ask", wrong, right]) == (0.0, ["copy-1", LOST])
    for odd in ("wait", "", "guess", f"{right} {right}", f"{right} ", right.upper()):
        assert play(env, 5, ["ask", odd, right]) == (0.0, ["copy-1", INVALID])


def test_an_idle_word_shows_the_same_word_again_and_leaves_too_few_turns():
    env = world_env("useless-choice")
    words = [env.world.draws_of_task(7)[f"copy-{i}"][0] for i in (1, 2, 3)]
    for idle in IDLE:
        env.reset(options={"task": 7})
        first = env.step("ask")[0]
        again, reward, _, _, info = env.step(idle)
        assert (first, again, reward, info["valid"]) == (words[0], words[0], 0.0, True)
        assert play(env, 7, ["ask", idle, *words]) == (
            0.0,
            ["copy-1", "copy-1", "copy-2", "copy-3"],
        )
    assert env.world.best_success("copy-1", 2) == 0.0


def test_free_text_behind_a_word_changes_nothing():
    env = world_env("distractor")
    env.reset(options={"task": 3})
    gold = env.gold()
    assert play(env, 3, gold) == play(env, 3, [f"{word} sierra tango" for word in gold])
    assert play(env, 3, [" ask"])[1] == [INVALID]


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("tool", [0.15, 0.93])
def test_what_is_expected_of_a_start_is_what_it_plays(name, tool):
    """An agent with the table's chances plays the environment itself."""
    start, env, rng = Start(tool=tool, noise=0.1), world_env(name), random.Random(0)
    won = turns = valid = tools = episodes = 0
    for _ in range(2500):
        shown, _ = env.reset(options={"task": rng.randrange(len(env.tasks))})
        episodes += 1
        while env.live:
            said = start.word_chances(env.world, env.world.states[env.state], shown)
            assert sum(said.values()) == pytest.approx(1)
            word = rng.choices(list(said), list(said.values()))[0]
            if rng.random() > (1 - start.noise) ** 2:  # in the word, or in the end of the turn
                word = "?"
            tools += word == env.world.tool
            shown, reward, _, _, info = env.step(word)
            won, turns, valid = won + reward, turns + 1, valid + info["valid"]
    expected = start.expected_metrics(env.world)
    assert won / episodes == pytest.approx(expected["success"], abs=0.03)
    assert valid / turns == pytest.approx(expected["valid"], abs=0.02)
    if env.world.tool:
        assert tools / episodes == pytest.approx(expected["tool"], abs=0.03)
    assert expected["pass_at_8"] == pytest.approx(1 - (1 - expected["success"]) ** 8)


def test_the_ids_make_the_worlds_and_refuse_other_options():
    ids = ("LateBloomer", "UselessChoice", "ManyWays", "Distractor")
    assert [make(f"turngym/{name}-v0").world for name in ids] == list(WORLDS.values())
    with pytest.raises(ValueError, match="takes no option 'split'"):
        make("turngym/ManyWays-v0", split="test")
    assert (
        len(make("turngym/ManyWays-v0", size=10).tasks)
        == 10
        < len(make("turngym/ManyWays-v0").tasks)
    )
    with pytest.raises(ValueError, match="size is -1"):
        make("turngym/ManyWays-v0", size=-1)
