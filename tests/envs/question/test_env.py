import asyncio
import json
import math

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.envs import EnvFailure
from turngym.envs.math.grading.grader import Grade
from turngym.envs.question.env import QuestionEnv
from turngym.envs.question.toolbox import Toolbox
from turngym.envs.tasks import ListTasks, Task
from turngym.tools import Status, ToolCall, ToolFailure, ToolResult, get_format, tool

CANARY = "canary-7193"
TASKS = ListTasks(
    [Task(f"t{i}", f"question {i}", f"{CANARY}-{i}", f"print('{CANARY}')") for i in range(5)],
    "toys",
)


class Exact:
    """A grader that wants the gold after `answer: `; it can be made to fail."""

    def grade(self, *, completion, gold):
        if "unanswerable" in completion:
            raise EnvFailure("the grader is down")
        answer = completion.partition("answer: ")[2] or None
        return Grade(float(answer == gold), answer, "string" if answer else "no-answer")


class Memory:
    """A tool with state: it adds words and gives back all of them."""

    name = "memory"
    schema = {  # noqa: RUF012
        "type": "function",
        "function": {
            "name": "memory",
            "description": "d",
            "parameters": {"type": "object", "properties": {}},
        },
    }

    def __init__(self, words=()):
        self.words, self.closed = list(words), 0

    def call(self, arguments):
        if arguments.get("word") == "fail":
            raise ToolFailure("the disk is full")
        if "word" not in arguments:
            return ToolResult(Status.ERROR, "memory needs a word")
        self.words.append(arguments["word"])
        return ToolResult(Status.OK, " ".join(self.words))

    def reset(self):
        self.words = []

    def fork(self):
        return Memory(self.words)

    def close(self):
        self.closed += 1


@tool
def echo(text: str) -> str:
    """Give back the text.

    Args:
        text: what comes back
    """
    return text


@tool
def python(code: str) -> str:
    """Run code."""
    return f"ran {code}"


@tool
def search(query: str) -> str:
    """Find text."""
    return f"found {query}"


def call(name="memory", **arguments):
    return get_format("hermes").render(ToolCall(name, arguments))


def make(**options):
    env = QuestionEnv(TASKS, Exact(), [Memory(), echo], **options)
    env.reset(seed=0, options={"task": 2})
    return env


# --- the opening


def test_without_tools_every_reply_is_final():
    env = QuestionEnv(TASKS, Exact(), max_turns=7)
    assert env.max_turns == 1
    observation, info = env.reset(seed=0, options={"task": 1})
    assert (observation, info["task_id"], info["tools"]) == ("question 1", "t1", [])
    assert info["messages"] == [{"role": "user", "content": "question 1"}]
    _, reward, terminated, truncated, info = env.step(call(word="a"))
    assert (reward, terminated, truncated, info["stop"], info["valid"]) == (
        0.0,
        True,
        False,
        "no_answer",
        False,
    )


def test_the_opening_has_the_system_prompt_the_formats_instructions_and_the_schemas():
    env = QuestionEnv(TASKS, Exact(), [Memory(), echo], format="pythonic", system="Be brief.")
    _, info = env.reset(seed=0)
    assert [message["role"] for message in info["messages"]] == ["system", "user"]
    first, _, rest = info["messages"][0]["content"].partition("\n")
    assert (first, rest) == (
        "Be brief.",
        get_format("pythonic").instructions([Memory.schema, echo.schema]),
    )
    # A chat template would teach the calls in its own form, too.
    assert info["tools"] == []
    _, info = QuestionEnv(TASKS, Exact(), [Memory(), echo]).reset(seed=0)
    assert info["tools"] == [Memory.schema, echo.schema]
    assert make().messages("q") == [
        {"role": "user", "content": "q"}
    ]  # hermes leaves the tools to the template


class Boxed(Memory):
    """A tool that is isolated."""

    level = "a box"


def test_the_opening_says_how_the_tools_are_isolated():
    env = QuestionEnv(TASKS, Exact(), [Boxed(), echo])
    assert env.reset(seed=0)[1]["levels"] == {"memory": "a box"} == env.toolbox.levels
    assert "levels" not in env.step(call(word="a"))[4]
    assert (
        "levels" not in make().reset(seed=0)[1] and QuestionEnv(TASKS, Exact()).toolbox.levels == {}
    )


def test_an_episode_is_the_same_at_every_level():
    one, other = QuestionEnv(TASKS, Exact(), [Boxed()]), QuestionEnv(TASKS, Exact(), [Memory()])
    one.reset(seed=0)
    one.step(call(word="a"))
    assert other.restore(one.snapshot()) == "a" and other.snapshot() == one.snapshot()


