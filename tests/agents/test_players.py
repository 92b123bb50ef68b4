import math
import threading

import numpy as np
import pytest

from turngym.agents.evaluation.scores import Episode, from_trees
from turngym.agents.players import PLAYERS, GoldPlayer, Script, play, play_all
from turngym.envs import EnvFailure, Outcome, Reply, StopReason, TextEnv
from turngym.envs.math import make_math, make_math_python
from turngym.envs.registry import make
from turngym.tools import ToolFailure


@pytest.mark.parametrize(
    ("env_id", "turns"), [("turngym/Math-v0", 1), ("turngym/MathPython-v0", 2)]
)
def test_the_expert_wins(env_id, turns):
    env, player = make(env_id), PLAYERS["expert"]()
    assert isinstance(player, GoldPlayer)
    observation, info = env.reset(seed=3)
    terminated = False
    while not terminated:
        observation, reward, terminated, _, info = env.step(player.act(env, observation, info))
    assert (reward, env.turn, info["stop"]) == (1.0, turns, "answered")
    env.close()


def test_the_expert_of_an_environment_without_one_is_an_error():
    with pytest.raises(TypeError, match="TextEnv has no expert: define gold"):
        GoldPlayer().act(TextEnv(), "", {})


# --- episodes


class Stubborn:
    """Says one thing for ever."""

    def __init__(self, action):
        self.action = action

    def act(self, env, observation, info):
        return self.action


CALL = '<tool_call>{"name": "python", "arguments": {"code": "6 * 7"}}</tool_call>'


def test_the_expert_wins_every_task_in_order():
    env, seen = make_math_python(timeout=30.0), []
    episodes = [(task, seed) for task in (3, 1, 2) for seed in (0, 1)]
    trees = play_all(env, lambda task, seed: GoldPlayer(), episodes, seen.append, threads=3)
    assert trees == sorted(seen, key=trees.index) and [tree.key for tree in trees] == [
        (seed, 0, task) for task in (3, 1, 2) for seed in (0, 1)
    ]
    golds = [tree.last_info(tree.leaves[0])["answer"] for tree in trees]
    assert from_trees(trees) == [
        Episode(
            task,
            Outcome.DONE,
            "answered",
            1.0,
            2,
            True,
            answer=gold,
            calls=1,
            task_id=known.id,
            category=known.category,
        )
        for task, gold in zip((3, 3, 1, 1, 2, 2), golds, strict=True)
        for known in [env.tasks[task]]
    ]
    assert not env.live  # forks were played, not the template


def test_an_episode_is_a_tree_of_what_was_said_and_paid():
    env = make_math_python(max_turns=3)
    tree = play(env, Script([CALL, "I do not know."]), 5, seed=9)
    observation, info = env.reset(seed=9, options={"task": 5})
    assert (tree.key, tree.task, tree.task_id) == ((9, 0, 5), 5, info["task_id"])
    assert [turn.parent for turn in tree.turns] == [-1, 0, 1, 2]
    assert [(turn.role, turn.text) for turn in tree.turns] == [
        ("user", observation),
        ("assistant", CALL),
        ("tool", "42"),
        ("assistant", "I do not know."),
    ]
    assert tree.turns[0].info == {name: info[name] for name in ("messages", "tools", "category")}
    assert tree.turns[1].info == {"turn": 1, "tool": "python", "tool_status": "ok", "valid": True}
    (leaf,) = tree.leaves
    assert (leaf.node, leaf.branch, leaf.stop, leaf.score) == (3, 0, "no_answer", 0.0)
    assert leaf.info == tree.turns[3].info and leaf.info["answer"] is None
    assert sum(len(turn.tokens) for turn in tree.turns) == 0 and tree.tokens(leaf).dtype == np.int32


def test_a_player_that_leaves_gets_a_path_without_an_end():
    tree = play(make_math_python(), Script([CALL]), 0)
    assert [turn.role for turn in tree.turns] == ["user", "assistant", "tool"] and tree.leaves == []
    assert from_trees([tree]) == []
    assert [turn.role for turn in play(make_math_python(), Script([]), 0).turns] == ["user"]


class Chance(TextEnv):
    """Opens with what its generator draws."""

    shared = TextEnv.shared | {"closed"}
    tasks = range(1)

    def __init__(self):
        super().__init__()
        self.closed = []

    def on_reset(self, rng, options):
        return str(rng.integers(10**12))

    def close(self):
        self.closed.append(self.live)


