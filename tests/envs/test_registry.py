import importlib
import os
import subprocess
import sys

import gymnasium
import pytest

from turngym.envs import Reply, StopReason, TextEnv, register_all, registry
from turngym.envs.math import make_math, make_math_python
from turngym.envs.options import EnvOptions, check_levels, levels_of
from turngym.envs.question.env import QuestionEnv
from turngym.tools.python import LEVELS, LevelRefused


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
    assert [entry.id for entry in registry.ENVS] == [
        "turngym/Math-v0",
        "turngym/MathPython-v0",
        "turngym/Search-v0",
        "turngym/ALFWorld-v0",
        "turngym/BFCL-v0",
        "turngym/ScienceWorld-v0",
        "turngym/Tau2-v0",
        "turngym/Household-v0",
        "turngym/LateBloomer-v0",
        "turngym/UselessChoice-v0",
        "turngym/ManyWays-v0",
        "turngym/Distractor-v0",
    ]
    for entry in registry.ENVS:
        assert gymnasium.spec(entry.id).entry_point == entry.entry_point
        assert entry.summary


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register_all()
    assert before == gymnasium.registry


@pytest.mark.parametrize(
    "entry", [e for e in registry.ENVS if not e.needs], ids=lambda entry: entry.id
)
def test_make_gives_the_bare_environment_that_gymnasium_wraps(entry):
    env, wrapped = registry.make(entry.id), gymnasium.make(entry.id)
    assert type(env) is type(wrapped.unwrapped) and isinstance(env, TextEnv)
    assert env.reset(seed=4) == wrapped.reset(seed=4)


def test_make_passes_options_over_those_of_the_registration(echo):
    assert registry.make(echo).reset(seed=0)[0] == "good day"
    assert registry.make(echo, greeting="hi", max_turns=1).reset(seed=0)[0] == "hi"


def test_what_made_an_environment_can_be_read_from_it(echo):
    for env in (registry.make(echo, max_turns=3), gymnasium.make(echo, max_turns=3).unwrapped):
        for one in (env, env.fork()):
            assert (one.spec.id, one.spec.kwargs) == (
                echo,
                {"greeting": "good day", "max_turns": 3},
            )
    registry.make(echo, greeting="hi").spec.kwargs["more"] = 1
    assert gymnasium.spec(echo).kwargs == {"greeting": "good day"}


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("turngym/MathPyton-v0", "did you mean 'turngym/MathPython-v0'?"),
        ("zzz", "turngym has turngym/Math-v0"),
    ],
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
    with pytest.raises(
        TypeError,
        match="CartPole-v1 makes a CartPoleEnv; turngym supports TextEnv environments only",
    ):
        registry.make("CartPole-v1")


def test_an_id_with_the_packages_name_works_in_a_fresh_process():
    code = (
        "import gymnasium\n"
        "env = gymnasium.make('turngym:turngym/MathPython-v0', difficulty=3)\n"
        "observation, info = env.reset(seed=7, options={'task': 12})\n"
        "print(info['task_id'].split('-')[-1], observation == info['messages'][-1]['content'])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd="/"
    )
    assert (done.stdout, done.stderr) == ("12 True\n", "")


# --- what other packages declare

WORLDS = """
from turngym.envs import Reply, TextEnv

class World(TextEnv):
    def __init__(self, size=3, **others):
        super().__init__()
        self.size, self.others = size, others

    def on_reset(self, rng, options):
        return "x" * self.size

    def on_step(self, text):
        return Reply(text)

thing = "no factory"
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install packages that declare environments; whatever they register is forgotten again."""

    def install(package, lines, summary=None, module=WORLDS):
        name = package.replace("-", "_").lower()
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        about = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n" + (
            f"Summary: {summary}\n" if summary else ""
        )
        (info / "METADATA").write_text(about)
        (info / "entry_points.txt").write_text(f"[turngym.envs]\n{lines}\n")
        (tmp_path / f"{name}.py").write_text(module)
        importlib.invalidate_caches()

    before = dict(gymnasium.registry)
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield install
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    for name in set(sys.modules) - modules:
        if (
            getattr(sys.modules[name], "__file__", None)
            and str(tmp_path) in sys.modules[name].__file__
        ):
            del sys.modules[name]


