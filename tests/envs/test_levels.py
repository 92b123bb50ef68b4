import pytest

from turngym.envs import TextEnv
from turngym.envs.levels import check_levels, levels_of
from turngym.envs.math import make_math, make_math_python
from turngym.tools.python.levels import LEVELS, LevelRefused


@pytest.fixture
def weak(monkeypatch):
    """A machine that gives the weakest level only."""

    def require(level):
        if level != LEVELS[-1]:
            raise LevelRefused(level, f"no {level} here")

    monkeypatch.setattr("turngym.envs.levels.require", require)


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
    monkeypatch.setattr("turngym.envs.levels.LEVELS", LEVELS[-1:])
    env = make_math_python(level=LEVELS[0])  # of which nothing is known
    check_levels(env)
    check_levels(make_math())
