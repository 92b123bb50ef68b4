"""Turns that end at the token limit: seen in a rollout, and from the first validation of a run to its end."""

import json

import pytest

from turngym import __main__ as cli
from turngym.agents.chat.chat import Chat
from turngym.agents.cli import terminal
from turngym.agents.engine import Sampling
from turngym.agents.evaluation.run import actor_in
from turngym.agents.evaluation.scores import from_trees, summarize
from turngym.agents.journal.trees import Origin, read_trees, write_trees
from turngym.agents.models.resolve import TINY
from turngym.agents.rollout.collect import collect
from turngym.envs.registry import make
from turngym.tests.support.scripted_engine import ScriptedEngine
from turngym.training.metrics.telemetry import counts

SHORT = ["--max-tokens", "2", "--threads", "1"]


@pytest.fixture
def turngym(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(terminal.console, "width", 200)
    monkeypatch.chdir(tmp_path)

    def run(*args):
        with pytest.raises(SystemExit) as left:
            cli.main([*args, *SHORT])
        return left.value.code, " ".join(capsys.readouterr().out.split())

    return run


def test_a_turn_is_cut_by_the_limit_alone(tmp_path):
    """Not by an end that is the last token that is allowed; a journal keeps the difference."""
    chat = Chat.from_folder(TINY)
    call = 'x <tool_call>{"name": "python", "arguments": {"code": "print(1)"}}</tool_call>'
    words = ["one", "one two three four five", call]
    env = make("turngym/MathPython-v0", split="train", max_turns=2)
    actor = actor_in(
        env, ScriptedEngine(chat, lambda heard, rng: words[rng.integers(3)]), chat, chat.end_ids
    )
    size = len(chat.tokenizer.encode(words[0], add_special_tokens=False).ids) + 1
    trees = collect(actor, env, range(4), group=6, key=(0, 0), sampling=Sampling(max_tokens=size))
    write_trees(tmp_path / "trees.jsonl", trees, Origin("turngym/MathPython-v0", {}))
    for found in (trees, list(read_trees(tmp_path / "trees.jsonl"))):
        turns = [turn for tree in found for turn in tree.turns if turn.role == "assistant"]
        cut = [turn for turn in turns if turn.text != words[0]]
        assert 0 < len(cut) < len(turns)
        assert counts(found)["turns/cut"] == len(cut) / len(turns)
        assert summarize(from_trees(found)).cut == len(cut) / len(turns)


def test_an_evaluation_says_how_many_turns_were_cut_and_what_to_do(turngym, tmp_path):
    status, out = turngym("eval", "turngym/Math-v0", "--episodes", "3", "--out", "e")
    assert (
        status == 0
        and "turns cut at the token limit 100.0 %; allow longer turns with --max-tokens" in out
    )
    assert json.loads((tmp_path / "e" / "eval.json").read_text())["cut"] == 1.0


def test_what_a_player_does_is_not_cut(turngym, tmp_path):
    status, out = turngym(
        "eval", "turngym/Math-v0", "--policy", "expert", "--episodes", "3", "--out", "e"
    )
    assert status == 0 and "cut" not in out
    assert json.loads((tmp_path / "e" / "eval.json").read_text())["cut"] is None


@pytest.mark.slow
def test_a_run_whose_turns_are_cut_says_so_before_its_first_step(turngym, tmp_path):
    few = ["--prompts", "2", "--group", "2", "--eval-tasks", "3", "--steps", "1"]
    status, out = turngym("train", "--env", "turngym/Math-v0", "--out", "run", *few)
    assert status == 0 and out.count("cut-turns") == 1
    assert (
        "step 0: cut-turns: valid/cut is 1 (limit 0.5); the policy cannot finish what it says"
        in out
    )
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["alarms"] for line in lines] == [["cut-turns"], ["cut-turns"]]
    assert (lines[0]["valid/cut"], lines[1]["turns/cut"], lines[1]["turns/cut_paths"]) == (1, 1, 1)
    (told,) = map(json.loads, (tmp_path / "run" / "incidents.jsonl").read_text().splitlines())
    assert (told["step"], told["kind"]) == (0, "alarm")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["before"]["cut"] == summary["after"]["cut"] == 1
    assert out.count("100 %") == 2
