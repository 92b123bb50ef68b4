"""Evaluations of a model behind a URL: right and wrong servers, budgets, keys, and what is asked again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import turngym
from turngym import __main__ as cli
from turngym.agents.cli.settings import EndpointOptions, SamplingOptions
from turngym.agents.endpoint import Endpoint, EndpointPlayer, EndpointRefused, Gate
from turngym.agents.engine import EngineFault
from turngym.agents.evaluation import run as evaluate
from turngym.agents.journal.replay import replay_journal
from turngym.agents.journal.trees import read_sealed, read_trees
from turngym.agents.players import play
from turngym.envs import Outcome
from turngym.envs.registry import make
from turngym.tests.support.chat_server import KEY, PASSING, ChatServer, Scripted, call, dice

MATH, PYTHON = "turngym/Math-v0", "turngym/MathPython-v0"
ENVS = {name: make(name, split="test") for name in (MATH, PYTHON)}


@pytest.fixture
def served():
    """Return a server of a scripted model and its URL."""
    servers = []

    def start(env=PYTHON, plan=lambda number, asked: "", **rest):
        server = ChatServer(Scripted.of(ENVS[env], **rest), plan)
        running = server.run()
        servers.append(running)
        return server, running.__enter__()

    yield start
    for running in servers:
        running.__exit__(None, None, None)


def evaluated(url, out=None, env=PYTHON, episodes=4, resume=False, seed=0, options=(), **rest):
    endpoint = EndpointOptions(model="m", base_url=url, **{"timeout": 20.0, "retries": 3, **rest})
    settings = {
        "episodes": episodes,
        "samples": 2,
        "seed": seed,
        "sampling": SamplingOptions(max_tokens=64),
        "out": out,
    }
    options = {"split": "test", "tasks": None, **dict(options)}
    return evaluate.run(
        evaluate.prepare(env, options, **settings, resume=resume, endpoint=endpoint)
    )


@pytest.fixture(scope="module", autouse=True)
def few_tasks():
    """The tasks that are drawn are among those that the scripted model knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evaluate, "pick_tasks", lambda tasks, count, seed: list(range(seed, seed + count))
        )
        yield


# --- what is asked, and what becomes of it


def test_tool_calls_are_played_as_text_and_go_back_as_calls(served, tmp_path):
    server, url = served(reasoning=True)
    report = evaluated(url, tmp_path)
    trees = list(read_trees(tmp_path / "trees.jsonl"))
    assert [tree.key for tree in trees] == [
        (sample, 0, task) for task in range(4) for sample in (0, 1)
    ]
    assert report.episodes == 8 and 0 < report.success.value < 1 and report.tool_share == 1.0
    assert [path.divergence for path in replay_journal(tmp_path / "trees.jsonl")] == [None] * 8
    assert not any("Hm," in turn.text for tree in trees for turn in tree.turns[1:])
    opening = next(
        asked
        for asked in server.asked
        if len(asked["messages"]) == len(server.asked[0]["messages"])
    )
    _, info = ENVS[PYTHON].reset(options={"task": 0})
    assert (
        opening["tools"] == info["tools"]
        and opening["max_tokens"] == 64
        and opening["temperature"] == 1.0
    )
    later = [asked for asked in server.asked if asked["messages"][-1]["role"] == "tool"]
    assert later
    for asked in later:
        said, heard = asked["messages"][-2:]
        assert (
            said["role"] == "assistant"
            and said["content"] is None
            and "reasoning_content" not in said
        )
        assert heard["tool_call_id"] == said["tool_calls"][0]["id"] == "call-0"
    seeds = [asked["seed"] for asked in server.asked]
    assert len(set(seeds)) == len(seeds)  # the samples of a task differ
    usage = {"model": "scripted-1", "requests": len(seeds), "prompt_tokens": 11 * len(seeds)}
    assert report.usage == usage | {"completion_tokens": 3 * len(seeds)}
    assert json.loads((tmp_path / "eval.json").read_text())["usage"] == report.usage
    rows = list(read_sealed(tmp_path / "requests.jsonl"))
    assert all(row.keys() == {"key", "request", "answer"} for row in rows)
    assert {
        row.pop("crc32")
        for row in map(json.loads, (tmp_path / "requests.jsonl").read_text().splitlines())
    }
    assert sorted(json.dumps(row["request"]) for row in rows) == sorted(
        map(json.dumps, server.asked)
    )
    assert {tuple(row["key"]) for row in rows} >= {(0, 0, 0), (1, 3, 0)} and len(rows) == len(seeds)


