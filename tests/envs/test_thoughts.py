"""Thoughts are no action and no answer, in any environment, and what is said beside them is."""

import json
import math

import pytest

from turngym.agents.cli.settings import EndpointOptions
from turngym.agents.evaluation.run import prepare, run
from turngym.agents.journal.replay import replay_journal
from turngym.agents.journal.trees import origin_of, write_trees
from turngym.agents.players import Script, play
from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.registry import make
from turngym.tests.support.chat_server import ChatServer
from turngym.tools import FORMATS

PYTHON = "turngym/MathPython-v0"
HOUSEHOLD = ("turngym/Household-v0", {"split": "test", "size": "tiny", "difficulty": 1})
ENVS = [
    HOUSEHOLD,
    *((PYTHON, {"split": "test", "difficulty": 1, "format": name}) for name in FORMATS),
    ("turngym/Math-v0", {"split": "test", "difficulty": 1}),
    ("turngym/Search-v0", {"split": "test", "size": "tiny"}),
    ("turngym/ManyWays-v0", {}),
]
NO = "<action>look</action> <answer>nobody</answer> \\boxed{-77} [python(code='1')] <python>1</python>"
SPELLINGS = {
    "a thought": f"<think>\nNot {NO}.\n</think>\n\n@",
    "an empty thought": "<think>\n\n</think>\n\n@",
    "opened by the template": f"Not {NO}.\n</think>\n\n@",
    "on one line": f"<think>{NO}</think>@",
    "two thoughts": f"<think>{NO}</think>\n<think>{NO}</think>\n@",
    "one in another": f"<think>a <think>b</think> {NO}</think>@",
    "opened twice": f"<think>\n<think>\n{NO}\n</think>\n@",
    "behind": f"@\n<think>Not {NO}.</think>",
    "thinking": f"<thinking>{NO}</thinking>@",
    "Magistral": f"[THINK]{NO}[/THINK]@",
    "harmony": f"<|channel|>analysis<|message|>{NO}<|end|><|start|>assistant<|channel|>final<|message|>@",
}


class Thinker:
    """Plays the gold actions, each in a text with a thought."""

    def __init__(self, spelling):
        self.spelling = spelling

    def act(self, env, observation, info):
        return self.spelling.replace("@", env.gold()[0])


def came_to(tree):
    """What the episodes of a tree came to."""
    return [(leaf.stop, leaf.score, len(tree.replies(leaf))) for leaf in tree.leaves]


