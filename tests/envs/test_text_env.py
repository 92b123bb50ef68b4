import copy
import json
import math
import random

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import turngym
from turngym.envs import EnvFailure, Outcome, Reply, StopReason, TextEnv, outcome_of
from turngym.tools import ToolFailure


class Dial:
    """Something with a `fork` of its own."""

    def __init__(self, forks: int = 0) -> None:
        self.forks = forks

    def fork(self) -> "Dial":
        return Dial(self.forks + 1)


class Walk(TextEnv):
    """A noisy walk: every action moves by its length plus noise; `stop REASON` ends the episode for that reason."""

    shared = TextEnv.shared | {"table"}

    def __init__(self, max_turns: int = 8, start: str = "start") -> None:
        super().__init__(max_turns)
        self.start = start
        self.table = ["read-only"]
        self.dial = Dial()
        self.path: list[int] = []
        self.me = self
        self.used = [self.table, self.dial]

    def on_reset(self, rng, options):
        self.path = [int(rng.integers(1000)) + options.get("offset", 0)]
        self.task_id = f"walk-{self.path[0]}"
        return f"{self.start} {self.path[0]}"

    def on_step(self, text):
        if text.startswith("stop "):
            return Reply("over", reward=1.0, stop=StopReason(text.removeprefix("stop ")))
        if text.startswith("raise "):
            raise {"tool": ToolFailure, "env": EnvFailure, "bug": KeyError}[
                text.removeprefix("raise ")
            ]("it broke")
        if text.startswith("say "):
            return Reply(text.removeprefix("say "), reward=0.5, role="tool", info={"said": True})
        self.path.append(self.path[-1] + len(text) + int(self.np_random.integers(10)))
        return Reply(f"at {self.path[-1]}", reward=self.path[-1] / 7)

    def gold(self):
        return ["stop goal"]


def play(env, actions):
    """What an agent sees of some actions."""
    seen = []
    for action in actions:
        text, reward, terminated, truncated, info = env.step(action)
        seen.append((text, reward, terminated, truncated, json.dumps(info)))
    return seen


# --- the life of an episode


def test_the_base_class_passes_gymnasiums_check_without_a_warning():
    check_env(Walk(), skip_render_check=True)  # it has no render modes


def test_reset_shows_messages_tools_and_the_name_of_the_task():
    observation, info = Walk().reset(seed=1)
    assert info == {
        "messages": [{"role": "user", "content": observation}],
        "tools": [],
        "task_id": f"walk-{observation.split()[1]}",
    }


def test_a_step_counts_turns_and_adds_the_environments_info():
    env = Walk()
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("say hello")
    assert (text, reward, terminated, truncated) == ("hello", 0.5, False, False)
    assert info == {"turn": 1, "messages": [{"role": "tool", "content": "hello"}], "said": True}
    env.step("say again")
    assert (env.turn, env.turn_rewards, env.actions) == (2, [0.5, 0.5], ["say hello", "say again"])


@pytest.mark.parametrize(
    ("valid", "told"), [(True, {"valid": True}), (False, {"valid": False}), (None, {})]
)
def test_an_environment_may_say_whether_an_action_was_valid(valid, told):
    class Judging(Walk):
        def on_step(self, text):
            return Reply("on", valid=valid)

    env = Judging()
    env.reset(seed=0)
    assert env.step("a")[4] == {"turn": 1, "messages": [{"role": "user", "content": "on"}], **told}


def test_a_turn_limit_truncates_and_keeps_the_reward_of_its_last_turn():
    env = Walk(max_turns=2)
    env.reset(seed=0)
    assert play(env, ["say a"])[0][2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step("say b")
    assert (reward, terminated, truncated) == (0.5, False, True)
    assert (info["stop"], info["outcome"]) == ("max_turns", "truncated")
    env.reset(seed=0)
    env.step("a")
    assert env.step("stop answered")[2:4] == (True, False)  # done in its last turn


def test_what_an_environment_gives_belongs_to_whoever_gets_it():
    class Sharing(Walk):
        rules = [{"role": "system", "content": "be brief"}]  # noqa: RUF012
        tools = [{"type": "function"}]  # noqa: RUF012

        def messages(self, observation):
            return self.rules

        def tool_schemas(self):
            return self.tools

        def on_step(self, text):
            super().on_step(text)
            return Reply("on", info={"path": self.path})

    env = Sharing()
    _, opening = env.reset(seed=0)
    *_, first = env.step("a")
    seen = copy.deepcopy([opening, first])
    *_, second = env.step("b")
    assert [opening, first] == seen and len(first["path"]) == 2 and len(second["path"]) == 3
    opening["messages"][0]["content"] = opening["tools"][0]["type"] = "changed"
    second["path"].clear()
    assert len(env.path) == 3
    assert env.reset(seed=0)[1] == seen[0]


@pytest.mark.parametrize("limit", [0, -3])
def test_a_turn_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match=f"max_turns is {limit}; an episode needs at least 1 turn"):
        Walk(max_turns=limit)