@pytest.mark.slow
def test_one_request_at_a_time_and_sixteen_give_the_same(served, tmp_path):
    trouble = iter(["429", "", "500", "cut", "429 later", "", "", "503"] * 3)
    for name, settings in (("one", {"concurrency": 1}), ("many", {"concurrency": 16})):
        plan = (
            (lambda number, asked: next(trouble, "") if number else "")
            if name == "many"
            else lambda n, a: ""
        )
        evaluated(
            served(plan=plan)[1], tmp_path / name, episodes=12, retries=24, **settings
        )  # one may meet all
    assert (tmp_path / "one" / "trees.jsonl").read_bytes() == (
        tmp_path / "many" / "trees.jsonl"
    ).read_bytes()
    assert (tmp_path / "one" / "eval.json").read_bytes() == (
        tmp_path / "many" / "eval.json"
    ).read_bytes()


def test_a_system_prompt_teaches_calls_where_they_are_text(served, tmp_path):
    server, url = served()
    report = evaluated(url, tmp_path, tool_calls="text")
    assert report.tool_share == 1.0 and not any("tools" in asked for asked in server.asked)
    assert all("<python>" in asked["messages"][0]["content"] for asked in server.asked)
    assert {message["role"] for asked in server.asked for message in asked["messages"]} <= {
        "system",
        "user",
        "assistant",
    }
    assert any(
        turn.text.startswith("Let me see.\n<python>")
        for t in read_trees(tmp_path / "trees.jsonl")
        for turn in t.turns
    )
    assert [path.divergence for path in replay_journal(tmp_path / "trees.jsonl")] == [None] * 8


def test_an_environment_without_tools_needs_none(served):
    server, url = served(MATH)
    assert evaluated(f"{url}/v1/", env=MATH).turns == 1.0
    assert not any("tools" in asked for asked in server.asked)


def one(message, url_of=None, finish="", turns=2, **rest):
    """Play one episode with a model that says `message` first; return the tree and what was asked."""
    said = iter([message])

    def model(asked):
        found = next(said, {"content": "\\boxed{1}"})
        return found

    server = ChatServer(model, lambda number, asked: finish if number == 0 else "")
    with server.run() as url:
        endpoint = Endpoint(
            EndpointOptions(model="m", base_url=url, retries=1, timeout=5.0, **rest)
        )
        try:
            return play(make(PYTHON, max_turns=turns), EndpointPlayer(endpoint, 0), 0), server.asked
        finally:
            endpoint.close()


CODE = json.dumps({"code": "print(6*7)"})


