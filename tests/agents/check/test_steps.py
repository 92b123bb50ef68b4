import pytest

from turngym.agents.check.steps import ODD
from turngym.envs import EnvFailure, Reply
from turngym.tools import ToolFailure


def breaks(problems, *clauses):
    return set(problems) == set(clauses) and all(problems.values())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": float("nan")}, "turn 1: the reward is nan; only a failure"),
        ({"reward": float("inf")}, "turn 1: the reward is inf"),
        ({"info": {"bag": (1, 2)}}, "turn 1: info comes back from JSON as"),
        ({"info": {"bag": float("nan")}}, "turn 1: info is no JSON data"),
        (
            {"info": {"messages": "hm"}},
            "turn 1: info['messages'] must be messages of role and content",
        ),
        ({"info": {"messages": []}}, "turn 1: info['messages'] must be messages"),
        ({"role": "crowd"}, "turn 1: info['messages'] must be messages of role and content"),
        (
            {"info": {"stop": "goal"}},
            "turn 1: terminated is False, truncated False, and info holds ['stop']",
        ),
        ({"info": {"turn": 0}}, "turn 1: info['turn'] is 0; leave `turn` to the base class"),
        ({"valid": 1}, "turn 1: the reply's `valid` is 1; it must be True, False or None"),
        ({"text": "x" * 70_000}, "(70000 characters, 'xxx"),
    ],
)
def test_a_reply_that_is_not_as_promised_is_seen(changes, words, world, problem):
    class Changed(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return reply if reply.stop else Reply(**{**vars(reply), **changes})

    assert words in problem("steps", Changed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "truncated"}, "stop 'answered' does not go with 'truncated'"),
        ({"stop": "max_turns"}, "stop 'max_turns' does not go with 'done'"),
        ({"stop": "bored"}, "'bored' is not a valid StopReason"),
        ({"outcome": None}, "info holds ['stop']"),
    ],
)
def test_an_end_that_is_not_as_promised_is_seen(changes, words, world, problem):
    class Misnamed(world):
        def step(self, action):
            *rest, info = super().step(action)
            info |= changes if "stop" in info else {}
            return *rest, {name: value for name, value in info.items() if value is not None}

    assert words in problem("steps", Misnamed)


def test_a_failure_that_is_paid_is_seen(world, problem):
    class Paying(world):
        def on_step(self, text):
            if text == "think":
                raise ToolFailure("the disk is full")
            return super().on_step(text)

        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 0.0, *rest

    assert "with stop 'tool_error'; a failure has no reward" in problem("steps", Paying)


@pytest.mark.parametrize("name", ["task_id", "tools", "messages"])
def test_an_opening_that_lacks_something_is_seen(name, world, problem):
    class Lacking(world):
        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation, {key: value for key, value in info.items() if key != name}

    said = problem("steps", Lacking)
    assert "reset: info" in said and name in said


def test_a_step_after_the_end_is_seen(world, broken):
    class Endless(world):
        def step(self, action):
            if not self.live and self.turn:
                return "over", 0.0, True, False, {}
            return super().step(action)

    problems = broken(Endless)
    assert (
        breaks(problems, "steps")
        and "a step after the end of an episode does not raise" in problems["steps"]
    )


def test_a_step_before_the_first_reset_is_seen(world, problem):
    class Eager(world):
        def step(self, action):
            if not self.turn and not self.live:
                self.reset(seed=0)
            return super().step(action)

    assert "a step before the first reset does not raise" in problem("steps", Eager)


def test_an_info_that_is_given_away_twice_is_seen(world, problem):
    class Lending(world):
        def __init__(self):
            super().__init__()
            self.rules = [{"role": "system", "content": "Be brief."}]

        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation, {**info, "messages": self.rules + info["messages"]}

    assert "changed by their owner" in problem("steps", Lending)


# --- whatever the agent writes


def test_text_that_raises_is_seen(world, broken):
    class Brittle(world):
        def on_step(self, text):
            if "\0" in text:
                raise ValueError("embedded null byte")
            return super().on_step(text)

    problems = broken(Brittle)
    assert breaks(problems, "any-text")
    assert (
        "the action '\\x00' (1 characters) raises ValueError: embedded null byte"
        in problems["any-text"]
    )


@pytest.mark.parametrize("failure", [EnvFailure, ToolFailure])
def test_text_that_makes_the_environment_fail_is_seen(failure, world, problem):
    class Frail(world):
        def on_step(self, text):
            if text != text.encode(errors="replace").decode():
                raise failure("cannot encode this")
            return super().on_step(text)

    assert "_error (cannot encode this); answer every text of an agent" in problem(
        "any-text", Frail
    )


def test_an_answer_to_long_text_that_no_space_holds_is_seen(world, problem):
    class Echoing(world):
        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(
                text if len(text) > 99 else reply.text, reply.reward, reply.stop, info=reply.info
            )

    assert "is not in TextSpace(max_bytes=65536); shorten it" in problem("any-text", Echoing)


@pytest.mark.parametrize("part", ["[" * 5_000, "\ud800", "x" * 100_000])
def test_odd_text_also_comes_in_calls_and_in_answers(part, world, quiz, memory, problem):
    assert part in ODD or any(part in odd for odd in ODD)

    class Answering(world):
        def on_step(self, text):
            if text.startswith("answer") and part in text:
                raise RecursionError("too deep")
            return super().on_step(text)

    class Fragile(memory):
        name = "fragile"

        def call(self, arguments):
            if part in arguments["word"]:
                raise RecursionError("too deep")
            return super().call(arguments)

    class Calling(quiz):
        def __init__(self):
            super().__init__([Fragile()])

    for kind in (Answering, Calling):
        assert "too deep" in problem("any-text", kind)
