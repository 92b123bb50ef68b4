"""Answers with status 200 that are none, broke off, or come in other forms, and what becomes of an episode."""

import gzip
import json
import math
import re
import stat

import pytest

from turngym import __main__ as cli
from turngym.agents.cli.settings import EndpointOptions
from turngym.agents.endpoint import Answer, Endpoint, EndpointPlayer, EndpointRefused
from turngym.agents.endpoint.finish import Finish, finish_of
from turngym.agents.evaluation.scores import NoScore
from turngym.agents.journal.replay import replay_journal
from turngym.agents.journal.trees import read_sealed, read_trees
from turngym.agents.players import play
from turngym.envs import Outcome
from turngym.envs.registry import make
from turngym.tests.support.chat_server import ChatServer, call, completion, kept, right
from turngym.tests.support.odd_server import Odd, evaluated, multiply
from turngym.tools.files import LinkRefused
from turngym.tools.http.json_values import Node

PYTHON = "turngym/MathPython-v0"


def once(data, at=2):
    """Answer one request so, and the others rightly; `data` is JSON, or bytes."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return lambda number, asked: kept(body) if number == at else None


# --- how an answer ended


@pytest.mark.parametrize(
    "reason", ["", "stop", "STOP", "FinishReason.STOP", "tool_calls", "Tool-Calls", "function_call"]
)
def test_a_known_good_reason_is_complete(reason):
    assert finish_of(reason) is Finish.COMPLETE


@pytest.mark.parametrize(
    ("reasons", "meaning"),
    [
        ("end_turn stop_sequence eos eos_token tool_call tool_calling tool_use", Finish.COMPLETE),
        ("length max_tokens MAX_TOKENS max_output_tokens", Finish.CUT),
        ("model_context_window_exceeded model_length", Finish.CONTEXT),
        (
            "content_filter content-filter sensitive SAFETY RECITATION PROHIBITED_CONTENT refusal",
            Finish.WITHHELD,
        ),
        ("error ERROR abort cancelled canceled network_error timeout server_error", Finish.BROKEN),
        ("insufficient_system_resource overloaded", Finish.FULL),
        (
            "MALFORMED_FUNCTION_CALL error_finish paused unknown OTHER FINISH_REASON_UNSPECIFIED 1 stopp",
            Finish.UNKNOWN,
        ),
    ],
)
def test_what_a_reason_means(reasons, meaning):
    assert {finish_of(reason) for reason in reasons.split()} == {meaning}


@pytest.mark.parametrize("content", [None, "Let me th", "\\boxed{14}"])
@pytest.mark.parametrize(
    ("reason", "passes"),
    [
        *(
            (reason, True)
            for reason in (
                "error",
                "ABORT",
                "insufficient_system_resource",
                "network_error",
                "cancelled",
            )
        ),
        *(
            (reason, False)
            for reason in ("content_filter", "SAFETY", "sensitive", "refusal", "new_word", "OTHER")
        ),
    ],
)
def test_an_answer_that_broke_off_is_no_answer_with_and_without_a_text(
    tasks, tmp_path, reason, passes, content
):
    """What may pass is asked again; what was kept back for its content, or is not known, is a failure."""
    server = Odd(once(completion({"content": content}, finish=reason)))
    report, episodes = evaluated(server, tasks, tmp_path / "e")
    outcomes = [episode.outcome for episode in episodes]
    if passes:
        assert (
            outcomes == [Outcome.DONE] * 4
            and report.success.value == 1.0
            and len(server.asked) == 9
        )
    else:
        assert outcomes.count(Outcome.INFRA_ERROR) == 1 and math.isnan(episodes[1].score)
        assert report.success.value == 1.0 and len(server.asked) == 7 and reason in report.failure
    (row,) = [row for row in read_sealed(tmp_path / "e" / "requests.jsonl") if "failure" in row]
    assert row["answer"]["choices"][0]["finish_reason"] == reason
    assert report.usage["requests"] == len(server.asked)  # what it took is counted
    if not passes:
        again, _ = evaluated(Odd(), tasks, tmp_path / "e", resume=True)
        assert (again.failed, again.success.value, again.usage["requests"]) == (0, 1.0, 9)


def test_an_answer_that_always_breaks_off_fails_its_episode_alone(tasks):
    def odd(number, asked):
        failed = "What is 2 times" in asked["messages"][-1]["content"]
        return right(completion({"content": "Let"}, finish="error")) if failed else None

    server = Odd(odd)
    report, episodes = evaluated(server, tasks)
    assert [episode.stop for episode in episodes] == [
        "answered",
        "infra_error",
        "answered",
        "answered",
    ]
    assert (
        len(server.asked) == 6 + 3
        and "broke its answer off with finish_reason 'error'" in report.failure
    )


def test_a_word_can_be_declared_good(tasks, tmp_path):
    def odd(number, asked):
        return right(completion(multiply(asked), finish="All-Done"))

    with pytest.raises(
        NoScore,
        match=r"'All-Done', which is not known.*; if it means.*add --finish-reason All-Done",
    ):
        evaluated(Odd(odd), tasks)
    report, _ = evaluated(Odd(odd), tasks, tmp_path / "e", finish_reason=("all_done",))
    assert (report.failed, report.success.value) == (0, 1.0)
    assert json.loads((tmp_path / "e" / "settings.json").read_text())["finish_reason"] == [
        "all_done"
    ]


def test_a_full_context_and_a_cut_are_the_models_in_every_word(tasks, tmp_path):
    for reason, stop in (("model_context_window_exceeded", "context"), ("MAX_TOKENS", "no_answer")):
        server = Odd(once(completion({"content": "Let me th"}, finish=reason)))
        report, episodes = evaluated(server, tasks, tmp_path / reason)
        assert (episodes[1].stop, episodes[1].score, report.failed) == (stop, 0.0, 0)
        assert report.success.value == 0.75 and (report.cut > 0) == (stop == "no_answer")
        assert [path.divergence for path in replay_journal(tmp_path / reason / "trees.jsonl")] == [
            None
        ] * 4
    (
        tmp_path / "model_context_window_exceeded" / "trees.jsonl"
    ).unlink()  # as if no episode had ended
    server = Odd()
    _, episodes = evaluated(server, tasks, tmp_path / "model_context_window_exceeded", resume=True)
    assert [episode.stop for episode in episodes].count("context") == 1 and server.asked == []


def test_a_server_that_names_no_reasons_is_believed(tasks):
    def odd(number, asked):
        data = completion(multiply(asked))
        data["choices"][0]["finish_reason"] = None
        return right(data)

    report, _ = evaluated(Odd(odd), tasks)
    assert report.success.value == 1.0
    silent = completion({"content": None})
    silent["choices"][0]["finish_reason"] = None
    server = Odd(once(silent))
    report, _ = evaluated(server, tasks)  # it names reasons, so one without is not at its end
    assert report.success.value == 1.0 and len(server.asked) == 9


def test_what_was_kept_back_for_its_content_is_not_drawn_again_whatever_else_is_said(tasks):
    data = completion({"content": ""}, finish="content_filter")
    data["choices"][0]["error"] = {"code": 403, "message": "flagged"}
    server = Odd(once(data))
    report, _ = evaluated(server, tasks)
    assert (report.failed, len(server.asked)) == (
        1,
        7,
    ) and "(content_filter): '403; flagged'" in report.failure


# --- errors with status 200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"error": {"message": "Upstream error", "code": 502}}, "Upstream error"),
        ({"error": {"message": "Rate limit exceeded", "code": 429}}, "Rate limit exceeded"),
        ({"error": "model is loading"}, "model is loading"),
        ({"detail": "CUDA out of memory"}, "CUDA out of memory"),
        ({"code": 50501, "msg": "system is too busy"}, "system is too busy"),
        (
            {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "try later"}},
            "try later",
        ),
        (
            {
                "choices": [
                    {
                        "message": {"content": ""},
                        "finish_reason": "stop",
                        "error": {"message": "died"},
                    }
                ]
            },
            "died",
        ),
        (b'data: {"error": {"message": "upstream died"}}\n\ndata: [DONE]\n\n', "upstream died"),
        (
            b"<html><title>busy</title><body>Come <b>back</b> later</body></html>",
            "busy Come back later",
        ),
        (b"Internal Server Error", "Internal Server Error"),
    ],
)
def test_an_error_with_status_200_is_read_and_asked_again(tasks, tmp_path, data, words):
    server = Odd(once(data))
    report, _ = evaluated(server, tasks, tmp_path / "e")
    assert (report.failed, report.success.value, len(server.asked)) == (0, 1.0, 9)
    (row,) = [row for row in read_sealed(tmp_path / "e" / "requests.jsonl") if "failure" in row]
    assert words in row["failure"]["what"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"error": {"message": "Insufficient balance", "code": 402}},
            "Insufficient balance.*; the quota or balance is",
        ),
        ({"code": 1113, "msg": "余额不足,请充值。"}, "余额不足.*; the quota or balance is spent"),
        (
            {"error": {"message": "Unsupported parameter: 'seed'", "code": 400}},
            "'seed'.*--request seed=none",
        ),
    ],
)
def test_an_error_that_does_not_pass_ends_an_evaluation_only_as_its_first_answer(
    tasks, data, words
):
    server = Odd(once(data, at=0))
    with pytest.raises(EndpointRefused, match=words):
        evaluated(server, tasks)
    assert len(server.asked) == 1
    server = Odd(once(data))
    report, episodes = evaluated(server, tasks)
    assert [episode.stop for episode in episodes].count("infra_error") == 1 and len(
        server.asked
    ) == 7
    assert report.success.value == 1.0


def test_a_full_context_in_an_error_with_status_200_is_one(tasks):
    _, episodes = evaluated(
        Odd(once({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}})), tasks
    )
    assert [episode.stop for episode in episodes].count("context") == 1


def test_a_stream_without_an_error_says_how_to_have_none(tasks):
    chunk = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'
    with pytest.raises(
        EndpointRefused, match="it answered with a stream; add --request stream=false"
    ):
        evaluated(Odd(lambda number, asked: kept(chunk)), tasks)


def test_an_error_page_is_read_whole_and_unpacked(tasks):
    long = {
        "error": {
            "metadata": "x" * 500,
            "message": "Provider returned error: prompt is too long: 9 > 8 maximum",
        }
    }

    def odd(number, asked):
        body = gzip.compress(json.dumps(long).encode())
        return kept(body, "400 Bad Request", "Content-Encoding: gzip") if number == 2 else None

    _, episodes = evaluated(Odd(odd), tasks)
    assert [episode.stop for episode in episodes].count("context") == 1


def test_tokens_that_are_asked_for_and_do_not_fit_are_a_wrong_setting(tasks):
    words = "`inputs` tokens + `max_new_tokens` must be <= 64. Given: {} `inputs` tokens and 64 `max_new_tokens`"

    def refused(inputs):
        body = json.dumps({"error": words.format(inputs)}).encode()
        return Odd(lambda number, asked: kept(body, "422 Unprocessable Entity"))

    with pytest.raises(EndpointRefused, match="take a smaller --max-tokens, which is 64"):
        evaluated(refused(20), tasks)
    _, episodes = evaluated(refused(200), tasks)
    assert {episode.stop for episode in episodes} == {"context"}


# --- models and usage


def test_an_answer_without_a_model_ends_nothing(tasks, tmp_path):
    def odd(number, asked):
        data = completion(multiply(asked))
        if number % 2:
            del data["model"]
        return right(data)

    report, _ = evaluated(Odd(odd), tasks, tmp_path / "e")
    assert report.success.value == 1.0 and report.usage["model"] == "scripted-1"
    again, _ = evaluated(Odd(odd), tasks, tmp_path / "e", resume=True)
    assert again.usage == report.usage


def test_a_broken_answer_of_another_model_changes_no_model(tasks):
    data = completion({"content": ""}, model="none", finish="error")
    report, _ = evaluated(Odd(once(data, at=0)), tasks)
    assert (report.success.value, report.usage["model"]) == (1.0, "scripted-1")


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": "11", "completion_tokens": 3.0}, (11, 3)),
        ({"prompt_tokens": None, "completion_tokens": True}, (0, 0)),
        (None, (0, 0)),
        ([], (0, 0)),
    ],
)
def test_tokens_are_counted_as_they_are_written(usage, counts):
    answer = Answer.read(Node({**completion({"content": "x"}), "usage": usage}))
    assert (answer.prompt_tokens, answer.completion_tokens) == counts


def test_the_command_says_what_is_unknown_and_what_was_learned(tasks, monkeypatch, capsys):
    def odd(number, asked):
        if number and any(
            "reasoning" not in said for said in asked["messages"] if said["role"] == "assistant"
        ):
            return kept(b'{"error": "reasoning is missing"}', "400 Bad Request")
        data = completion(multiply(asked) | {"reasoning": "Hm"})
        del data["model"], data["usage"]
        return right(data)

    monkeypatch.setattr("turngym.agents.cli.terminal.console.width", 200)
    with Odd(odd).run() as url, pytest.raises(SystemExit, match="0"):
        cli.main(
            [
                "eval",
                PYTHON,
                "--model",
                "m",
                "--base-url",
                url,
                "--tasks",
                str(tasks),
                "--episodes",
                "4",
            ]
        )
    out = capsys.readouterr().out
    assert "unknown: 8 requests, an unknown number of tokens" in out
    assert re.search(
        "reasoning +sent back: the server refused a request without reasoning +\n", out
    )


# --- calls in other forms

CODE = {"code": "print(6*7)"}


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "tool_calls": [call("python", json.dumps(json.dumps(CODE)))]},
        {"content": None, "tool_calls": [call("python", json.dumps(json.dumps(json.dumps(CODE))))]},
        {"content": None, "tool_calls": [call("python", CODE)]},
        {"content": None, "tool_calls": [{"name": "python", "arguments": CODE}]},
        {"content": None, "function_call": {"name": "python", "arguments": json.dumps(CODE)}},
        {
            "content": None,
            "tool_calls": None,
            "function_call": {"name": "python", "arguments": CODE},
        },
        {
            "content": None,
            "tool_calls": [],
            "function_call": {"name": "python", "arguments": json.dumps(json.dumps(CODE))},
        },
    ],
)
def test_calls_in_older_and_doubled_forms_are_read(message):
    said = iter([message])
    server = ChatServer(lambda asked: next(said, {"content": "\\boxed{1}"}))
    with server.run() as url:
        endpoint = Endpoint(EndpointOptions(model="m", base_url=url, retries=1, timeout=5.0))
        tree = play(make(PYTHON, max_turns=2), EndpointPlayer(endpoint, 0), 0)
        endpoint.close()
    assert tree.turns[1].text.startswith("<tool_call>") and tree.turns[2].text == "42"
    heard, result = server.asked[1]["messages"][-2:]
    assert json.loads(heard["tool_calls"][0]["function"]["arguments"]) == CODE
    assert result == {"role": "tool", "tool_call_id": heard["tool_calls"][0]["id"], "content": "42"}


@pytest.mark.parametrize(
    "arguments", ['"print(1)"', '["a"]', "7", '"{"', "null", '{"code": "\\"x\\""}']
)
def test_arguments_that_hold_no_object_stay_as_they_are(arguments):
    answer = Answer.read(Node(completion({"tool_calls": [call("python", arguments)]})))
    assert answer.call is not None and answer.call.arguments == arguments


def test_the_requests_of_an_evaluation_are_its_owners_alone(tasks, tmp_path):
    evaluated(Odd(), tasks, tmp_path / "e", episodes=1)
    path = tmp_path / "e" / "requests.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    evaluated(Odd(), tasks, tmp_path / "e", resume=True, episodes=1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(read_trees(tmp_path / "e" / "trees.jsonl"))) == 1


def test_a_journal_of_requests_that_is_a_link_is_refused(tasks, tmp_path):
    evaluated(Odd(once(completion({}, finish="SAFETY"))), tasks, tmp_path / "e")
    path, target = tmp_path / "e" / "requests.jsonl", tmp_path / "other"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_bytes()
    with pytest.raises(LinkRefused, match=r"requests\.jsonl is a link that leads out of"):
        evaluated(Odd(), tasks, tmp_path / "e", resume=True)
    assert target.read_bytes() == before