@pytest.mark.parametrize(
    ("message", "text", "reply"),
    [
        ({"content": None, "tool_calls": [call("python", CODE)]}, "<tool_call>", "42"),
        ({"content": "First,", "tool_calls": [call("python", CODE)]}, "First,\n<tool_call>", "42"),
        (
            {"content": "", "tool_calls": [call("python", {"code": "print(6*7)"})]},
            "<tool_call>",
            "42",
        ),
        ({"tool_calls": [call("python", CODE), call("python", "{}", 1)]}, "<tool_call>", "42"),
        ({"content": "<think>hm", "tool_calls": [call("python", CODE)]}, "<tool_call>", "42"),
        (
            {"content": "<tool_call>{}</tool_call>", "tool_calls": [call("python", CODE)]},
            "<tool_call>\n{",
            "42",
        ),
        (
            {"tool_calls": [call("python", '{"code": "print(')]},
            "<tool_call>",
            'error: malformed tool call: "arguments" is not valid JSON (Unterminated string',
        ),
        (
            {"tool_calls": [call("python", "[1]")]},
            "<tool_call>",
            '"arguments" must be an object, it is a list',
        ),
        ({"tool_calls": [call("python", "")]}, "<tool_call>", "python needs the argument 'code'"),
        (
            {"tool_calls": [call("pyton", CODE)]},
            "<tool_call>",
            "there is no tool 'pyton'; the tools are python",
        ),
        ({"tool_calls": [{**call("python", CODE), "id": None}]}, "<tool_call>", "42"),
        (
            {"content": [{"type": "thinking"}, {"type": "text", "text": "<tool_call>x"}]},
            "<tool_call>x",
            "malformed",
        ),
    ],
)
def test_every_kind_of_call_becomes_one_turn(message, text, reply):
    tree, asked = one(message)
    assert [turn.role for turn in tree.turns] == ["user", "assistant", "tool", "assistant"]
    assert tree.turns[1].text.startswith(text) and reply in tree.turns[2].text
    said, heard = asked[1]["messages"][-2:]
    if "tool_calls" not in message:
        assert (said["content"], heard["role"]) == ("<tool_call>x", "user")
        return
    assert heard == {
        "role": "tool",
        "tool_call_id": said["tool_calls"][0]["id"],
        "content": tree.turns[2].text,
    }
    assert len(said["tool_calls"]) == 1 and said["tool_calls"][0]["id"]
    assert isinstance(json.loads(said["tool_calls"][0]["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    "message", [{"content": None}, {"content": ""}, {}, {"content": None, "refusal": "I will not."}]
)
def test_an_empty_answer_is_the_models_own(message):
    tree, _ = one(message)
    (leaf,) = tree.leaves
    assert (leaf.stop, leaf.score) == ("no_answer", 0.0) and tree.turns[1].text == message.get(
        "refusal", ""
    )


def test_an_answer_that_was_cut_is_marked_and_one_that_was_withheld_has_no_score():
    tree, _ = one({}, finish="length")
    assert (tree.turns[1].ended, tree.leaves[0].stop) == ("length", "no_answer")
    tree, asked = one({}, finish="withheld")
    (leaf,) = tree.leaves
    assert (leaf.outcome, leaf.stop) == (
        Outcome.INFRA_ERROR,
        "infra_error",
    ) and leaf.score != leaf.score
    assert "content_filter" in leaf.info["error"] and len(asked) == 1
    tree, _ = one({}, finish="too long")
    assert (tree.leaves[0].stop, tree.leaves[0].outcome, tree.leaves[0].score) == (
        "context",
        "truncated",
        0.0,
    )


# --- servers in trouble


@pytest.mark.parametrize("way", PASSING)
def test_what_may_pass_is_asked_again(served, way, tmp_path):
    server, url = served(plan=lambda number, asked: way if number in (1, 2, 4) else "")
    report = evaluated(url, tmp_path, concurrency=3)
    assert (report.failed, report.episodes) == (0, 8)
    rows = [row for row in read_sealed(tmp_path / "requests.jsonl") if "failure" in row]
    assert len(server.asked) == report.usage["requests"] + 3
    assert len(rows) == 3 or way in (
        "reset",
        "cut",
    )  # a reused connection that breaks is not the server's failure
    assert {row["failure"]["fault"] for row in rows} <= {"full", "status", "connect", "malformed"}


@pytest.mark.parametrize(
    ("way", "fault", "tries"),
    [
        ("500", "status", 4),
        ("cut json", "malformed", 4),
        ("wait", "full", 1),
        ("400", "status", 1),
    ],
)
def test_what_does_not_pass_is_a_failure_and_no_score(served, tmp_path, way, fault, tries):
    def plan(number, asked):
        return (
            way
            if number and asked["messages"][-1]["content"] == ENVS[PYTHON].tasks[1].prompt
            else ""
        )

    server, url = served(plan=plan)
    report = evaluated(url, tmp_path, concurrency=1)  # so that the first request is known
    assert (report.failed, report.stops["infra_error"]) == (2, 2) and url in report.failure
    failed = [
        leaf
        for tree in read_trees(tmp_path / "trees.jsonl")
        for leaf in tree.leaves
        if not leaf.rewarded
    ]
    assert all(leaf.info["engine"] == fault and leaf.score != leaf.score for leaf in failed)
    assert len(server.asked) == report.usage["requests"] + 2 * tries
    server.plan = lambda number, asked: ""
    again = evaluated(url, tmp_path, resume=True)
    assert (again.failed, again.failure) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["silent", "drip"])
def test_a_server_that_hangs_is_given_up(served, way):
    server, url = served(plan=lambda number, asked: way if number == 1 else "")
    assert evaluated(url, timeout=0.4).failed == 0
    assert len({json.dumps(asked) for asked in server.asked}) == len(server.asked) - 1


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            "401",
            "answered 401: .*it wants a key in the environment variable OPENAI_API_KEY, which is not set; --api",
        ),
        (
            "page",
            "it is not JSON.*DOCTYPE html.*; check --model, and --base-url, which often ends in /v1",
        ),
        ("no tools", "answered 400: .*auto.*or add --tool-calls text"),
        ("400", "temperature is not supported.*; leave it out with --request temperature=none$"),
        ("500", "answered 500: .*oops"),
        ("reset", "; check --base-url, and whether the server runs"),
        (
            "quota",
            "answered 429: .*insufficient_quota.*; the quota or balance is spent: add to it, or name another key",
        ),
    ],
)
def test_what_the_first_request_meets_ends_the_evaluation(served, tmp_path, way, message):
    server, url = served(plan=lambda number, asked: way)
    with pytest.raises(EndpointRefused, match=message):
        evaluated(url, tmp_path, concurrency=8, retries=2)
    assert len(server.asked) == (3 if way == "500" else 1)
    rows = list(read_sealed(tmp_path / "requests.jsonl"))
    assert len(rows) == len(server.asked) and all("failure" in row for row in rows)
    server.plan = lambda number, asked: ""
    assert evaluated(url, tmp_path, resume=True).failed == 0