@pytest.mark.parametrize("stop", StopReason)
def test_every_stop_reason_has_an_outcome_and_only_failures_have_no_reward(stop):
    env = Walk()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(f"stop {stop}")
    outcome = outcome_of(stop)
    failed = outcome in (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)
    assert (info["stop"], info["outcome"]) == (str(stop), str(outcome))
    assert (terminated, truncated) == (outcome is Outcome.DONE, outcome is not Outcome.DONE)
    assert math.isnan(reward) if failed else reward == 1.0
    assert json.loads(json.dumps(info)) == info


@pytest.mark.parametrize(("what", "stop"), [("tool", "tool_error"), ("env", "infra_error")])
def test_a_failure_is_a_typed_outcome_without_a_reward(what, stop):
    env = Walk()
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step(f"raise {what}")
    assert (text, terminated, truncated) == ("", False, True)
    assert math.isnan(reward) and math.isnan(env.turn_rewards[0])
    assert (info["stop"], info["outcome"], info["error"]) == (stop, stop, "it broke")


def test_a_step_outside_an_episode_or_without_text_is_refused():
    env = Walk()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step("a")
    env.reset(seed=0)
    env.step("stop goal")
    with pytest.raises(gymnasium.error.ResetNeeded, match="this episode has ended"):
        env.step("a")
    env.reset()
    env.step("a")
    with pytest.raises(KeyError):
        env.step("raise bug")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("a")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="action is a int; this environment takes str"):
        env.step(3)


def test_text_that_utf8_cannot_carry_is_made_fit_for_the_space():
    env = Walk(start="lone \ud800")
    observation, info = env.reset(seed=0)
    assert observation.startswith("lone ? ") and info["messages"][0]["content"] == observation
    text, *_, info = env.step("say a\udfffb")
    assert text == info["messages"][0]["content"] == "a?b"
    assert env.observation_space.contains(observation) and env.observation_space.contains(text)


@pytest.mark.parametrize(
    "name", ["on_reset(rng, options) -> str", "on_step(text) -> Reply", "gold() -> list[str]"]
)
def test_a_missing_method_is_named(name):
    env = TextEnv()
    calls = {"on_r": lambda: env.reset(seed=0), "on_s": lambda: env.on_step(""), "gold": env.gold}
    with pytest.raises(TypeError) as caught:
        calls[name[:4]]()
    assert "TextEnv" in str(caught.value) and name in str(caught.value)


# --- randomness


def test_a_seed_fixes_the_episode():
    one, two = Walk(), Walk()
    assert one.reset(seed=5) == two.reset(seed=5)
    assert play(one, "abc") == play(two, "abc")
    first = one.reset(seed=5)
    assert first == two.reset(seed=5)
    assert len({one.reset(seed=seed)[0] for seed in range(20)}) > 15


def test_a_reset_without_a_seed_goes_on_with_the_generator():
    one, two = Walk(), Walk()
    later = [[env.reset(seed=3)[0], env.reset()[0], env.reset()[0]] for env in (one, two)]
    assert later[0] == later[1]
    assert len(set(later[0])) == 3


def test_global_generators_are_left_alone():
    np.random.seed(0)
    before = np.random.get_state()[1].tolist(), random.getstate()
    env = Walk()
    env.reset(seed=1)
    play(env, "abc")
    env.fork().restore(env.snapshot())
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


# --- fork


ACTIONS = st.lists(
    st.text(max_size=5).filter(lambda text: not text.startswith(("stop ", "raise "))), max_size=7
)


