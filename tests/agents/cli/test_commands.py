"""`turngym check` and `turngym replay`, as a person would call them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import turngym as package
from turngym import __main__ as cli
from turngym.__main__ import main
from turngym.agents.cli import terminal
from turngym.envs import Reply, StopReason, TextEnv
from turngym.tools.python import LevelRefused
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import Passage


class Stingy(TextEnv):
    """An environment whose gold earns nothing."""

    def on_reset(self, rng, options):
        return f"Say {rng.integers(100)}."

    def on_step(self, text):
        return Reply("", reward=0.0, stop=StopReason.ANSWERED)

    def gold(self):
        return ["yes"]


class Looking(Stingy):
    """An environment that says how often the agent searched, and what it found."""

    tasks = range(3)

    def on_step(self, text):
        return Reply(
            "", 1.0, StopReason.ANSWERED, info={"searches": 2, "recall": {"3": 0.5}, "f1": 0.75}
        )

    def __init__(self, split="test"):
        super().__init__()


@pytest.fixture
def turngym(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(terminal.console, "width", 200)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(list(args))
        return left.value.code, *capsys.readouterr()

    return run


def test_check_names_the_broken_clause_and_what_broke(turngym):
    gymnasium.register("tests/Stingy-v0", entry_point=Stingy)
    try:
        status, out, _ = turngym("check", "tests/Stingy-v0")
    finally:
        del gymnasium.registry["tests/Stingy-v0"]
    assert status == 1 and "BROKEN  gold" in out and "ok      steps" in out
    assert "tests/Stingy-v0 breaks" in out


def test_check_refuses_what_it_cannot_make(turngym):
    status, out, err = turngym("check", "turngym/Math-v1")
    assert (status, out) == (2, "") and "did you mean 'turngym/Math-v0'" in err


def test_an_evaluation_prints_searches_and_the_recall_of_gold_passages(turngym, tmp_path):
    gymnasium.register("tests/Looking-v0", entry_point=Looking)
    try:
        status, out, _ = turngym("eval", "tests/Looking-v0", "--policy", "expert", "--out", "found")
    finally:
        del gymnasium.registry["tests/Looking-v0"]
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0 and "searches per question 2.000 (of 3)" in lines
    assert "gold passages, recall@3 0.500 (of 3)" in lines and "f1 0.750 (of 3)" in lines
    assert json.loads((tmp_path / "found" / "eval.json").read_text())["search"]["f1"] == {
        "value": 0.75,
        "of": 3,
    }


def test_an_evaluation_can_be_replayed_and_another_environment_diverges(turngym):
    assert (
        turngym(
            "eval", "turngym/Math-v0", "--policy", "expert", "--episodes", "5", "--out", "found"
        )[0]
        == 0
    )
    status, out, _ = turngym("replay", "found/trees.jsonl")
    assert (status, out) == (
        0,
        "5 episodes of found/trees.jsonl were replayed without a difference\n",
    )
    status, out, _ = turngym("replay", "found/trees.jsonl", "--option", "system=Think.")
    assert (
        status == 1 and "diverged" in out and "the opening: messages was" in out and "Think." in out
    )


def test_a_journal_of_a_level_that_this_machine_cannot_give_is_not_replayed(turngym, monkeypatch):
    args = [
        "--policy",
        "expert",
        "--episodes",
        "1",
        "--out",
        "found",
        "--option",
        "level=rlimits-only",
    ]
    assert turngym("eval", "turngym/MathPython-v0", *args)[0] == 0

    def refuse(level: str) -> None:
        raise LevelRefused(level, "it is another system")

    monkeypatch.setattr("turngym.envs.options.require", refuse)
    status, out, err = turngym("replay", "found/trees.jsonl", "--option", "level=rlimits-only")
    assert (status, out) == (2, "") and "'rlimits-only': it is another system" in err


def test_replay_refuses_what_is_no_journal(turngym, tmp_path):
    status, _, err = turngym("replay", "nowhere.jsonl")
    assert status == 2 and "nowhere.jsonl" in err
    (tmp_path / "cut.jsonl").write_text("{")
    status, _, err = turngym("replay", "cut.jsonl")
    assert status == 2 and "cut.jsonl" in err


ROWS = [
    {"id": "p", "title": "Paris", "text": "Paris is the capital of France."},
    {"id": "r", "contents": '"Rome"\nItaly.'},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_corpus_is_served_until_a_signal(corpus, tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "turngym",
        "serve-search",
        str(corpus),
        "--port",
        "0",
        "--cache",
        str(tmp_path / "c"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(package.__file__).parent.parent),
        "SECRET": "s3cret",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        [*command, "--token-env", "SECRET"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as server:
        line = server.stdout.readline()
        url = re.match(r"(http://127\.0\.0\.1:[0-9]+/retrieve): .* 2 passages\n", line)[1]
        back_end = SearchR1(url, token="s3cret")
        back_end.check()
        found = back_end.search("capital of France", 1)
        assert [(passage.id, passage.title, passage.text) for passage in found] == [
            ("p", "Paris", "Paris is the capital of France.")
        ]
        assert isinstance(found[0], Passage) and found[0].score > 0
        server.send_signal(number)
        rest = server.stdout.read()
        assert server.wait() == 128 + number
        assert rest == "" and "s3cret" not in line
        back_end.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "give a token"),
        (["--port", "70000"], "port is 70000"),
        (["--b", "2"], "b is 2"),
        (["--token-env", "NOT_SET"], "NOT_SET is not set or empty"),
        (["--token-file", os.devnull], "/dev/null is empty"),
        (["--token-file", "none", "--token-env", "NOT_SET"], "give one"),
        (["--token-file", "/none"], "/none"),
    ],
)
def test_a_mistake_is_answered_at_once(corpus, tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as left:
        main(["serve-search", str(corpus), "--cache", str(tmp_path / "c"), *arguments])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_a_corpus_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["serve-search", str(tmp_path / "none.jsonl")])
    assert left.value.code == 2
    assert "none.jsonl" in capsys.readouterr().err