def test_another_address_says_what_to_check(served):
    server, url = served()
    with pytest.raises(
        EndpointRefused,
        match=r"answered 404: .*Not Found.*; check --model, and --base-url, which often ends in",
    ):
        evaluated(f"{url}/api")
    with pytest.raises(EndpointRefused, match="check --base-url, and whether the server runs"):
        evaluated("http://127.0.0.1:9")
    assert server.asked == []


def test_the_number_of_requests_follows_the_server():
    gate = Gate(8)
    assert (gate.limit, gate.era) == (1, 0)
    gate.failed(EngineFault.FULL, 0)
    gate.answered()
    assert (gate.limit, gate.era) == (8, 1)
    for fault in (EngineFault.STATUS, EngineFault.FULL, EngineFault.FULL, EngineFault.TIMEOUT):
        gate.failed(fault, 1)  # of one burst
    assert (gate.limit, gate.era) == (4, 2)
    gate.failed(EngineFault.TIMEOUT, 2)
    assert gate.limit == 2
    for _ in range(2):
        gate.answered()
    assert gate.limit == 3
    for _ in range(200):
        gate.answered()
    assert gate.limit == 8
    gate.close("enough")
    gate.close("again")
    gate.pause(100.0)
    with pytest.raises(EndpointRefused, match="enough"), gate.place():
        pass


@pytest.mark.parametrize("resumed", [False, True])
def test_a_model_that_changes_ends_the_evaluation_and_loses_nothing(served, tmp_path, resumed):
    """In the middle of an evaluation, or between two parts of one."""
    server, url = served(plan=lambda number, asked: "other model" if number == 9 else "")
    with pytest.raises(
        EndpointRefused,
        match=r"model '.*' answered, and 'scripted-1' did before; let that one answer, and add",
    ):
        evaluated(url, tmp_path, concurrency=1)
    answered = [row for row in read_sealed(tmp_path / "requests.jsonl") if "answer" in row]
    assert len(answered) == 9 and not (tmp_path / "eval.json").exists()
    if resumed:
        server.plan = lambda number, asked: "other model"
        with pytest.raises(EndpointRefused, match="did before"):
            evaluated(url, tmp_path, resume=True)
    server.plan = lambda number, asked: ""
    report = evaluated(url, tmp_path, resume=True)
    assert (report.failed, report.usage["requests"]) == (0, len(server.asked) - 1 - resumed)


def test_turns_that_were_cut_are_counted(served):
    _, url = served(plan=lambda number, asked: "length" if number in (2, 5) else "")
    report = evaluated(url, concurrency=1)
    assert report.cut == pytest.approx(2 / (report.turns * 8))
    assert report.tokens == report.usage["completion_tokens"] / 8 == 3 * report.turns
    _, url = served(plan=lambda number, asked: "no usage")
    assert evaluated(url).tokens is None  # nobody counted


# --- budget, resuming, keys