def test_the_seed_draws_the_task_and_an_index_chooses_it():
    env = QuestionEnv(TASKS, Exact())
    drawn = [env.reset(seed=seed)[0] for seed in range(40)]
    assert drawn == [env.reset(seed=seed)[0] for seed in range(40)]
    assert len(set(drawn)) == len(TASKS)
    assert [env.reset(seed=0, options={"task": i})[0] for i in range(5)] == [
        f"question {i}" for i in range(5)
    ]


def test_an_unknown_format_is_refused_with_the_nearest():
    with pytest.raises(
        ValueError, match="unknown tool-call format 'hermse'; did you mean 'hermes'"
    ):
        QuestionEnv(TASKS, Exact(), format="hermse")


def test_a_format_that_cannot_call_the_tools_is_refused():
    with pytest.raises(
        ValueError, match="the format tags has no tag for the tool 'memory'; use hermes"
    ):
        QuestionEnv(TASKS, Exact(), [Memory()], format="tags")
    assert QuestionEnv(TASKS, Exact(), format="tags").format is get_format("tags")


def test_nothing_behind_a_final_answer_is_graded():
    env = QuestionEnv(TASKS, Exact(), [python], format="tags")
    env.reset(seed=0, options={"task": 2})
    info = env.step(f"So <answer>answer: {CANARY}-2</answer> <python>1</python> answer: no")[4]
    assert (info["stop"], info["answer"]) == ("answered", f"{CANARY}-2</answer>")


def test_a_result_comes_back_in_the_tags_of_its_tool():
    env = QuestionEnv(TASKS, Exact(), [python, search], format="tags")
    env.reset(seed=0, options={"task": 2})
    seen = [env.step(f"<{tag}>x</{tag}>")[0] for tag in ("python", "search")]
    assert seen == ["<result>\nran x\n</result>", "<information>\nfound x\n</information>"]
    assert env.step("<python>x")[0].startswith(
        "<result>\nerror: malformed tool call: <python> is never closed"
    )


def test_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two tools share a name: memory, echo, memory"):
        Toolbox([Memory(), echo, Memory()])


def shout(text: str) -> str:
    """Give back the text in capitals."""
    return text.upper()


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, by: int = 1) -> int:
        """Add to the count."""
        self.count += by
        return self.count

    def read(self) -> int:
        """Read the count."""
        return self.count


def test_functions_and_classes_are_tools_wherever_tools_are_taken():
    env = QuestionEnv(TASKS, Exact(), [shout, Counter, echo], max_turns=9)
    assert list(env.toolbox.tools) == ["shout", "add", "read", "echo"]
    env.reset(seed=0)
    assert [env.step(call("shout", text="a"))[0], env.step(call("add", by=2))[0]] == ["A", "2"]
    twin = env.fork()
    assert [twin.step(call("add"))[0], env.step(call("read"))[0], twin.step(call("read"))[0]] == [
        "3",
        "2",
        "3",
    ]
    env.reset(seed=0)
    assert env.step(call("read"))[0] == "0" and twin.step(call("read"))[0] == "3"


def test_a_tool_that_lacks_something_is_refused_where_the_environment_is_made():
    class Half:
        name, call = "half", print

    with pytest.raises(TypeError, match="is no tool: it has no schema, reset, fork, close"):
        QuestionEnv(TASKS, Exact(), [Half()])


def test_an_async_tool_that_is_late_is_cancelled_and_could_not_run():
    ended = []

    async def sleep() -> str:
        """Sleep."""
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")
        return ""

    env = QuestionEnv(TASKS, Exact(), [sleep], tool_timeout=0.01)
    env.reset(seed=0)
    info = env.step(call("sleep"))[4]
    assert (info["outcome"], info["error"], ended) == (
        "tool_error",
        "the tool sleep did not answer within 0.01 s",
        ["cancelled"],
    )


# --- turns


def test_a_call_gives_its_result_and_the_episode_goes_on():
    env = make()
    text, reward, terminated, truncated, info = env.step(f"I shall. {call(word='one')}")
    assert (text, reward, terminated, truncated) == ("one", 0.0, False, False)
    assert (info["tool"], info["tool_status"], info["valid"]) == ("memory", "ok", True)
    assert info["messages"] == [{"role": "tool", "content": "one"}]
    assert env.step(call(word="two"))[0] == "one two"
    assert env.step(f"answer: {CANARY}-2")[1:4] == (1.0, True, False)