def test_an_episode_depends_on_its_seed_and_its_fork_is_closed():
    env = Chance()
    texts = [play(env, Script([]), 0, seed).turns[0].text for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2] and texts[0] == env.reset(seed=5)[0]
    env.tasks = None  # then the number of the episode is its seed
    assert [
        play(env, Script([]), task, seed).turns[0].text for task, seed in ((5, 0), (6, 0), (5, 9))
    ] == [
        *(env.reset(seed=seed)[0] for seed in (5, 6, 5)),
    ]
    with pytest.raises(TypeError, match="Chance has no expert"):
        play(env, GoldPlayer(), 0)
    assert env.closed == [True] * 7


class Generous(TextEnv):
    """Pays for every turn, then fails or pays what is no number."""

    def __init__(self, last):
        super().__init__(max_turns=9)
        self.last = last

    def on_reset(self, rng, options):
        self.task_id = "generous"
        return "Say."

    def on_step(self, text):
        if text == "more":
            return Reply("Again.", reward=0.1, info={"heard": text})
        if isinstance(self.last, Exception):
            raise self.last
        return Reply("", reward=self.last, stop=StopReason.GOAL)


def test_a_score_is_the_sum_of_rewards_from_first_to_last():
    (leaf,) = play(Generous(1.0), Script(["more", "more", "more", "end"]), 0).leaves
    assert leaf.score == 0.1 + 0.1 + 0.1 + 1.0 and leaf.rewarded


@pytest.mark.parametrize(
    ("last", "stop", "error"),
    [
        (ToolFailure("no sandbox"), "tool_error", "no sandbox"),
        (EnvFailure("no grader"), "infra_error", "no grader"),
        (RuntimeError("a bug"), "infra_error", "RuntimeError: a bug"),
        (math.inf, "infra_error", "the environment paid a reward of inf"),
        (math.nan, "infra_error", "the environment paid a reward of nan"),
    ],
)
def test_a_failure_of_the_environment_is_an_end_without_a_score(last, stop, error):
    tree = play(Generous(last), Script(["more", "end", "more"]), 0)
    (leaf,) = tree.leaves
    assert (leaf.stop, str(leaf.outcome), leaf.info["error"]) == (stop, stop, error)
    assert math.isnan(leaf.score) and math.isnan(tree.turns[-1].reward) and not leaf.rewarded
    assert [turn.text for turn in tree.turns] == ["Say.", "more", "Again.", "end"]


def test_an_episode_that_was_cut_or_failed_is_told_apart(monkeypatch):
    env = make_math_python(max_turns=3)
    (cut,) = from_trees([play(env, Stubborn("<tool_call>"), 0)])
    assert (cut.outcome, cut.stop, cut.score, cut.turns) == (Outcome.TRUNCATED, "max_turns", 0.0, 3)

    def broken(self, arguments):
        raise ToolFailure("no sandbox")

    monkeypatch.setattr("turngym.tools.PythonTool.call", broken)
    (failed,) = from_trees([play(env, Stubborn(CALL), 0)])
    assert (failed.outcome, failed.stop, failed.turns) == (Outcome.TOOL_ERROR, "tool_error", 1)
    assert math.isnan(failed.score)


def test_an_error_does_not_wait_for_the_episodes_that_have_not_begun():
    begun, gate = [], threading.Event()

    class Faulty:
        def act(self, env, observation, info):
            begun.append(env.task_id)
            if len(begun) == 1:
                raise KeyError("a player's bug")
            gate.wait(10)
            return "\\boxed{0}"

    player = Faulty()
    with pytest.raises(KeyError, match="a player's bug"):
        play_all(
            make_math(),
            lambda task, seed: player,
            [(i, 0) for i in range(200)],
            threads=2,
            on_failure=gate.set,
        )
    assert len(begun) < 10


def test_an_observer_plays_from_what_it_is_shown_in_several_environments_at_once():
    env = make("turngym/Household-v0", size="tiny")
    first, second = env, env.fork()
    player = PLAYERS["observer"]()
    trees = [play(one, player, task) for task, one in enumerate((first, second))]
    assert [tree.leaves[0].score for tree in trees] == [1.0, 1.0]
    with pytest.raises(
        TypeError, match=r"QuestionEnv has no expert\(\) that plays from observations; use `expert`"
    ):
        player.act(make("turngym/Math-v0"), "What is 1 + 1?", {})