def test_a_spent_budget_leaves_the_rest_for_another_time(served, tmp_path):
    evaluated(served()[1], tmp_path / "whole", concurrency=1)
    server, url = served()
    report = evaluated(url, tmp_path / "cut", token_budget=80, concurrency=1)
    asked = len(server.asked)
    assert asked == 6 and report.not_played == 8 - report.episodes > 0
    assert (
        json.loads((tmp_path / "cut" / "eval.json").read_text())["not_played"] == report.not_played
    )
    with pytest.raises(ValueError, match="begun with"):
        evaluated(url, tmp_path / "cut", resume=True, seed=1)
    settings = json.loads((tmp_path / "cut" / "settings.json").read_text())
    (tmp_path / "cut" / "settings.json").write_text(json.dumps(settings | {"base_url": url}))
    whole = evaluated(url, tmp_path / "cut", resume=True)
    assert whole.not_played == 0 and whole.usage["requests"] == len(
        server.asked
    )  # none was asked twice
    assert (tmp_path / "cut" / "trees.jsonl").read_bytes() == (
        tmp_path / "whole" / "trees.jsonl"
    ).read_bytes()
    assert (tmp_path / "cut" / "eval.json").read_bytes() == (
        tmp_path / "whole" / "eval.json"
    ).read_bytes()
    with pytest.raises(
        ValueError, match="no episode was over when the token budget was spent; add --resume"
    ):
        first = next(i for i in range(99) if dice(ENVS[PYTHON].tasks[i].prompt) >= 25)
        evaluated(url, tmp_path / "none", token_budget=1, concurrency=1, seed=first)
    server.plan = lambda number, asked: "no usage"
    with pytest.raises(
        EndpointRefused, match="does not say how many tokens it used; leave out --token-budget"
    ):
        evaluated(url, tmp_path / "unknown", token_budget=80)


def test_answers_that_are_written_down_are_not_asked_for_again(served, tmp_path):
    server, url = served()
    evaluated(url, tmp_path)
    asked = len(server.asked)
    (tmp_path / "trees.jsonl").unlink()  # as if no episode had ended
    evaluated(url, tmp_path, resume=True)
    assert len(server.asked) == asked
    rows = (tmp_path / "requests.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "trees.jsonl").unlink()
    (tmp_path / "requests.jsonl").write_bytes(b"".join(rows[:-3]) + rows[-3][:40])
    evaluated(url, tmp_path, resume=True)
    assert len(server.asked) == asked + 3


def test_the_key_is_sent_and_nowhere_else(served, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MY_KEY", KEY)
    server, url = served(
        plan=lambda number, asked: {1: "leak", 3: "500", 5: "leak"}.get(number, "")
    )
    evaluated(url, tmp_path / "out", api_key_env="MY_KEY")
    assert all(f"authorization: bearer {KEY}" in head.lower() for head in server.heads)
    server.plan = lambda number, asked: "401"
    with pytest.raises(EndpointRefused) as refused:
        evaluated(url, tmp_path / "refused", api_key_env="MY_KEY")
    assert "…" in str(refused.value) and "MY_KEY; --api-key-env" in str(refused.value)
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) > 4 and not any(
        KEY[:9] in text for text in [*texts, str(refused.value), *capfd.readouterr()]
    )


def test_a_placeholder_for_a_key_is_no_secret_and_changes_no_answer(served, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY[:9])  # the answers hold it
    server, url = served(plan=lambda number, asked: "leak")
    evaluated(url, tmp_path / "out", episodes=1)
    assert KEY in (tmp_path / "out" / "trees.jsonl").read_text()
    assert "authorization: bearer " in server.heads[0].lower()


def test_a_cut_key_is_hidden_too(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint = Endpoint(EndpointOptions(model="m", base_url="http://127.0.0.1:1"))
    assert endpoint._hidden(f"a {KEY} b {KEY[:12]}") == "a … b …"


# --- the command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model", "m"], "--model is 'm', and --base-url is not given; give both"),
        (
            ["--base-url", "http://x"],
            "--base-url is 'http://x', and --model is not given; give both",
        ),
        (["--model", "m", "--base-url", "x"], "'x' is no address of a server"),
        (
            ["--model", "m", "--base-url", "http://u:p@x"],
            "the address http://x has a user; a key is read from",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--policy", "tiny"],
            "--policy is 'tiny' and --model 'm'; give one",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--api-key-env", "NONE"],
            "variable NONE is not set or empty",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--concurrency", "0"],
            "concurrency is 0; it must be at least 1",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--request", "a"],
            "--request 'a' is not of the form name=value",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--request", "thinking={type: enabled}"],
            "--request 'thinking={type: enabled}' begins with '{' and is not JSON",
        ),
        (
            ["--model", "m", "--base-url", "http://x", "--option", "format=tags"],
            "format is tags, which is not for structured tool calls; take hermes, or --tool-calls text",
        ),
        (
            [
                "--model",
                "m",
                "--base-url",
                "http://x",
                "--option",
                "format=hermes",
                "--tool-calls",
                "text",
            ],
            "format is hermes, which is not for text tool calls; take tags",
        ),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli.main(["eval", PYTHON, *args, "--out", "out"])
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1) and message in err
    assert list(tmp_path.iterdir()) == []


def test_the_command_shows_what_was_used(served, capsys, monkeypatch):
    server, url = served(plan=lambda number, asked: "500" if number == 1 else "")
    monkeypatch.setattr("turngym.agents.cli.terminal.console.width", 200)
    args = [
        "--model",
        "m",
        "--base-url",
        url,
        "--episodes",
        "9",
        "--retries",
        "0",
        "--token-budget",
        "40",
    ]
    with pytest.raises(SystemExit) as left:
        cli.main(
            [
                "eval",
                PYTHON,
                *args,
                "--concurrency",
                "1",
                "--request",
                "seed=none",
                "top_p=0.5",
                "temperature=0",
            ]
        )
    out = capsys.readouterr().out
    assert left.value.code == 0, out
    assert "scripted-1: 3 requests, 33 prompt and 9 completion tokens" in out and "oops" in out
    assert re.search("[5-7] episodes; add --resume and a larger --token-budget", out)
    assert all(
        "seed" not in asked and asked["top_p"] == 0.5 and asked["temperature"] == 0
        for asked in server.asked
    )
    first = len(server.asked)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["eval", PYTHON, *args, "--top-p", "0.9"])
    assert (
        all("seed" in asked and asked["top_p"] == 0.9 for asked in server.asked[first:])
        and server.asked[first:]
    )