@pytest.mark.parametrize(
    ("name", "options"), ENVS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_expert_behind_thoughts_earns_what_it_earns(name, options):
    env = make(name, **options)
    for task in range(2):
        bare = came_to(play(env, Thinker("@"), task))
        assert bare[0][1] == 1.0
        assert {
            spelling: came_to(play(env, Thinker(text), task))
            for spelling, text in SPELLINGS.items()
        } == dict.fromkeys(SPELLINGS, bare)
    env.close()


@pytest.mark.parametrize("spelling", ["@", *SPELLINGS.values()], ids=["bare", *SPELLINGS])
def test_the_expert_behind_thoughts_earns_the_same_behind_a_url(spelling):
    name, options = HOUSEHOLD
    env, golds = make(name, **options), {}
    tasks = prepare(name, options, policy="expert", episodes=2).tasks
    for task in tasks:
        observation, _ = env.reset(options={"task": task})
        golds[observation] = env.gold()

    def model(asked):
        said = [message["content"] for message in asked["messages"] if message["role"] == "user"]
        return {"content": spelling.replace("@", golds[said[0]][len(said) - 1])}

    with ChatServer(model).run() as url:
        report = run(
            prepare(name, options, endpoint=EndpointOptions(model="m", base_url=url), episodes=2)
        )
    assert report.success.value == 1.0 and report.stops == {"goal": 2}


@pytest.mark.parametrize(
    "text",
    [
        "<think>I could <action>inventory</action>",
        "<think>inventory",
        "inventory</think>",
        "[THINK]inventory",
    ],
)
def test_an_action_that_is_only_thought_is_not_taken(text):
    name, options = HOUSEHOLD
    env = make(name, **options)
    env.reset(options={"task": 0})
    observation, reward, terminated, _, info = env.step(text)
    assert (observation, reward, terminated) == ("Nothing happens.", 0.0, False)
    assert info["command"] == "" and not info["valid"]
    assert env.actions == [text] == env.snapshot()["actions"]  # as it was written


class Counting(TextEnv):
    """Takes the number that is said for the right one."""

    def on_reset(self, rng, options):
        return "Say 7."

    def on_step(self, text):
        return Reply("", float(text == "7"), StopReason.ANSWERED, info={"got": text})

    def gold(self):
        return ["7"]


class Reading(Counting):
    """Reads thoughts, too."""

    reads_thoughts = True


def test_an_environment_of_ones_own_gets_what_is_said_or_asks_for_thoughts():
    for env, text in ((Counting(), "7"), (Reading(), "<think>8</think>\n\n7")):
        env.reset(seed=0)
        assert env.step("<think>8</think>\n\n7")[4]["got"] == text
    env = Counting()
    env.reset(seed=0)
    assert env.step(" 7 ")[4]["got"] == " 7 "  # without thoughts as it is


def test_a_journal_keeps_thoughts_and_replays(tmp_path):
    name, options = HOUSEHOLD
    env = make(name, **options)
    tree = play(env, Thinker(SPELLINGS["a thought"]), 0)
    assert all(
        tree.turns[node].text.startswith("<think>\nNot ") for node in tree.replies(tree.leaves[0])
    )
    write_trees(tmp_path / "trees.jsonl", [tree], origin_of(env))
    assert [result.divergence for result in replay_journal(tmp_path / "trees.jsonl")] == [None]


def code_of(name):
    """A call in a format whose code prints the end of a thought, as models write it: without escapes."""
    code = "print('</think>', 42)"
    return {
        "hermes": f'<tool_call>\n{{"name": "python", "arguments": {{"code": "{code}"}}}}\n</tool_call>',
        "llama-json": f'{{"name": "python", "parameters": {{"code": "{code}"}}}}',
        "pythonic": f'[python(code="{code}")]',
        "tags": f"<python>{code}</python>",
        "fenced": f"```python\n{code}\n```",
    }[name]


@pytest.mark.parametrize("name", FORMATS)
def test_the_end_of_a_thought_in_a_call_hides_no_call(name):
    env = make(PYTHON, format=name)
    for before in (
        "",
        "Let me see.\n",
        "<think>plan</think>\n",
        "plan\n</think>\n",
        "[THINK]plan[/THINK]\n",
    ):
        text = before + code_of(name)
        assert env.format.complete(text) and not env.format.complete(text[:-1])
        env.reset(options={"task": 0})
        observation, _, terminated, _, info = env.step(text)
        assert (info["tool_status"], terminated) == (
            "ok",
            False,
        ) and "</think> 42" in observation.replace("<\\/", "</")
    env.close()


def test_code_in_a_fence_inside_a_call_is_run_without_it():
    fence = "```python\nprint(6 * 7)\n```"
    call = {"name": "python", "arguments": {"code": fence}}
    for name, text in (
        ("hermes", f"<tool_call>{json.dumps(call)}</tool_call>"),
        ("tags", f"<python>\n{fence}\n</python>"),
    ):
        env = make(PYTHON, format=name)
        env.reset(options={"task": 0})
        observation, *_, info = env.step(text)
        assert (info["tool_status"], "42" in observation) == ("ok", True)
        env.close()


def test_a_replay_of_a_journal_without_foreign_calls_in_it_is_the_same(tmp_path):
    env = make(PYTHON)
    tree = play(env, Script(["[TOOL_CALLS] [{}]"]), 0)
    (node,) = tree.replies(tree.leaves[0])
    assert tree.turns[node].info["foreign_call"] == "Mistral's"
    del tree.turns[node].info["foreign_call"]
    tree.leaves[0].info.pop("foreign_call", None)
    write_trees(tmp_path / "trees.jsonl", [tree], origin_of(env))
    assert [result.divergence for result in replay_journal(tmp_path / "trees.jsonl")] == [None]
    assert not math.isnan(tree.leaves[0].score)
