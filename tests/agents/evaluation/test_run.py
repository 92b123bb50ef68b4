import json
import re
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import TemplateError
from turngym.agents.cli.settings import MachineOptions, SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.scores import from_trees, summarize
from turngym.agents.journal.replay import replay_journal
from turngym.agents.journal.trees import VOCABULARY, Origin, read_origin, read_trees
from turngym.agents.models.resolve import TINY, Source
from turngym.envs import EnvFailure, Outcome, TextEnv
from turngym.envs.question.env import QuestionEnv
from turngym.envs.registry import make
from turngym.tools import FORMATS, ToolCall, get_format

MATH, PYTHON = "turngym/Math-v0", "turngym/MathPython-v0"
SHORT = SamplingOptions(24)


def prepare(env=PYTHON, policy="tiny", options=(), **rest):
    settings = {"episodes": 4, "sampling": SHORT, **rest}
    return evaluate.prepare(env, {"split": "test", **dict(options)}, policy, **settings)


# --- what is checked first


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"episodes": 0}, "episodes is 0 and samples is 1; both need to be at least 1"),
        ({"samples": 0}, "episodes is 4 and samples is 0"),
        ({"env": "turngym/MathPyton-v0"}, "did you mean 'turngym/MathPython-v0'?"),
        ({"options": {"dificulty": 1}}, "takes no option 'dificulty'; did you mean 'difficulty'?"),
        ({"options": {"difficulty": 9}}, "difficulty is 9; choose one or several of 1, 2, 3, 4, 5"),
        ({"options": {"split": "tset"}}, "split is 'tset'; the splits are train, valid, test"),
        ({"options": {"tasks": "nowhere.jsonl"}}, "task file nowhere.jsonl does not exist"),
        (
            {"policy": "./nowhere"},
            "'nowhere' is not a folder; name `tiny`, a run folder, a model folder or a hub",
        ),
        (
            {"machine": MachineOptions(device="tpu")},
            "device is 'tpu'; it must be cpu, cuda (or cuda:0, cuda:1, …) or mps",
        ),
        (
            {"machine": MachineOptions(dtype="float8")},
            "dtype is 'float8'; it must be float32 or bfloat16",
        ),
        ({"machine": MachineOptions(threads=0)}, "threads is 0; torch needs at least 1"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
    ],
)
def test_a_mistake_is_named_with_its_value_and_the_fix(wrong, message):
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        prepare(**wrong)


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_played(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file" / "out", Path("/proc/turngym")):
        with pytest.raises(
            PermissionError, match=f"cannot write to {out} .*choose another folder with --out"
        ):
            prepare(out=out)
    prepare(out=tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def with_template(folder: Path, source: str) -> Path:
    folder.mkdir()
    for path in (*TINY.glob("tokenizer*.json"), TINY / "config.json", TINY / "model.safetensors"):
        shutil.copy(path, folder)
    (folder / "chat_template.jinja").write_text(source)
    return folder


def test_a_template_without_the_tools_role_is_refused_with_the_format_that_needs_none(tmp_path):
    source = json.loads((TINY / "tokenizer_config.json").read_text())["chat_template"]
    refusal = (
        "{%- for m in messages if m.role == 'tool' %}{{ raise_exception('no tools') }}{%- endfor %}"
    )
    folder = with_template(tmp_path / "plain", refusal + source)
    with pytest.raises(TemplateError, match=r"cannot carry the role 'tool' .*--option format=tags"):
        prepare(policy=str(folder), options={"format": "hermes"})
    prepared = prepare(policy=str(folder))
    assert prepared.source == Source(folder) and prepared.env.spec.kwargs["format"] == "tags"
    assert prepare(MATH, str(folder)).source == Source(folder)  # no tool there to answer


# --- which tasks


def test_tasks_are_different_in_order_and_drawn_by_the_seed():
    env = make(PYTHON)
    one, again, other = (evaluate.pick_tasks(range(len(env.tasks)), 50, seed) for seed in (0, 0, 1))
    assert one == again == sorted(set(one)) and len(one) == 50
    assert one != other and all(0 <= task < len(env.tasks) for task in one)


def test_all_tasks_are_taken_where_there_are_no_more():
    assert [evaluate.pick_tasks(range(3), count, seed=5) for count in (3, 4, 256)] == [
        [0, 1, 2]
    ] * 3
    assert set(evaluate.pick_tasks([4, 7, 9], 2, seed=5)) < {4, 7, 9}


class Silent(TextEnv):
    pass


def test_only_an_environment_with_tools_closes_calls():
    chat = Chat.from_folder(TINY)
    assert evaluate.cut(make(MATH), chat) is evaluate.cut(Silent(), chat) is None
    assert evaluate.cut(make(PYTHON), chat) is get_format("hermes")
    assert evaluate.cut(make(PYTHON, format="tags"), chat) is get_format("tags")


def test_a_call_in_a_thought_that_the_template_opened_ends_no_turn(tmp_path):
    source = json.loads((TINY / "tokenizer_config.json").read_text())["chat_template"]
    thinks = "'<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
    source = source.replace("'<|im_start|>assistant\\n' }}{%- endif %}", thinks)
    # Earlier turns keep their thoughts: the message holds what was said behind the tag.
    source = source.replace(
        "message.role + '\\n' + message.content",
        "message.role + '\\n' + ('<think>\\n' if message.role == 'assistant' else '') + message.content",
    )
    chat = Chat.from_folder(with_template(tmp_path / "thinks", source))
    assert chat.opened == "<think>\n"
    assert chat.text(np.array(chat.tokenizer.encode("hm").ids), frozenset()) == "<think>\nhm"
    env = make(PYTHON)
    call, cut = env.format.render(ToolCall("python", {"code": "1"})), evaluate.cut(env, chat)
    assert cut is not None and cut.closers == env.format.closers
    assert [cut.complete(text) for text in (call, f"{call}</think>", f"a</think>{call[:-1]}")] == [
        False
    ] * 3
    assert cut.complete(f"{call}</think>{call}") and cut.complete(
        f"a</think><think>b</think>{call}"
    )


# --- playing


@pytest.mark.parametrize("name", FORMATS)
def test_the_expert_earns_everything_in_every_format(name):
    report = evaluate.run(prepare(PYTHON, "expert", options={"format": name}, episodes=2))
    assert (report.success.value, report.tool_share, report.turns) == (1.0, 1.0, 2.0)


@pytest.mark.parametrize(("env", "share"), [(MATH, 0.0), (PYTHON, 1.0)])
def test_the_expert_earns_everything_by_the_tool_where_there_is_one(env, share):
    seen = []
    report = evaluate.run(prepare(env, "expert", episodes=6, samples=2), seen.append)
    assert (report.episodes, report.tasks, report.samples, report.failed) == (12, 6, 2, 0)
    assert (report.success.value, report.reward, report.tool_share) == (1.0, 1.0, share)
    assert report.pass_at[2].value == 1.0
    assert len(seen) == 12 and {episode.outcome for episode in seen} == {Outcome.DONE}


def test_the_episodes_of_a_player_are_journaled_like_those_of_a_policy(tmp_path):
    prepared, seen = prepare(policy="expert", episodes=3, samples=2, out=tmp_path), []
    report = evaluate.run(prepared, seen.append)
    trees = list(read_trees(tmp_path / "trees.jsonl"))
    assert [tree.key for tree in trees] == [
        (seed, 0, task) for task in prepared.tasks for seed in (0, 1)
    ]
    assert report == summarize(from_trees(trees)) and sorted(map(str, seen)) == sorted(
        map(str, from_trees(trees))
    )
    assert read_origin(tmp_path / "trees.jsonl") == Origin(PYTHON, {"split": "test"})
    assert [path.divergence for path in replay_journal(tmp_path / "trees.jsonl")] == [None] * 6


def test_an_option_that_a_journal_cannot_hold_is_named_before_anything_is_played(
    monkeypatch, tmp_path
):
    monkeypatch.setitem(
        gymnasium.registry, "test/Lost", gymnasium.envs.registration.EnvSpec("test/Lost", lost)
    )
    assert evaluate.prepare("test/Lost", {"often": {2}}, "expert", episodes=1).out is None
    with pytest.raises(
        ValueError, match=r"option often of test/Lost is \{2\}; a journal can hold JSON"
    ):
        evaluate.prepare("test/Lost", {"often": {2}}, "expert", episodes=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """An evaluation of tiny: what was prepared, its episodes as they ended, its report, its journal."""
    out = tmp_path_factory.mktemp("eval")
    prepared, seen = prepare(samples=2, out=out), []
    return (
        prepared,
        seen,
        evaluate.run(prepared, seen.append),
        list(read_trees(out / "trees.jsonl")),
    )


def test_the_vocabulary_of_an_evaluation_spells_what_its_policy_said(played):
    prepared, _, _, trees = played
    pieces = [
        text.encode("utf-8", "surrogateescape")
        for text in json.loads((prepared.out / VOCABULARY).read_text())
    ]
    turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
    for turn in turns:
        kept = turn.tokens[: -1 if turn.ended == "end" else None]
        assert b"".join(pieces[token] for token in kept).decode() == turn.text


def test_the_report_of_a_policy_is_that_of_its_journal(played):
    prepared, seen, report, trees = played
    assert [tree.task for tree in trees] == prepared.tasks
    assert report == summarize(from_trees(trees))
    assert sorted(map(str, seen)) == sorted(map(str, from_trees(trees)))
    assert (report.episodes, report.tasks, report.samples) == (8, 4, 2)
    assert (
        0 < report.success.low <= report.success.value <= report.success.high < 1
        or report.success.value in (0, 1)
    )
    assert report.pass_at[2].value >= report.success.value
    assert json.loads(json.dumps(report.to_json()))["success"]["value"] == report.success.value


def test_the_same_evaluation_plays_the_same_and_another_seed_other_tasks(played):
    _, _, report, trees = played
    assert evaluate.run(prepare(samples=2)) == report
    other = prepare(samples=2, seed=1)
    assert set(other.tasks).isdisjoint(tree.task for tree in trees)
    assert all(tree.key == (0, 0, tree.task) for tree in trees)


def test_the_policy_plays_the_split_it_is_asked_to(played):
    prepared, _, _, trees = played
    assert prepared.env.tasks.split == "test"
    assert all(tree.turns[0].text == prepared.env.tasks[tree.task].prompt for tree in trees)


class Lost:
    """A grader that cannot run for some completions."""

    def __init__(self, grader, often):
        self.grader, self.often = grader, often

    def grade(self, *, completion, gold):
        if len(completion) % self.often == 0:
            raise EnvFailure("the grader is gone")
        return self.grader.grade(completion=completion, gold=gold)


def lost(often):
    bare = make(MATH, split="test")
    return QuestionEnv(bare.tasks, Lost(bare.grader, often), system=bare.system)


@pytest.mark.slow
def test_episodes_of_a_grader_that_failed_are_counted_and_not_scored(monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "test/Lost", gymnasium.envs.registration.EnvSpec("test/Lost", lost)
    )
    report = evaluate.run(
        evaluate.prepare("test/Lost", {"often": 2}, "tiny", episodes=8, samples=2)
    )
    assert 0 < report.failed < 16 == report.episodes
    assert report.stops["infra_error"] == report.failed
    with pytest.raises(
        ValueError, match="none of 16 episodes was rewarded: all ended in an infrastructure failure"
    ):
        evaluate.run(evaluate.prepare("test/Lost", {"often": 1}, "tiny", episodes=8, samples=2))