def test_environments_of_other_packages_are_listed_and_registered_without_being_imported(install):
    install(
        "My-Worlds",
        "my/World-v0 = my_worlds:World\nmy/Other-v1 = my_worlds:World",
        summary="Worlds of mine.",
    )
    install("all-worlds", "all/World-v0 = all_worlds:World")
    listed = registry.entries()
    own = len(registry.ENVS)
    assert listed[:own] == registry.ENVS and all(
        entry.package == "turngym" for entry in registry.ENVS
    )
    assert [(entry.id, entry.package, entry.summary) for entry in listed[own:]] == [
        ("all/World-v0", "all-worlds", ""),
        ("my/Other-v1", "My-Worlds", "Worlds of mine."),
        ("my/World-v0", "My-Worlds", "Worlds of mine."),
    ]
    register_all()
    register_all()
    assert gymnasium.spec("my/World-v0").entry_point == "my_worlds:World"
    assert "my_worlds" not in sys.modules
    assert gymnasium.make("my/World-v0", size=2).reset(seed=0)[0] == "xx"
    env = registry.make("my/Other-v1", size=5)
    assert env.reset(seed=0)[0] == "xxxxx" and env.spec.id == "my/Other-v1"


def test_importing_turngym_registers_them(install, tmp_path):
    install("my-worlds", "my/World-v0 = my_worlds:World\nturngym/Math-v0 = my_worlds:World")
    code = (
        "import sys, gymnasium, turngym\n"
        "print('my_worlds' in sys.modules, gymnasium.make('my/World-v0').reset(seed=0)[0])\n"
        "print(type(gymnasium.make('turngym/Math-v0').unwrapped).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert (done.stdout, done.stderr) == ("False xxx\nQuestionEnv\n", "")


def test_what_was_installed_after_the_import_is_found(install):
    install("my-worlds", "my/World-v0 = my_worlds:World")
    assert "my/World-v0" not in gymnasium.registry
    assert registry.make("my/World-v0").reset(seed=0)[0] == "xxx"
    with pytest.raises(
        ValueError, match="unknown environment 'my/Wrld-v0'; did you mean 'my/World-v0'"
    ):
        registry.make("my/Wrld-v0")


def test_a_factory_that_takes_any_option_is_given_them(install):
    install("my-worlds", "my/World-v0 = my_worlds:World")
    assert registry.make("my/World-v0", colour="red").others == {"colour": "red"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("my_worlds:Wrld", "my_worlds.py) has no Wrld; did you mean 'World'?"),
        ("my_wrlds:World", "there is no module my_wrlds"),
        ("my_worlds", "as 'my_worlds'; it needs module:factory"),
        ("my_worlds:World.make", "as 'my_worlds:World.make'; it needs module:factory"),
        ("my_worlds:World [extra]", "as 'my_worlds:World [extra]'; it needs module:factory"),
    ],
)
def test_a_broken_declaration_is_an_error_only_when_it_is_used(value, words, install):
    install("my-worlds", f"my/World-v0 = {value}\nmy/Good-v0 = my_worlds:World")
    register_all()
    assert registry.make("my/Good-v0").reset(seed=0)[0] == "xxx"
    with pytest.raises(ValueError) as caught:
        registry.make("my/World-v0", size=3)
    assert all(
        part in str(caught.value) for part in ("my/World-v0", "the package my-worlds", value, words)
    )
    with pytest.raises((ValueError, ImportError, AttributeError), match="my_w"):
        gymnasium.make("my/World-v0")


def test_a_module_that_cannot_be_imported_is_named_with_its_reason(install):
    install("my-worlds", "my/World-v0 = my_worlds:World", module="raise RuntimeError('no display')")
    with pytest.raises(
        ValueError,
        match=r"importing my_worlds raises RuntimeError: no display \(.*my_worlds.py, line 1\)",
    ):
        registry.make("my/World-v0")


