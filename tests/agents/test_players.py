import pytest

from turngym.agents.players import PLAYERS, Expert, Human
from turngym.envs.registry import make


@pytest.mark.parametrize(("env_id", "turns"), [("turngym/Math-v0", 1), ("turngym/MathPython-v0", 2)])
def test_the_expert_wins(env_id, turns):
    env, player = make(env_id), PLAYERS["expert"]()
    assert isinstance(player, Expert)
    observation, info = env.reset(seed=3)
    terminated = False
    while not terminated:
        observation, reward, terminated, _, info = env.step(player.act(env, observation, info))
    assert (reward, env.turn, info["stop"]) == (1.0, turns, "answered")
    env.close()


def test_the_expert_of_an_environment_without_one_is_an_error():
    from turngym.envs import TextEnv

    with pytest.raises(TypeError, match="TextEnv has no expert: define gold"):
        Expert().act(TextEnv(), "", {})


def test_a_human_is_asked_with_what_was_observed():
    asked = []
    player = Human(lambda observation: asked.append(observation) or "typed")
    assert player.act(make("turngym/Math-v0"), "What?", {}) == "typed"
    assert asked == ["What?"]