@given(before=ACTIONS, after=ACTIONS, other=ACTIONS, seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_a_fork_goes_on_as_the_original_would_and_neither_sees_the_other(
    before, after, other, seed
):
    env, straight = Walk(max_turns=99), Walk(max_turns=99)
    for one in (env, straight):
        one.reset(seed=seed)
        play(one, before)
    twin, astray = env.fork(), env.fork()
    play(astray, other)
    seen = play(straight, after)
    assert play(twin, after) == seen
    play(astray, other)
    assert play(env, after) == seen
    assert twin.path == straight.path == env.path
    assert twin.snapshot() == straight.snapshot() == env.snapshot()
    assert twin.reset()[0] == straight.reset()[0] == env.reset()[0]


def test_a_fork_shares_what_is_read_only_forks_what_can_and_copies_the_rest():
    env = Walk()
    env.reset(seed=0)
    twin = env.fork()
    assert twin.table is env.table and twin.observation_space is env.observation_space
    assert (twin.dial.forks, twin.fork().dial.forks, env.dial.forks) == (1, 2, 0)
    assert twin.path == env.path and twin.path is not env.path
    assert twin.me is twin
    assert twin.used[0] is env.table and twin.used[1] is twin.dial
    assert twin.np_random is not env.np_random


def test_a_fork_of_an_ended_episode_has_ended():
    env = Walk()
    env.reset(seed=0)
    env.step("stop goal")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.fork().step("a")


class Counting(gymnasium.Wrapper):
    """A wrapper with state of its own and references to what lies below and above."""

    def __init__(self, env):
        super().__init__(env)
        self.counts = {"steps": 0}
        self.below = [env]
        self.deepest = env.unwrapped
        self.bound = self.count

    def count(self):
        self.counts["steps"] += 1

    def step(self, action):
        self.bound()
        return self.env.step(action)


def test_a_fork_goes_through_wrappers_with_their_state():
    env = gymnasium.wrappers.TransformReward(Counting(Counting(Walk())), lambda reward: 2 * reward)
    env.reset(seed=0)
    env.step("say a")
    twin = turngym.fork(env)
    assert play(twin, ["b", "c"]) == play(turngym.fork(env), ["b", "c"])
    assert (env.env.counts, twin.env.counts, twin.env.env.counts) == (
        {"steps": 1},
        {"steps": 3},
        {"steps": 3},
    )
    assert twin.env.below[0] is twin.env.env and twin.env.deepest is twin.unwrapped
    assert twin.unwrapped is not env.unwrapped and env.unwrapped.turn == 1


def test_a_wrappers_record_of_an_episode_is_copied():
    env = gymnasium.wrappers.RecordEpisodeStatistics(Walk())
    env.reset(seed=0)
    env.step("say a")
    twin = turngym.fork(env)
    assert twin.step("stop goal")[-1]["episode"]["l"] == 2
    assert env.step("say b")[2:4] == (False, False)
    assert env.step("stop goal")[-1]["episode"] | {"t": 0} == {"r": 2.0, "l": 3, "t": 0}


def test_an_environment_that_is_no_text_env_cannot_be_forked():
    with pytest.raises(TypeError, match="CartPoleEnv cannot fork"):
        turngym.fork(gymnasium.make("CartPole-v1"))


# --- snapshot and restore


def test_a_snapshot_restores_every_moment_of_an_episode_in_a_fresh_environment():
    env = Walk()
    env.reset(seed=11)
    env.reset(options={"offset": 3})
    for action in ["a", "say b", "c", "stop goal"]:
        env.step(action)
        fresh = Walk()
        last = fresh.restore(json.loads(json.dumps(env.snapshot())))
        assert (last, fresh.turn, fresh.actions, fresh.path) == (
            env._last_observation,
            env.turn,
            env.actions,
            env.path,
        )
        assert (fresh.turn_rewards, fresh.live, fresh.snapshot()) == (
            env.turn_rewards,
            env.live,
            env.snapshot(),
        )
        twin = env.fork()
        if env.live:
            assert play(fresh, "xyz") == play(twin, "xyz")
        assert fresh.reset()[0] == twin.reset()[0]


def test_a_snapshot_is_not_changed_by_what_happens_later():
    env = Walk()
    env.reset(seed=0, options={"offset": 1})
    env.step("a")
    snapshot = env.snapshot()
    kept = copy.deepcopy(snapshot)
    env.step("b")
    env.reset(seed=9)
    assert snapshot == kept


def test_options_that_the_environment_takes_apart_are_written_down_whole():
    class Taking(Walk):
        def on_reset(self, rng, options):
            grid = options.pop("grid")
            return super().on_reset(rng, {"offset": grid.pop()})

    env, options = Taking(), {"grid": [5, 7]}
    observation, _ = env.reset(seed=0, options=options)
    assert options == env.snapshot()["options"] == {"grid": [5, 7]}
    options["grid"].clear()
    assert Taking().restore(json.loads(json.dumps(env.snapshot()))) == observation


def test_an_environment_holds_no_gold_text_unless_it_says_so():
    env = Walk()
    before = vars(env).copy()
    assert env.plant("42") is False and vars(env) == before


def test_a_failed_episode_is_written_down_like_any_other():
    env = Walk()
    env.reset(seed=0)
    env.step("raise tool")
    assert Walk().restore(json.loads(json.dumps(env.snapshot()))) == ""


def test_there_is_no_snapshot_before_the_first_reset():
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before snapshot\(\)"):
        Walk().snapshot()


class Framed(Walk):
    def messages(self, observation):
        return [{"role": "system", "content": "other"}, *super().messages(observation)]


class Paid(Walk):
    def on_step(self, text):
        reply = super().on_step(text)
        return Reply(reply.text, reply.reward + 1, reply.stop, reply.role)


@pytest.mark.parametrize(
    "wrong", [Walk(start="begin"), Walk(max_turns=2), Framed(), Paid()], ids=lambda env: str(env)
)
@pytest.mark.parametrize("end", ["say end", "stop goal"])
def test_a_snapshot_of_another_environment_is_refused(wrong, end):
    env = Walk()
    env.reset(seed=0)
    play(env, ["a", "say b", end])
    with pytest.raises(RuntimeError, match="replay of 3 actions diverged"):
        wrong.restore(env.snapshot())