def test_an_id_that_two_packages_declare_belongs_to_neither(install):
    install("my-worlds", "my/World-v0 = my_worlds:World")
    install("our-worlds", "my/World-v0 = our_worlds:World\nturngym/Math-v0 = our_worlds:World")
    register_all()
    assert type(registry.make("turngym/Math-v0")) is QuestionEnv
    for make in (registry.make, gymnasium.make):
        with pytest.raises(
            ValueError, match="by the packages my-worlds and our-worlds; uninstall all but one"
        ):
            make("my/World-v0")


def test_an_id_that_gymnasium_refuses_harms_no_other(install):
    install("my-worlds", "no good id!-v0 = my_worlds:World\nmy/Good-v0 = my_worlds:World")
    register_all()
    assert registry.make("my/Good-v0").reset(seed=0)[0] == "xxx"
    with pytest.raises(
        ValueError,
        match="the package my-worlds declares 'no good id!-v0', which Gymnasium refuses: ",
    ):
        registry.make("no good id!-v0")


def test_an_environment_that_is_a_vector_only_is_refused():
    gymnasium.register("test/Vector-v0", vector_entry_point="nowhere:Vector")
    try:
        with pytest.raises(
            ValueError,
            match="test/Vector-v0 has no entry point: Gymnasium makes it as a vector only",
        ):
            registry.make("test/Vector-v0")
    finally:
        del gymnasium.registry["test/Vector-v0"]


def test_what_is_left_out_is_not_passed():
    assert EnvOptions().kwargs() == {}


def test_named_options_are_passed():
    assert EnvOptions(tasks="a.jsonl", difficulty=(1, 3)).kwargs() == {
        "tasks": "a.jsonl",
        "difficulty": (1, 3),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max_turns=3", 3),
        ("timeout=0.5", 0.5),
        ("format=llama-json", "llama-json"),
        ("level=rlimits-only", "rlimits-only"),
        ("families=['words', 'units']", ["words", "units"]),
        ("system=Say \"yes\" = 'no'", "Say \"yes\" = 'no'"),
        ("system=", ""),
        ("flag=true", True),
        ("split='test'", "test"),
    ],
)
def test_options_are_toml_values_and_bare_words_are_text(text, value):
    assert EnvOptions(option=(text,)).kwargs() == {text.partition("=")[0]: value}


def test_an_option_without_a_value_is_named_with_the_fix():
    with pytest.raises(
        ValueError, match="--option 'max_turns' is not of the form name=value, such as max_turns=3"
    ):
        EnvOptions(option=("max_turns",)).kwargs()


@pytest.fixture
def weak(monkeypatch):
    """A machine that gives the weakest level only."""

    def require(level):
        if level != LEVELS[-1]:
            raise LevelRefused(level, f"no {level} here")

    monkeypatch.setattr("turngym.envs.options.require", require)


def test_tools_have_levels_by_name_and_other_environments_none():
    assert levels_of(make_math_python(level="landlock")) == {"python": "landlock"}
    assert levels_of(make_math()) == levels_of(TextEnv()) == {}


def test_a_level_that_the_machine_cannot_give_is_refused_with_the_reason(weak):
    for level in LEVELS[:-1]:
        with pytest.raises(LevelRefused, match=f"{level}.*no {level} here.*rlimits-only"):
            check_levels(make_math_python(level=level))
    check_levels(make_math_python(level=LEVELS[-1]))


def test_this_machine_can_give_the_weakest_level():
    check_levels(make_math_python(level=LEVELS[-1]))


def test_nothing_is_asked_where_no_tool_has_such_a_level(weak, monkeypatch):
    monkeypatch.setattr("turngym.envs.options.LEVELS", LEVELS[-1:])
    env = make_math_python(level=LEVELS[0])  # of which nothing is known
    check_levels(env)
    check_levels(make_math())
