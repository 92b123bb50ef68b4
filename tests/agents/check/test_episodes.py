import pytest

from turngym.agents.check.episodes import (
    COUNTER,
    LONGEST,
    Broken,
    Scenario,
    Subject,
    episode,
    example_calls,
    expert,
    moment,
    same,
    words,
)
from turngym.envs.registry import make
from turngym.tools import PythonTool, get_format


class OnlyPython:
    """A format that has words for one tool."""

    def render(self, call):
        if call.name != "python":
            raise ValueError("no words for it")
        return call.arguments["code"]


@pytest.fixture
def plans(register):
    def plans(maker, seed=0):
        return Subject(register(maker), {}, seed).scenarios

    return plans


def test_plans_are_of_experts_of_tools_and_of_chance(quiz, world, plans):
    gold, other, tried, mixed = plans(world)
    assert [plan.seed for plan in (gold, other, tried, mixed)] == [0, 1, 3, 2]
    assert (
        gold.actions[:2] == ("think", "think")
        and gold.actions[2].startswith("answer ")
        and gold != other
    )
    assert (
        mixed.actions[:2] == ("think", "think")
        and mixed.actions[2:] == tried.actions
        and len(tried.actions) == 3
    )
    tried = plans(quiz)[2]
    assert [action.startswith("<tool_call>") for action in tried.actions] == [True] * 4 + [
        False
    ] * 3
    assert plans(world, 5)[2] != plans(world, 6)[2] and plans(world, 5) == plans(world, 5)


def test_an_expert_is_cut_and_one_that_fails_says_nothing(world, register):
    class Long(world):
        def __init__(self):
            super().__init__(max_turns=1000)

        def gold(self):
            return ["think"]

    class Failing(world):
        def gold(self):
            return ["think"] if not self.turn else []

    assert expert(make(register(Long)), 0) == ("think",) * LONGEST
    assert expert(make(register(Failing)), 0) == ()
    assert expert(make(register(world)), 0, 3)[-1] == "answer 21"


def test_calls_are_written_as_the_environment_reads_them(quiz, register):
    def armed():
        return quiz([PythonTool()])

    env = make(register(armed))
    names = tuple(env.toolbox.tools)
    parsed = [get_format("hermes").parse(text, names).call for text in example_calls(env)]
    assert [(call.name, call.arguments) for call in parsed] == [
        ("memory", {"word": "1", "how": "at the end"}),
        ("echo", {"text": "1", "times": 1, "also": []}),
        ("python", {"code": COUNTER}),
    ]
    assert [
        get_format("hermes").parse(text, names).call.arguments
        for text in example_calls(env, "\ud800")
    ][2] == {"code": "\ud800"}
    env.format = OnlyPython()
    assert list(example_calls(env)) == [COUNTER]


def test_words_are_those_of_the_seed(world, register):
    env = make(register(world))
    assert words(env, 1) == words(env, 1) != words(env, 2)


def test_an_episode_is_seen_up_to_its_end(world, register):
    env = make(register(world))
    seen = episode(env, Scenario(3, ("think", "answer 0", "think")))
    assert len(seen) == 3 and "seven times" in seen[0] and "'stop': 'answered'" in seen[2]


def test_moments_differ_in_the_last_bit_and_not_in_nan():
    assert moment("a", float("nan"), {}) == moment("a", float("nan"), {})
    assert moment(0.1 + 0.2) != moment(0.3)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["reset", "one", "else"], "it broke: at turn 2 it gave else and not two"),
        (["else", "one", "two"], "it broke: at reset it gave else and not reset"),
        (["reset", "one"], "it broke: at turn 2 it gave nothing, as it has ended and not two"),
        (
            ["reset", "one", "two", "three"],
            "it broke: at turn 3 it gave three and not nothing, as it has ended",
        ),
    ],
)
def test_the_first_difference_is_named(found, said):
    with pytest.raises(Broken) as caught:
        same(["reset", "one", "two"], found, "it broke")
    assert str(caught.value) == said
    same(found, found, "it broke")


def test_long_moments_are_cut_around_the_difference():
    with pytest.raises(Broken) as caught:
        same(["a" * 300 + "b" * 300], ["a" * 300 + "c" * 300], "it broke", turn=4)
    assert str(caught.value) == (
        f"it broke: at turn 4 it gave …{'a' * 40}{'c' * 80}… and not …{'a' * 40}{'b' * 80}…"
    )
