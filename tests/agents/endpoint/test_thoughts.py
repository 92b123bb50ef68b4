"""What a model thought, apart from what it said: sent back where the server wants it, as it was received."""

import json

import pytest

from turngym.agents.cli.settings import EndpointOptions
from turngym.agents.endpoint import Endpoint, EndpointPlayer
from turngym.agents.endpoint.errors import error_page
from turngym.agents.evaluation.scores import NoScore
from turngym.agents.journal.trees import read_sealed
from turngym.agents.players import play
from turngym.envs.registry import make
from turngym.tests.support.chat_server import KEY, call, completion, kept, right
from turngym.tests.support.odd_server import Odd, evaluated, multiply

DETAILS = [
    {"type": "reasoning.text", "text": "Hm, \u2028 é\n", "signature": "c2ln", "index": 0},
    {"type": "x", "data": None},
]
GIVEN = {
    "reasoning_content": "Let me multiply. \\boxed{1}  \n",
    "reasoning": "Let me multiply.",
    "reasoning_details": DETAILS,
}


def thinking(
    names=("reasoning_content",), wants=("reasoning_content",), some=lambda number: True, words=""
):
    """Return a server of a model that gives its thoughts by these names and refuses a call that came without them."""
    words = words or "Missing `{}` field in the assistant message at message index 2."

    def odd(number, asked):
        for message in asked["messages"]:
            lacking = [name for name in wants if name not in message]
            if message["role"] == "assistant" and lacking:
                return kept(
                    json.dumps({"error": {"message": words.format(lacking[0])}}).encode(),
                    "400 Bad Request",
                )
        thoughts = {name: GIVEN[name] for name in names} if some(number) else {}
        return right(completion(multiply(asked) | thoughts))

    return Odd(odd)


def sent(server):
    """Return the messages of the assistant that were sent."""
    return [
        message
        for asked in server.asked
        for message in asked["messages"]
        if message["role"] == "assistant"
    ]


@pytest.mark.parametrize(
    ("names", "wants"),
    [
        (("reasoning_content",), ("reasoning_content",)),
        (("reasoning",), ("reasoning",)),
        (("reasoning", "reasoning_details"), ("reasoning_details",)),
        (("reasoning_content", "reasoning"), ("reasoning",)),
    ],
)
def test_a_refusal_teaches_once_to_send_thoughts_back(tasks, tmp_path, names, wants):
    server = thinking(names, wants)
    report, _ = evaluated(server, tasks, tmp_path / "e")
    assert report.success.value == 1.0 and len(server.asked) == 9  # one was refused
    first, *others = sent(server)
    assert not first.keys() & GIVEN.keys()
    assert len(others) == 4 and all(
        {name: message[name] for name in names} == {n: GIVEN[n] for n in names}
        for message in others
    )
    assert (
        report.usage["reasoning"] == f"sent back: the server refused a request without {wants[0]}"
    )
    assert json.loads((tmp_path / "e" / "eval.json").read_text())["usage"] == report.usage
    rows = list(read_sealed(tmp_path / "e" / "requests.jsonl"))
    assert [row["learned"]["returned"] for row in rows if "learned" in row] == ["RECEIVED"]


@pytest.mark.parametrize(
    "words",
    [
        "The `{}` in the thinking mode must be passed back to the API.",
        "thinking is enabled but {} is missing in assistant tool call message at index 2",
        "messages.1: {} is required for assistant messages with tool calls",
        "Field required: messages[1].{}",
    ],
)
def test_a_server_may_ask_in_its_own_words(tasks, words):
    report, _ = evaluated(thinking(words=words), tasks)
    assert report.success.value == 1.0


@pytest.mark.parametrize("concurrency", [1, 8])
def test_never_and_always_are_kept(tasks, concurrency):
    server = thinking()
    report, _ = evaluated(server, tasks, return_reasoning="always", concurrency=concurrency)
    assert (report.success.value, len(server.asked)) == (1.0, 8) and "reasoning" not in report.usage
    server = thinking()
    with pytest.raises(NoScore, match="it wants thoughts back: add --return-reasoning always"):
        evaluated(server, tasks, return_reasoning="never", concurrency=concurrency)
    assert not any(message.keys() & GIVEN.keys() for message in sent(server))


def test_many_at_a_time_learn_too(tasks):
    report, _ = evaluated(thinking(), tasks, concurrency=8)
    assert report.success.value == 1.0


def test_a_server_that_wants_none_gets_none(tasks, tmp_path):
    server = thinking(wants=())
    report, _ = evaluated(server, tasks, tmp_path / "e")
    assert report.success.value == 1.0 and "reasoning" not in report.usage
    assert not any(message.keys() & GIVEN.keys() for message in sent(server))
    assert "return_reasoning" not in json.loads((tmp_path / "e" / "settings.json").read_text())