def test_text_behind_the_first_whole_call_is_ignored():
    env = make()
    text, *_ = env.step(f"{call(word='first')} {call(word='second')} answer: {CANARY}-2")
    assert text == "first" and env.toolbox.tools["memory"].words == ["first"]
    assert env.live


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("<tool_call>{</tool_call>", "is not valid JSON"),
        ("<tool_call>[1]</tool_call>", "got a list"),
        (call("memroy", word="a"), "there is no tool 'memroy'; the tools are memory, echo"),
        (
            '<tool_call>{"name": "echo", "arguments": {"text": "a"}}',
            "is never closed by </tool_call>",
        ),
        ('<tool_call>{"name": "echo"}</tool_call>', '"arguments" must be an object, it is missing'),
    ],
)
def test_a_malformed_call_is_a_readable_error_and_the_episode_goes_on(action, words):
    env = make()
    text, reward, terminated, truncated, info = env.step(action)
    assert text.startswith("error: malformed tool call: ") and words in text
    assert (reward, terminated, truncated, info["tool"], info["tool_status"]) == (
        0.0,
        False,
        False,
        None,
        "malformed",
    )
    assert info["valid"] is False
    assert env.step(call(word="next"))[0] == "next"


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (call(), "memory needs a word"),
        (call("echo", text=3), "argument 'text' of echo is 3; expected a string"),
        (call("echo", words="a"), "echo has no argument 'words'; it takes text"),
    ],
)
def test_a_tools_own_error_is_an_observation(action, text):
    env = make()
    observed, reward, terminated, truncated, info = env.step(action)
    assert (observed, reward, terminated, truncated, info["tool_status"]) == (
        text,
        0.0,
        False,
        False,
        "error",
    )
    assert info["valid"] is False


def test_a_result_that_no_one_can_carry_or_that_is_empty_is_still_text():
    env = make()
    assert (
        env.step('<tool_call>{"name": "echo", "arguments": {"text": "\\ud800"}}</tool_call>')[0]
        == "?"
    )
    assert env.step(call("echo", text=""))[0] == "(no output)"
    assert env.step(call("echo", text="two\n\n"))[0] == "two"


@pytest.mark.parametrize("letter", ["x", "é", "🍎"])
def test_a_result_that_is_too_long_for_an_observation_keeps_its_head_and_tail(letter):
    env = make(format="hermes")
    long = f"head{letter * 20_000}tail"
    text, *_ = env.step(call("echo", text=long))
    assert env.observation_space.contains(text)
    assert text.startswith(f"head{letter}") and text.endswith(f"{letter}tail")
    assert text.count(letter) == 15_992 and "\n… [4008 characters cut] …\n" in text
    assert env.results == [text]
    whole = letter * 16_000
    assert env.step(call("echo", text=whole))[0] == whole


def test_calls_use_up_the_turns():
    env = make(max_turns=2)
    env.step("<tool_call>")
    *_, truncated, info = env.step(call(word="a"))
    assert (truncated, info["stop"], info["tool_status"]) == (True, "max_turns", "ok")


def test_a_tool_that_cannot_run_ends_the_episode_without_a_reward():
    env = make()
    text, reward, terminated, truncated, info = env.step(call(word="fail"))
    assert (text, terminated, truncated) == ("", False, True) and math.isnan(reward)
    assert (info["stop"], info["outcome"], info["error"]) == (
        "tool_error",
        "tool_error",
        "the disk is full",
    )


def test_a_grader_that_cannot_run_ends_the_episode_without_a_reward():
    env = make()
    _, reward, terminated, truncated, info = env.step("unanswerable")
    assert (terminated, truncated) == (False, True) and math.isnan(reward)
    assert (info["stop"], info["outcome"], info["error"]) == (
        "infra_error",
        "infra_error",
        "the grader is down",
    )


def test_an_answer_that_a_tool_gave_is_marked():
    for word, used in [("wrong", True), ("other", False)]:
        env = make()
        env.step(call(word=word))
        _, reward, *_, info = env.step("answer: wrong")
        assert (reward, info["answer"], info["how"], info["used_tool"]) == (
            0.0,
            "wrong",
            "string",
            used,
        )


def test_the_best_of_several_golds_is_paid():
    task = Task("t", "q", "one", aliases=("two", "three"))
    for answer, reward in [("one", 1.0), ("three", 1.0), ("four", 0.0)]:
        env = QuestionEnv(ListTasks([task]), Exact())
        env.reset(seed=0)
        _, paid, *_, info = env.step(f"answer: {answer}")
        assert (paid, info["answer"]) == (reward, answer)
    env.plant("five")
    for answer, reward in [("one", 0.0), ("two", 0.0), ("five", 1.0)]:
        env.reset(seed=0)
        assert env.step(f"answer: {answer}")[1] == reward


