"""What `gymnasium.make` is asked for on top: a time limit, and options that there are none of."""

import gymnasium
import pytest

import turngym
from turngym.envs.registry import ENVS, defaults_of

CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "print(6 * 7)"}}\n</tool_call>'


def test_an_episode_that_a_time_limit_ends_says_so_also_in_a_copy():
    env = gymnasium.make("turngym/MathPython-v0", max_episode_steps=2, max_turns=3)
    env.reset(seed=0)
    *_, terminated, truncated, info = env.step(CALL)
    assert (terminated, truncated) == (False, False) and not info.keys() & {"stop", "outcome"}
    for one in (turngym.fork(env), env):
        *_, terminated, truncated, info = one.step(CALL)
        assert (terminated, truncated, info["stop"], info["outcome"]) == (
            False,
            True,
            "max_turns",
            "truncated",
        )
        one.close()


def test_an_end_within_the_limit_stays_what_it_is():
    env = gymnasium.make("turngym/Math-v0", max_episode_steps=1)
    env.reset(seed=0)
    *_, info = env.step("no idea")
    assert (info["stop"], info["outcome"]) == ("no_answer", "done")


@pytest.mark.parametrize("entry", ENVS, ids=lambda entry: entry.id)
def test_an_unknown_option_is_named_with_the_nearest_one(entry):
    near = "split" if "split" in defaults_of(entry.id) else "max_turns"
    with pytest.raises(
        ValueError,
        match=rf"^make_\w+ takes no option '{near}t'; did you mean '{near}'\? its options are ",
    ):
        gymnasium.make(entry.id, **{f"{near}t": 3})
    with pytest.raises(
        ValueError,
        match=r"^make_\w+ takes no option 'render_mode'; observations are text: print them$",
    ):
        gymnasium.make(entry.id, render_mode="ansi")
