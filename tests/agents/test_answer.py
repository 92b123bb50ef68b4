import math

import gymnasium
import pytest

from turngym.agents.trajectory import failure, pays, take
from turngym.envs import EnvFailure, Reply, StopReason, TextEnv


class Says(TextEnv):
    """Replies what it was made with."""

    shared = TextEnv.shared | {"reply"}

    def __init__(self, reply):
        super().__init__(max_turns=2)
        self.reply = reply

    def on_reset(self, rng, options):
        return "?"

    def on_step(self, text):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def answered(reply, turns=1):
    env = Says(reply)
    env.reset(seed=0)
    for _ in range(turns - 1):
        take(env, "a")
    return take(env, "a")


def test_an_answer_holds_each_thing_once():
    found = answered(Reply("well", 0.5, role="tool", info={"mood": "good"}))
    assert (found.reward, found.stop) == (0.5, None)
    assert found.messages == [{"role": "tool", "content": "well"}]
    assert found.info == {"turn": 1, "mood": "good"}
    found = answered(Reply("", 1.0, StopReason.GOAL))
    assert (found.stop, found.info) == (StopReason.GOAL, {"turn": 1})
    assert answered(Reply(""), turns=2).stop is StopReason.MAX_TURNS


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("stop", [None, StopReason.ANSWERED, StopReason.CONTEXT])
def test_a_reward_that_is_no_number_is_a_failure(reward, stop):
    found = answered(Reply("", reward, stop))
    assert found.stop is StopReason.INFRA_ERROR and math.isnan(found.reward)
    assert found.info == {"error": f"the environment paid a reward of {reward}"}


def test_a_failure_that_the_environment_tells_keeps_its_name():
    found = answered(EnvFailure("gone"))
    assert (found.stop, found.info["error"], math.isnan(found.reward)) == (StopReason.INFRA_ERROR, "gone", True)
    assert failure({"error": "late"}).info == {"error": "late"} and failure({}).stop is StopReason.INFRA_ERROR


def test_what_an_environment_raises_passes_through():
    with pytest.raises(ZeroDivisionError):
        answered(ZeroDivisionError())
    with pytest.raises(gymnasium.error.ResetNeeded):
        answered(Reply("", stop=StopReason.GOAL), turns=2)


@pytest.mark.parametrize("stop", StopReason)
def test_only_failures_pay_nothing(stop):
    assert pays(stop) == (stop not in (StopReason.TOOL_ERROR, StopReason.INFRA_ERROR))
