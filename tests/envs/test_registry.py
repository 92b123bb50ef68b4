import subprocess
import sys

import gymnasium
import pytest

from turngym.envs import Reply, StopReason, TextEnv, register_all, registry
from turngym.envs.question import QuestionEnv


class Echo(TextEnv):
    def __init__(self, greeting: str = "hello", max_turns: int = 2) -> None:
        super().__init__(max_turns)
        self.greeting = greeting

    def on_reset(self, rng, options):
        return self.greeting

    def on_step(self, text):
        return Reply(text, stop=StopReason.GOAL if text == "bye" else None)


@pytest.fixture
def echo():
    """An environment of someone else's, registered with an option of its own."""
    gymnasium.register("test/Echo-v0", entry_point=Echo, kwargs={"greeting": "good day"})
    yield "test/Echo-v0"
    del gymnasium.registry["test/Echo-v0"]


def test_every_entry_is_registered_and_described():
    assert [entry.id for entry in registry.ENVS] == ["turngym/Math-v0", "turngym/MathPython-v0"]
    for entry in registry.ENVS:
        assert gymnasium.spec(entry.id).entry_point == entry.entry_point
        assert entry.summary


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register_all()
    assert before == gymnasium.registry


@pytest.mark.parametrize("entry", registry.ENVS, ids=lambda entry: entry.id)
def test_make_gives_the_bare_environment_that_gymnasium_wraps(entry):
    env, wrapped = registry.make(entry.id), gymnasium.make(entry.id)
    assert type(env) is type(wrapped.unwrapped) is QuestionEnv
    assert env.reset(seed=4) == wrapped.reset(seed=4)


def test_make_passes_options_over_those_of_the_registration(echo):
    assert registry.make(echo).reset(seed=0)[0] == "good day"
    assert registry.make(echo, greeting="hi", max_turns=1).reset(seed=0)[0] == "hi"


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [("turngym/MathPyton-v0", "did you mean 'turngym/MathPython-v0'?"), ("zzz", "turngym has turngym/Math-v0")],
)
def test_an_unknown_id_is_refused_with_the_nearest(env_id, hint):
    with pytest.raises(ValueError) as caught:
        registry.make(env_id)
    assert f"unknown environment {env_id!r}" in str(caught.value) and hint in str(caught.value)


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ValueError) as caught:
        registry.make("turngym/MathPython-v0", dificulty=3)
    assert str(caught.value).startswith(
        "turngym/MathPython-v0 takes no option 'dificulty'; did you mean 'difficulty'? its options are tasks, split"
    )


def test_an_environment_that_does_not_speak_text_is_refused():
    with pytest.raises(TypeError, match="CartPole-v1 makes a CartPoleEnv; turngym acts in TextEnv environments only"):
        registry.make("CartPole-v1")


def test_options_for_play_are_copies():
    assert registry.play_options("turngym/MathPython-v0") == {"format": "python-tag"}
    registry.play_options("turngym/MathPython-v0").clear()
    assert registry.play_options("turngym/MathPython-v0") == {"format": "python-tag"}
    assert registry.play_options("turngym/Math-v0") == registry.play_options("test/Echo-v0") == {}


def test_an_id_with_the_packages_name_works_in_a_fresh_process():
    code = (
        "import gymnasium\n"
        "env = gymnasium.make('turngym:turngym/MathPython-v0', difficulty=3)\n"
        "observation, info = env.reset(seed=7, options={'task': 12})\n"
        "print(info['task_id'].split('-')[-1], observation == info['messages'][-1]['content'])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("12 True\n", "")
