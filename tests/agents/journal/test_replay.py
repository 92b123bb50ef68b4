"""Replay: what was played comes out again to the bit, and whatever differs is named."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace as changed
from hashlib import sha256
from typing import Any

import gymnasium
import numpy as np
import pytest

from turngym.agents.journal.replay import (
    NOTHING,
    Divergence,
    Replayed,
    replay,
    replay_journal,
    replay_path,
)
from turngym.agents.journal.trees import Origin, origin_of, read_trees, write_trees
from turngym.agents.players import GoldPlayer, Script, play, play_all
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome, Reply, StopReason, TextEnv
from turngym.envs.registry import ENVS, Entry, make
from turngym.tools import ToolFailure

PYTHON = "turngym/MathPython-v0"
NO_TOKENS = np.zeros(0, np.int32)


def call(code: str) -> str:
    return (
        f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}})}\n</tool_call>"
    )


# --- rollouts of policies


def rolled_out(
    folder: Any, env: TextEnv, tasks: range, max_tokens: int, max_context: int | None = None
) -> list[Tree]:
    from turngym.agents.chat.chat import Chat
    from turngym.agents.engine import Sampling
    from turngym.agents.engines.torch import TorchEngine
    from turngym.agents.policy import load_policy
    from turngym.agents.rollout.collect import collect
    from turngym.agents.rollout.path import Actor

    policy = load_policy(folder)
    policy.max_context = max_context or policy.max_context
    engine = TorchEngine(policy)
    try:
        actor = Actor(engine, Chat.from_folder(folder), policy.end_ids)
        return collect(
            actor, env, list(tasks), group=4, key=(5, 2), sampling=Sampling(max_tokens=max_tokens)
        )
    finally:
        engine.close()


def test_rollouts_of_tiny_with_the_python_tool_replay_from_their_journal(one_thread, tmp_path):
    from turngym.agents.models.resolve import TINY

    env = make(PYTHON, max_turns=3, difficulty=(1, 2), split="valid")
    trees = rolled_out(TINY, env, range(6), 40)
    write_trees(tmp_path / "trees.jsonl", trees, origin_of(env))
    results = list(replay_journal(tmp_path / "trees.jsonl"))
    assert [result.divergence for result in results] == [None] * 24
    assert [result.key for result in results] == [
        (5, 2, task, branch) for task in range(6) for branch in range(4)
    ]
    assert [result.turns for result in results] == [
        len(t.replies(leaf)) for t in trees for leaf in t.leaves
    ]
    statuses = {turn.info.get("tool_status") for tree in trees for turn in tree.turns}
    assert statuses >= {"ok", "error"} or statuses >= {"ok", "malformed"}
    assert {leaf.stop for tree in trees for leaf in tree.leaves} >= {"answered"}


class Echo(TextEnv):
    """Answers with a digest of every character it was given."""

    tasks = range(100)

    def __init__(self) -> None:
        super().__init__(max_turns=3)

    def on_reset(self, rng: np.random.Generator, options: dict[str, Any]) -> str:
        self.task_id = str(options["task"])
        return f"Say {options['task']}."

    def on_step(self, text: str) -> Reply:
        seen = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return Reply(f"{seen} {text}", reward=int(seen[:8], 16) / 3, info={"characters": len(text)})


@pytest.fixture
def echo() -> Iterator[TextEnv]:
    gymnasium.register("test/Echo-v0", entry_point=Echo)
    yield make("test/Echo-v0")
    del gymnasium.registry["test/Echo-v0"]


@pytest.mark.parametrize("max_context", [None, 150])
def test_the_text_of_a_turn_is_what_the_environment_was_given(
    one_thread, qwen3_folder, echo, tmp_path, max_context
):
    """A random policy over bytes draws what is no UTF-8 and control tokens; a small context ends some of its paths."""
    trees = rolled_out(qwen3_folder, echo, range(4), 12, max_context)
    texts = [turn.text for tree in trees for turn in tree.turns if turn.role == "assistant"]
    assert sum("\ufffd" in text for text in texts) > 5 and any(
        not text.isprintable() for text in texts
    )
    write_trees(tmp_path / "trees.jsonl", trees, origin_of(echo))
    for tree in (*trees, *read_trees(tmp_path / "trees.jsonl")):
        assert replay(echo, tree) is None
    stops = {leaf.stop for tree in trees for leaf in tree.leaves}
    assert ("context" in stops) == (max_context is not None)


def test_text_that_is_no_unicode_survives_too(echo, tmp_path):
    texts = ["a\ud800b", "\udcff\ud83d\ude00 \U0001f600", "\x00\r\n\u2028\x85\u202e\ufeff"]
    tree = play(echo, Script(texts), 0)
    write_trees(tmp_path / "trees.jsonl", [tree], origin_of(echo))
    (again,) = read_trees(tmp_path / "trees.jsonl")
    assert [again.turns[node].text for node in again.replies(again.leaves[0])] == texts
    assert replay(echo, again) is None
    tree.turns[1] = changed(tree.turns[1], text="a\ud801b")
    assert replay(echo, tree).field == "reward"  # depends on every character


# --- what differs


@pytest.fixture(scope="module")
def env() -> Iterator[TextEnv]:
    env = make(PYTHON, difficulty=(1, 2))
    yield env
    env.close()


@pytest.fixture
def tree(env: TextEnv) -> Tree:
    """A call, a mistake, an answer."""
    return play(env, Script([call("x = 6"), call("x / 0"), "so \\boxed{x}"]), 7, seed=3)


def put(tree: Tree, node: int, **values: Any) -> None:
    tree.turns[node] = changed(tree.turns[node], **values)


def tell(tree: Tree, node: int, **values: Any) -> None:
    put(tree, node, info={**tree.turns[node].info, **values})


def end(tree: Tree, **values: Any) -> None:
    tree.leaves[0] = changed(tree.leaves[0], **values)


PLANTED = {
    "task_id": (lambda tree: setattr(tree, "task_id", "other"), -1, "task_id", "other"),
    "opening": (lambda tree: put(tree, 0, text="What?"), -1, "text", "What?"),
    "messages": (lambda tree: tree.turns[0].info["messages"].pop(), -1, "messages", None),
    "tools": (lambda tree: tell(tree, 0, tools=[]), -1, "tools", []),
    "tool_status": (lambda tree: tell(tree, 3, tool_status="ok"), 1, "info['tool_status']", "ok"),
    "valid": (lambda tree: tell(tree, 3, valid=True), 1, "info['valid']", True),
    "more info": (lambda tree: tell(tree, 1, mood=None), 0, "info['mood']", None),
    "less info": (
        lambda tree: put(tree, 1, info={"turn": 1, "tool": "python"}),
        0,
        "info['tool_status']",
        NOTHING,
    ),
    "reward": (lambda tree: put(tree, 1, reward=5e-324), 0, "reward", 5e-324),
    "sign of zero": (lambda tree: put(tree, 3, reward=-0.0), 1, "reward", -0.0),
    "role": (lambda tree: put(tree, 2, role="user"), 0, "role", "user"),
    "answer": (lambda tree: put(tree, 4, text=tree.turns[4].text + " "), 1, "text", None),
    "stop": (lambda tree: end(tree, stop="no_answer"), 2, "stop", "no_answer"),
    "outcome": (lambda tree: end(tree, outcome=Outcome.TRUNCATED), 2, "outcome", "truncated"),
    "score": (lambda tree: end(tree, score=0.5), 2, "score", 0.5),
    "last info": (
        lambda tree: end(tree, info={**tree.leaves[0].info, "how": "luck"}),
        2,
        "info['how']",
        "luck",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_found_and_named(env, tree, name):
    plant, turn, field, recorded = PLANTED[name]
    assert replay(env, tree) is None
    plant(tree)
    found = replay(env, tree)
    assert (found.key, found.turn, found.field) == ((3, 0, 7, 0), turn, field)
    assert recorded is None or repr(found.recorded) == repr(recorded)
    assert repr(found.recorded) != repr(found.replayed) and not found.deadline
    assert str(found).startswith(
        f"task 7, branch 0, {f'turn {turn}' if turn >= 0 else 'the opening'}: {field} was "
    )


def test_a_journal_that_does_not_say_what_was_valid_is_replayed(env, tree):
    assert [tree.turns[node].info["valid"] for node in (1, 3, 5)] == [True, False, True]
    for node in (1, 3, 5):
        put(
            tree,
            node,
            info={name: value for name, value in tree.turns[node].info.items() if name != "valid"},
        )
    end(tree, info={name: value for name, value in tree.leaves[0].info.items() if name != "valid"})
    assert replay(env, tree) is None


def test_another_action_is_found_by_what_it_does(env):
    tree = play(env, Script([call("x = 6"), call("x"), "\\boxed{1}"]), 7)
    put(tree, 1, text=call("x = 7"))
    assert replay(env, tree) == Divergence((0, 0, 7, 0), 1, "text", "6", "7")


def test_an_episode_that_goes_on_where_it_ended_is_found(env, tree):
    end(tree, node=3, stop="max_turns", outcome=Outcome.TRUNCATED)
    assert replay(env, tree) == Divergence((3, 0, 7, 0), 1, "stop", "max_turns", None)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_turns": 2}, "stop"),
        ({"system": "Think."}, "messages"),
        ({"timeout": 4.0}, "tools"),
        ({"difficulty": 3}, "task_id"),
        ({"split": "test"}, "task_id"),
        ({"families": "units"}, "task_id"),
    ],
)
def test_a_changed_option_is_found(tree, tmp_path, env, options, field):
    path = tmp_path / "trees.jsonl"
    write_trees(path, [tree], origin_of(env))
    (same,), (other,) = replay_journal(path), replay_journal(path, options=options)
    assert same.divergence is None and other.divergence.field == field


def test_an_environment_that_fails_now_is_a_divergence(env, tree, monkeypatch):
    def broken(self: Any, arguments: Any) -> None:
        raise ToolFailure("no sandbox")

    monkeypatch.setattr("turngym.tools.PythonTool.call", broken)
    assert replay(env, tree) == Divergence((3, 0, 7, 0), 0, "info['error']", NOTHING, "no sandbox")
    tree.task = 10**9
    found = replay(env, tree)
    assert (found.turn, found.field) == (-1, "text")
    assert found.replayed.startswith(
        "ValueError: options['task'] is 1000000000; choose an int from 0 to "
    )


def test_the_divergence_of_a_turn_that_a_deadline_cut_is_named_as_such(env, tree):
    tell(tree, 3, tool_status="timeout")
    found = replay(env, tree)
    assert found == Divergence(
        (3, 0, 7, 0), 1, "info['tool_status']", "timeout", "error", deadline=True
    )
    assert str(found).endswith(
        "a deadline cut this turn, and what it leaves depends on the machine's speed"
    )
    slow = make(PYTHON, timeout=0.2)
    tree = play(slow, Script([call("print(1, flush=True)\nwhile True: pass"), "\\boxed{1}"]), 0)
    assert tree.turns[1].info["tool_status"] == "timeout" and replay(slow, tree) is None
    said = tree.turns[2].text
    put(tree, 2, text="0")
    assert replay(slow, tree) == Divergence((0, 0, 0, 0), 0, "text", "0", said, deadline=True)
    tell(tree, 1, tool_status="ok")
    assert replay(slow, tree) == Divergence(
        (0, 0, 0, 0), 0, "info['tool_status']", "ok", "timeout", deadline=True
    )
    slow.close()


def test_long_values_are_shown_from_where_they_part():
    one, other = "a" * 900 + "x" + "b" * 900, "a" * 900 + "y" + "b" * 900
    text = str(Divergence((0, 0, 1, 2), 4, "text", one, other))
    assert text.startswith("task 1, branch 2, turn 4: text was …aaaa") and len(text) < 400
    assert "ax" in text and "ay" in text
    text = str(Divergence((0, 0, 1, 2), -1, "text", "a", "b"))
    assert text == "task 1, branch 2, the opening: text was 'a', is 'b'"


# --- trees and ends


def grown(*paths: Tree) -> Tree:
    """One tree of several episodes of a task; what they begin with in common is there once."""
    tree = Tree(paths[0].key, paths[0].task, paths[0].task_id)
    places: dict[tuple[Any, ...], int] = {}
    for branch, path in enumerate(paths):
        said, node = (), -1
        for turn in path.turns:
            said = (*said, turn.text)
            if said not in places:
                places[said] = tree.add(changed(turn, parent=node))
            node = places[said]
        tree.leaves.append(changed(path.leaves[0], node=node, branch=branch))
    return tree


def test_branches_that_part_late_are_each_replayed_from_the_beginning(env):
    texts = (["x = 1", "x", "y"], ["x = 1", "x + 1"], ["x = 1", "x", "z = x"])
    tree = grown(*(play(env, Script([*map(call, codes), "\\boxed{1}"]), 4) for codes in texts))
    assert len(tree.turns) == 1 + 2 * (1 + 1 + 2 + 1) + 3 and replay(env, tree) is None
    assert [replay_path(env, tree, leaf).turns for leaf in tree.leaves] == [4, 3, 4]
    for branch, leaf in enumerate(tree.leaves):
        other = Tree(tree.key, tree.task, tree.task_id, list(tree.turns), list(tree.leaves))
        put(other, leaf.node, reward=0.25)
        found = replay(env, other)
        assert (found.key[-1], found.turn, found.field) == (branch, len(texts[branch]), "reward")
    shared = Tree(tree.key, tree.task, tree.task_id, list(tree.turns), list(tree.leaves))
    put(shared, 2, text="?")
    assert [replay_path(env, shared, leaf).divergence.turn for leaf in tree.leaves] == [0, 0, 0]


class Fragile(Echo):
    """Fails when it hears `fail`."""

    def on_step(self, text: str) -> Reply:
        if text == "fail":
            raise OSError("lost")
        return super().on_step(text)


@pytest.mark.parametrize("script", [["a", "b", "fail"], ["fail"], ["a", "fail"]])
def test_a_path_that_failed_is_replayed_up_to_the_failure_which_is_not_repeated(script):
    tree = play(Fragile(), Script(script), 0)
    assert tree.leaves[0].stop == "infra_error"
    for env in (Fragile(), Echo()):
        result = replay_path(env, tree, tree.leaves[0])
        assert (result.failed, result.turns, result.divergence) == (True, len(script) - 1, None)
    put(tree, 0, text="What?")
    assert replay(Echo(), tree).field == "text"


def test_a_path_that_failed_while_the_policy_drew_is_replayed_whole():
    tree = play(Echo(), Script(["a", "b"]), 0)
    tree.leaves = [
        Leaf.ended(4, 0, StopReason.INFRA_ERROR, 0.0, {"error": "late", "deadline": "turn"})
    ]
    assert replay_path(Echo(), tree, tree.leaves[0]) == Replayed("0", (0, 0, 0, 0), 2, True, None)
    put(tree, 4, text="?")
    assert replay(Echo(), tree).turn == 1
    end(tree, node=0)
    assert replay_path(Echo(), tree, tree.leaves[0]).turns == 0 and replay(Echo(), tree) is None
    put(tree, 0, text="?")
    assert replay(Echo(), tree).turn == -1


def test_of_an_opening_that_failed_there_is_nothing_to_replay():
    tree = Tree((0, 0, 0), 0, "", [Turn.unsampled(-1, "user", "", NO_TOKENS)])
    tree.leaves = [
        Leaf.ended(0, branch, StopReason.INFRA_ERROR, 0.0, {"error": "no reset"})
        for branch in range(2)
    ]
    assert replay(Echo(), tree) is None
    assert replay_path(Echo(), tree, tree.leaves[1]) == Replayed("", (0, 0, 0, 1), 0, True, None)


@pytest.mark.parametrize("answered", [True, False])
def test_a_path_that_the_policy_ended_ends_there_in_the_replay(answered):
    """The context was full after an answer, or in the middle of a turn, whose answer is then not on the path."""
    tree = play(Echo(), Script(["a", "b"]), 0)
    info = {} if answered else tree.turns[3].info
    put(tree, 3, ended="end" if answered else "context")
    tree.turns = tree.turns[: 5 if answered else 4]
    score = tree.turns[1].reward + tree.turns[3].reward
    tree.leaves = [Leaf.ended(len(tree.turns) - 1, 0, StopReason.CONTEXT, score, info)]
    assert replay(Echo(), tree) is None
    end(tree, score=math.nextafter(score, 9))
    assert replay(Echo(), tree).field == "score"
    end(tree, score=score, info={"mood": "full"})
    assert replay(Echo(), tree).field in ("info['mood']", "info['characters']")
    env = Echo()
    env.max_turns = 2
    end(tree, info=info)
    assert replay(env, tree) == Divergence((0, 0, 0, 0), 1, "stop", None, "max_turns")


def test_a_prompt_that_did_not_fit_is_replayed_as_far_as_it_came():
    tree = play(Echo(), Script([]), 0)
    tree.leaves = [Leaf.ended(0, 0, StopReason.CONTEXT, 0.0, {})]
    assert replay(Echo(), tree) is None
    end(tree, score=0.5)
    assert replay(Echo(), tree).field == "score"


def test_an_environment_may_find_its_context_full_itself():
    class Full(Echo):
        def on_step(self, text: str) -> Reply:
            return Reply("", stop=StopReason.CONTEXT)

    tree = play(Full(), Script(["a"]), 0)
    assert tree.leaves[0].stop == "context" and replay(Full(), tree) is None
    assert replay(Echo(), tree).field.startswith("info")


# --- journals


@pytest.fixture
def journal(env, tmp_path):
    path = tmp_path / "trees.jsonl"
    episodes = [(task, seed) for task in (4, 2) for seed in (0, 1)]
    write_trees(path, play_all(env, lambda task, seed: GoldPlayer(), episodes), origin_of(env))
    return path


def test_paths_of_a_journal_can_be_chosen(journal):
    assert [(result.task_id, result.key) for result in replay_journal(journal)] == [
        (tree.task_id, (*tree.key, 0)) for tree in read_trees(journal)
    ]
    assert [result.key for result in replay_journal(journal, task=2)] == [
        (0, 0, 2, 0),
        (1, 0, 2, 0),
    ]
    assert len(list(replay_journal(journal, task=4, branch=0))) == 2
    for chosen, what in (({"task": 3}, "task 3"), ({"task": 2, "branch": 1}, "task 2, branch 1")):
        with pytest.raises(
            ValueError, match=f"{journal} holds no path of {what}; there is nothing to replay"
        ):
            list(replay_journal(journal, **chosen))
    write_trees(journal, [], origin_of(make(PYTHON)))
    with pytest.raises(ValueError, match=f"{journal} holds no path; there is nothing to replay"):
        list(replay_journal(journal))


def test_a_journal_that_cannot_be_replayed_says_why(journal):
    with pytest.raises(ValueError, match="takes no option 'mood'"):
        list(replay_journal(journal, options={"mood": 1}))
    results = replay_journal(journal)
    journal.write_bytes(journal.read_bytes()[:-9])
    with pytest.raises(
        ValueError,
        match=r"trees.jsonl, line 5: not a tree of this version \(.*checksum does not fit",
    ):
        list(results)


def test_a_journal_is_replayed_by_another_process_without_torch(journal):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from turngym.agents.journal.replay import replay_journal\n"
        f"results = list(replay_journal(Path({str(journal)!r})))\n"
        "heavy = [name for name in ('torch', 'tokenizers', 'transformers', 'jinja2') if name in sys.modules]\n"
        "print(len(results), [result.divergence for result in results if result.divergence], heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd="/"
    )
    assert (done.stdout, done.stderr) == ("4 [] []\n", "")


def test_a_journal_cannot_choose_a_weaker_isolation_level(tmp_path):
    env = make(PYTHON)
    try:
        tree = play(env, Script(["\\boxed{1}"]), 0, 1)
        origin = origin_of(env)
    finally:
        env.close()
    path = tmp_path / "trees.jsonl"
    write_trees(path, [tree], changed(origin, options={**origin.options, "level": "rlimits-only"}))
    with pytest.raises(
        ValueError,
        match="asks for isolation level 'rlimits-only', which is weaker than the default",
    ):
        next(replay_journal(path))
    assert next(replay_journal(path, options={"level": "rlimits-only"})).divergence is None
    assert next(replay_journal(path, options={"level": "namespaces"})).divergence is None


OUTSIDE = "import sys, pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\ndef make(): raise ValueError('made')\n"


def test_a_journal_cannot_choose_whose_code_runs(tmp_path, monkeypatch):
    env = make(PYTHON)
    try:
        tree, origin = play(env, Script(["\\boxed{1}"]), 0, 1), origin_of(env)
    finally:
        env.close()
    path = tmp_path / "trees.jsonl"
    (tmp_path / "evil_of_a_stranger.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    foreign = Entry("other/Env-v0", "evil_of_a_stranger:make", "", package="other")
    for module in ("registry", "reserved_choices"):
        monkeypatch.setattr(f"turngym.envs.{module}.entries", lambda: (*ENVS, foreign))
    monkeypatch.delitem(gymnasium.registry, "other/Env-v0", raising=False)
    for name in ("other/Env-v0", "evil_of_a_stranger:Env-v0", "evil_of_a_stranger:other/Env-v0"):
        write_trees(path, [tree], changed(origin, env=name, options={}))
        with pytest.raises(ValueError, match=f"add --env {name} to the command"):
            next(replay_journal(path))
    assert not (tmp_path / "evil_of_a_stranger.ran").exists()
    write_trees(path, [tree], changed(origin, env="other/Env-v0", options={}))
    with pytest.raises(ValueError, match=r"^made$"):
        next(replay_journal(path, env_id="other/Env-v0"))
    del gymnasium.registry[
        "other/Env-v0"
    ]  # `monkeypatch` would put it back for the tests that follow


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("memory_mb", 10**6),
        ("timeout", 1e9),
        ("url", "http://127.0.0.1:9"),
        ("visit", True),
        ("tasks", "someone/data"),
    ],
)
def test_a_journal_cannot_choose_what_reaches_further(tmp_path, option, value):
    path = tmp_path / "trees.jsonl"
    write_trees(path, [], Origin(PYTHON, {option: value}))
    with pytest.raises(ValueError, match="a file cannot choose that"):
        next(replay_journal(path))