CHILD = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers", "tokenizers", "jinja2", "safetensors", "peft"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from turngym.__main__ import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_without_torch(served, tmp_path):
    server, url = served(plan=lambda number, asked: time.sleep(0.02) or "")
    command = [
        sys.executable,
        "-c",
        CHILD,
        "eval",
        PYTHON,
        "--model",
        "m",
        "--base-url",
        url,
        "--episodes",
        "40",
    ]
    paths = {"PYTHONPATH": str(Path(turngym.__file__).parent.parent), "OPENAI_API_KEY": KEY}

    def run(out, *more):
        return subprocess.Popen(
            [*command, "--tasks", str(questions), "--out", str(out), *more],
            env={**os.environ, **paths},
            stdout=subprocess.DEVNULL,
        )

    questions = tmp_path / "questions.jsonl"
    rows = [
        {"problem": task.prompt, "answer": task.gold}
        for task in map(ENVS[PYTHON].tasks.__getitem__, range(40))
    ]
    questions.write_text("\n".join(map(json.dumps, rows)))
    for least in (1, 12, 30):
        with run(tmp_path / "cut", "--resume") as process:
            path = tmp_path / "cut" / "requests.jsonl"
            while (
                process.poll() is None
                and (path.read_bytes().count(b"\n") if path.exists() else 0) < least
            ):
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    for out in (tmp_path / "cut", tmp_path / "whole"):
        with run(out, "--resume") as process:
            pass
        assert process.returncode == 0
    for name in ("trees.jsonl", "eval.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    answered = {
        path: list(read_sealed(tmp_path / path / "requests.jsonl")) for path in ("cut", "whole")
    }
    assert (
        len(answered["cut"]) == len(answered["whole"])
        and len(server.asked) <= 2 * len(answered["cut"]) + 3 * 8
    )


def test_calls_in_another_models_format_are_counted_and_named(tmp_path, capsys):
    kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.python:0<|tool_call_argument_begin|>{}"
    thought = f"<think>{kimi}</think>\\boxed{{1}}"
    says = {"kimi": kimi, "thought": thought}
    for name, text in says.items():
        server = ChatServer(lambda asked, text=text: {"content": text})
        with server.run() as url:
            report = evaluated(url, tmp_path / name, episodes=2)
        found = json.loads((tmp_path / name / "eval.json").read_text())
        assert (
            report.stops == ({"no_answer": 4} if name == "kimi" else {"answered": 4})
            and report.reward == 0
        )
        if name == "thought":
            assert report.foreign_calls == {} and "foreign_calls" not in found
            continue
        assert (
            found["foreign_calls"].keys() == {"Kimi's"}
            and found["foreign_calls"]["Kimi's"]["turns"] == 4
        )
        assert "--tool-calls structured" in found["foreign_calls"]["Kimi's"]["fix"]
        with server.run() as url:
            arguments = ["eval", PYTHON, "--model", "m", "--base-url", url, "--episodes", "2"]
            with pytest.raises(SystemExit) as ended:
                cli.main(arguments)
            assert not ended.value.code
        shown = " ".join(capsys.readouterr().out.split())
        assert "Kimi's" in shown and "2, not read; turngym has no such format" in shown