class Measured(QuestionEnv):
    """An environment with measures of its own, that looks at all that was written."""

    grades_all = True

    def used(self, answer):
        return answer in "".join(self.results)

    def measures(self, verdicts):
        return {"worst": min(verdict.score for verdict in verdicts)}


def test_an_environment_may_measure_an_answer_in_its_own_way():
    tasks = ListTasks([Task("t", "q", "one", aliases=("two",))])
    env = Measured(tasks, Exact(), [search], format="tags")
    env.reset(seed=0)
    env.step("<search>twofold</search>")
    info = env.step("<answer>hm</answer> answer: two")[4]
    assert (info["score"], info["worst"], info["used_tool"]) == (1.0, 0.0, True)


@given(
    st.lists(
        st.text()
        | st.sampled_from(["<tool_call>", "</tool_call>", "{", "<think>", call(word="a")]),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_text_is_answered_in_the_space_and_in_json(parts):
    env = make(max_turns=3)
    while env.live:
        text, reward, _, _, info = env.step("".join(parts))
        assert env.observation_space.contains(text) and reward == 0.0
        assert json.loads(json.dumps(info)) == info


# --- copies and secrets


def test_a_fork_has_tools_of_its_own_in_the_same_state():
    env = make()
    env.step(call(word="a"))
    twin = env.fork()
    assert (twin.step(call(word="b"))[0], env.step(call(word="c"))[0]) == ("a b", "a c")
    assert twin.tasks is env.tasks and twin.grader is env.grader
    env.step("answer: a")
    assert twin.step("answer: b")[4]["used_tool"] and env.results == ["a", "a c"]


def test_a_reset_and_a_close_reach_every_tool():
    env = make()
    env.step(call(word="a"))
    env.reset()
    assert env.step(call(word="b"))[0] == "b" and env.results == ["b"]
    env.close()
    assert env.toolbox.tools["memory"].closed == 1


def test_a_snapshot_replays_tools_and_all():
    env = make()
    for action in [call(word="a"), "<tool_call>", call(word="b")]:
        env.step(action)
    fresh = QuestionEnv(TASKS, Exact(), [Memory(), echo])
    assert fresh.restore(json.loads(json.dumps(env.snapshot()))) == "a b"
    assert fresh.toolbox.tools["memory"].words == ["a", "b"] and fresh.results == env.results
    assert fresh.step(f"answer: {CANARY}-2")[1] == 1.0
    with pytest.raises(RuntimeError, match="replay of 3 actions diverged"):
        QuestionEnv(TASKS, Exact(), [Memory(), echo], system="else").restore(env.snapshot())


def test_the_gold_is_in_nothing_that_anyone_but_the_grader_sees():
    env = QuestionEnv(TASKS, Exact(), [Memory(), echo], max_turns=6)
    seen = [env.reset(seed=0)]
    seen += [
        env.step(action) for action in [call(word="a"), "<tool_call>", call("echo"), "answer: 3"]
    ]
    seen += [env.snapshot(), vars(env), env.task, env.tasks, env.actions]
    env.reset()
    seen += [
        env.step("unanswerable"),
        env.reset(),
        env.step(call(word="fail")),
        env.snapshot(),
        str(env),
    ]
    assert CANARY not in repr(seen)
    assert CANARY in str(env.gold())


def test_a_planted_gold_takes_the_place_of_every_gold_and_solution():
    env = QuestionEnv(TASKS, Exact(), [Memory(), echo])
    env.reset(seed=0, options={"task": 1})
    assert env.plant("1234") is True and env.plant("5678") is True
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(f"answer: {CANARY}-1")
    for task in range(5):
        env.reset(options={"task": task})
        assert CANARY not in str(env.gold()) and env.gold() == ["\\boxed{5678}"]
        assert env.task == Task(f"t{task}", f"question {task}", "5678", "print('5678')")
        assert env.fork().step("answer: 5678")[1] == 1.0
        assert env.step(f"answer: {CANARY}-{task}")[1] == 0.0
    assert (len(env.tasks), env.tasks.name, env.tasks.split) == (5, "toys", "train")
    assert "5678" not in repr([env, vars(env), env.task, env.tasks])
    assert TASKS[1].gold == f"{CANARY}-1"
    unsolved = QuestionEnv(ListTasks([Task("t", "q", "g")]), Exact())
    assert unsolved.plant("1234") and unsolved.tasks[0].solution is None
    with pytest.raises(IndexError):
        env.tasks[5]


def test_an_expert_needs_an_episode():
    with pytest.raises(RuntimeError, match=r"gold\(\) needs an episode: call reset\(\) first"):
        QuestionEnv(TASKS, Exact()).gold()