def test_a_turn_without_thoughts_gets_an_empty_one_where_the_server_insists(tasks):
    server = thinking(some=lambda number: number % 2 == 1)
    report, _ = evaluated(server, tasks)
    assert report.success.value == 1.0
    assert {message["reasoning_content"] for message in sent(server)[-3:]} <= {
        "",
        GIVEN["reasoning_content"],
    }


def test_thoughts_that_do_not_help_are_not_learned(tasks):
    def odd(number, asked):
        if asked["messages"][-1]["role"] == "tool":
            return kept(b'{"error": "thinking: a signature is missing"}', "400 Bad Request")
        return right(completion(multiply(asked) | GIVEN))

    server = Odd(odd)
    with pytest.raises(NoScore, match="a signature is missing"):
        evaluated(server, tasks)
    assert len(server.asked) == 4 + 2 * 4  # each is tried with thoughts once


@pytest.mark.parametrize("rows", range(1, 11))
def test_a_resumed_evaluation_has_the_same_messages(tasks, tmp_path, rows):
    """Wherever it was killed: before the server refused, between the refusal and the next answer, and behind it."""
    whole = thinking()
    evaluated(whole, tasks, tmp_path / "e")
    report = json.loads((tmp_path / "e" / "eval.json").read_text())
    (tmp_path / "e" / "trees.jsonl").rename(tmp_path / "whole.jsonl")
    requests = tmp_path / "e" / "requests.jsonl"
    lines = requests.read_bytes().splitlines(keepends=True)
    requests.write_bytes(b"".join(lines[:rows]))
    server = thinking()
    again, _ = evaluated(server, tasks, tmp_path / "e", resume=True)
    assert (tmp_path / "e" / "trees.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert again.usage == report["usage"]
    first = lines[: min(rows, len(lines))]
    assert len(server.asked) == len(lines) - len(first) + (
        rows == 2
    )  # a refusal alone is asked for again
    answered = [asked for asked in whole.asked if asked in server.asked]
    assert answered == server.asked


def test_a_signature_goes_back_with_its_call():
    extra = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    code = json.dumps({"code": "print(6*7)"})

    def odd(number, asked):
        calls = [one for message in asked["messages"] for one in message.get("tool_calls", ())]
        if any(one.get("extra_content") != extra for one in calls):
            words = "Function call is missing a thought_signature in functionCall parts."
            return kept(
                json.dumps([{"error": {"code": 400, "message": words}}]).encode(), "400 Bad Request"
            )
        said = (
            {"content": "\\boxed{42}"}
            if calls
            else {"tool_calls": [{**call("python", code), "extra_content": extra}]}
        )
        return right(completion(said))

    server = Odd(odd)
    with server.run() as url:
        endpoint = Endpoint(EndpointOptions(model="m", base_url=url, retries=0, timeout=5.0))
        tree = play(make("turngym/MathPython-v0", max_turns=3), EndpointPlayer(endpoint, 0), 0)
        endpoint.close()
    assert tree.leaves[0].stop == "answered" and len(server.asked) == 3


def test_thoughts_of_an_environment_without_tools_go_back_too(tasks, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = thinking(wants=())
    with server.run() as url:
        options = EndpointOptions(
            model="m", base_url=url, return_reasoning="always", tool_calls="text", timeout=5.0
        )
        endpoint = Endpoint(options)
        server.odd = lambda number, asked: right(
            completion({"content": "look", "reasoning_content": f"{KEY}?"})
        )
        play(make("turngym/Household-v0", max_turns=3), EndpointPlayer(endpoint, 0), 0)
        endpoint.close()
    assert [message["reasoning_content"] for message in sent(server)] == ["…?"] * 3


@pytest.mark.parametrize(
    "words",
    [
        "property 'reasoning_content' is unsupported",
        "messages[3].reasoning: reasoning is not supported with this model",
        "tool_choice 'required' is incompatible with thinking enabled",
        "Unknown field reasoning_content",
        "reasoning_effort is required",
        "Missing required parameter: 'model'",
        "temperature must be 1",
    ],
)
def test_other_errors_ask_for_no_thoughts(words):
    assert error_page(400, json.dumps({"error": {"message": words}})).wants_thoughts == ""


def test_a_server_that_refuses_thoughts_says_how_to_send_none(tasks):
    def odd(number, asked):
        if any("reasoning_content" in message for message in asked["messages"]):
            words = "'messages.2' : property 'reasoning_content' is unsupported"
            return kept(json.dumps({"error": {"message": words}}).encode(), "400 Bad Request")
        return right(completion(multiply(asked) | GIVEN))

    with pytest.raises(NoScore, match="add --return-reasoning never, which sends no thoughts back"):
        evaluated(Odd(odd), tasks, return_reasoning="always")
