"""What servers say in place of an answer: full contexts, spent quotas and what can be done, in many servers' words."""

import json
from unittest.mock import ANY

import pytest

from turngym.agents.endpoint.advice import advice
from turngym.agents.endpoint.errors import error_in, error_in_stream, error_page

FULL = [
    "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens (4500 in the messages, 500 "
    "in the completion). Please reduce the length of the messages or completion.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 4096 tokens and "
    "your request has 4000 input tokens (512 > 4096 - 4000).",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "You passed 4097 input tokens and requested 0 output tokens. However, the model's context length is only 4096 "
    "tokens.",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Context size has been exceeded.",
    "prompt too long; exceeded max context length by 210 tokens",
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length "
    "of only 4096 tokens, which is not enough.",
    "Input is too long for requested model.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000, decrease input length or `max_tokens`",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1900 `inputs` tokens and 512 "
    "`max_new_tokens`",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "invalid params, context window exceeds limit (2013)",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "tokens in request more than max tokens allowed",
    "Prompt exceeds max length",
    "输入长度超过最大长度限制",
    "prompt token count of 200000 exceeds the limit of 128000",
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
    "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576.",
    "The conversation is too long, please start a new one.",
]
NOT_FULL = [
    "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 2000.",
    "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your "
    "message size",
    "You have exceeded the maximum tokens per day",
    "Too many tokens, please wait before trying again.",
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute.",
    "input token limit exceeded for this minute",
    "request reached organization TPD rate limit, current: 1506556, limit: 1500000",
    "Unsupported parameter: 'context_size'",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
    "Context window too small: minimum is 1000 tokens",
    "Invalid 'user': string too long. Expected a string with maximum length 64",
    "Input exceeded the limit: only 5 images are allowed",
    "tools: array too long. Expected an array with maximum length 128",
    "You exceeded your current quota, please check your plan and billing details.",
    "Your input was flagged by moderation",
    "Request Entity Too Large",
    "Provider returned error",
]
SHAPES = [
    lambda words: json.dumps(
        {"error": {"message": words, "type": "invalid_request_error", "param": None}}
    ),
    lambda words: json.dumps({"object": "error", "message": words, "code": 400}),
    lambda words: json.dumps({"detail": words}),
    lambda words: json.dumps({"error": words}),
    lambda words: json.dumps(
        {"error": {"message": "Provider error", "metadata": {"raw": json.dumps({"msg": words})}}}
    ),
    lambda words: words,
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("words", FULL)
def test_a_full_context_is_one_in_every_servers_words(words, shape):
    assert all(error_page(status, shape(words)).context_full for status in (400, 413, 422, 500))
    assert not any(
        error_page(status, shape(words)).context_full for status in (401, 402, 403, 404, 429)
    )


@pytest.mark.parametrize("status", [400, 413, 422, 429, 500])
@pytest.mark.parametrize("words", NOT_FULL)
def test_a_limit_of_another_kind_is_no_full_context(words, status):
    assert not any(error_page(status, shape(words)).context_full for shape in SHAPES)


def test_what_a_server_repeats_of_the_request_says_nothing():
    asked = [
        {
            "role": "user",
            "content": "Explain: prompt is too long. Rate limit. Insufficient balance.",
        }
    ]
    wrong = {
        "type": "missing",
        "loc": ["body", "user"],
        "msg": "Field required",
        "input": {"messages": asked},
    }
    error = error_page(422, json.dumps({"detail": [wrong]}))
    assert error.words == "missing; Field required; body; user" and error.param == "user"
    assert not (error.context_full or error.busy or error.spent)


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [
        ({"error": {"message": "Upstream error", "code": 502}}, 502, "Upstream error; 502"),
        ({"error": "overloaded"}, 0, "overloaded"),
        (
            {"code": 1113, "msg": "余额不足或无可用资源包,请充值。"},
            0,
            "1113; 余额不足或无可用资源包,请充值。",
        ),
        ({"detail": "Not enough memory"}, 0, "Not enough memory"),
        (
            {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}},
            0,
            "1004; login fail",
        ),
        ({"choices": [], "error": {"code": "429", "message": "slow"}}, 429, "429; slow"),
        ({"choices": [{"message": {}}], "error": {"message": "died"}}, 0, "died"),
        ({"object": "error", "message": "no", "code": 400}, 400, "no; 400"),
        ({"status": "queued", "id": "x"}, 0, "queued"),
        (
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid",
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ],
            400,
            ANY,
        ),
    ],
)
def test_an_error_in_an_answer_is_found_with_its_words(value, status, words):
    error = error_in(value)
    assert error is not None and (error.status, error.words) == (status, words)


@pytest.mark.parametrize(
    "value",
    [
        {"choices": [{"message": {}}]},
        {"choices": [{"message": {}}], "error": None, "code": 0, "msg": "success"},
        {
            "choices": [{"message": {}}],
            "error": {},
            "base_resp": {"status_code": 0, "status_msg": "success"},
        },
        {"id": "x", "model": "m", "choices": []},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]},
        {"choices": [{"message": {}}], "error": {"code": 0, "message": "OK"}},
        {},
        [1],
        "text",
    ],
)
def test_an_answer_without_an_error_has_none(value):
    assert error_in(value) is None


def test_an_error_in_a_stream_is_found():
    chunk = json.dumps(
        {"id": "x", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "a"}}]}
    )
    error = json.dumps({"error": {"message": "upstream died", "code": 502}})
    found = error_in_stream(
        f": OPENROUTER PROCESSING\n\ndata: {chunk}\n\ndata: {error}\n\ndata: [DONE]\n\n"
    )
    assert found is not None and (found.status, found.words) == (502, "upstream died; 502")
    assert error_in_stream(f"data: {chunk}\n\ndata: [DONE]\n\n") is None
    assert error_in_stream("data is what it is") is None


@pytest.mark.parametrize(
    ("status", "words", "spent", "busy"),
    [
        (402, "pay", True, False),
        (
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            True,
            True,
        ),
        (400, "Your credit balance is too low to access the API", True, False),
        (403, "Insufficient account balance", True, False),
        (0, "1113: 余额不足", True, False),
        (
            429,
            "You exceeded your current quota. Quota exceeded for requests per minute, limit 15",
            False,
            True,
        ),
        (400, "rate limit exceeded, try again", False, True),
        (400, "tokens per day (TPD): Limit 100000", False, True),
        (400, "invalid request", False, False),
    ],
)
def test_what_is_spent_does_not_pass_and_what_is_limited_for_a_time_does(
    status, words, spent, busy
):
    error = error_page(status, json.dumps({"error": {"message": words}}))
    assert (error.spent, error.busy) == (spent, busy)


REQUEST = {
    "model": "m",
    "messages": [],
    "tools": [{}],
    "max_tokens": 4096,
    "temperature": 1.0,
    "top_p": 0.9,
    "seed": 7,
}


@pytest.mark.parametrize(
    ("status", "error", "fix"),
    [
        (400, "Unsupported parameter: 'seed'", "; leave it out with --request seed=none"),
        (
            400,
            "Unrecognized request argument supplied: seed",
            "; leave it out with --request seed=none",
        ),
        (400, "property 'seed' is unsupported", "; leave it out with --request seed=none"),
        (
            400,
            'Unknown name "top_p": Cannot find field.',
            "; leave it out with --request top_p=none",
        ),
        (
            400,
            "'temperature' does not support 0.7. Only the default (1)",
            "; leave it out with --request temperature=none",
        ),
        (
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            "; add --request max_tokens=none max_completion_tokens=4096",
        ),
        (
            400,
            "temperature must be between 0 and 1",
            "--request temperature=VALUE, or leave it out",
        ),
        (
            400,
            "max_tokens is too large: 4096. This model supports at most 2048",
            "; take a smaller --max-tokens",
        ),
        (429, "You exceeded your current quota", "; the quota or balance is spent"),
        (402, "Payment Required", "; the quota or balance is spent"),
        (
            429,
            "Rate limit reached on tokens per min (TPM)",
            "take a smaller --concurrency, or wait, then add --resume",
        ),
        (
            404,
            "The model `m` does not exist or you do not have access to it.",
            "; check --model, which is 'm'",
        ),
        (400, "m is not a valid model ID", "; check --model, which is 'm'"),
        (404, "Not Found", "; check --model, and --base-url, which often ends in /v1"),
        (
            401,
            "no",
            "; it wants a key in the environment variable MY_KEY, which is not set; --api-key-env",
        ),
        (403, "Forbidden", "; it wants a key in the environment variable MY_KEY"),
        (413, "Request Entity Too Large", "; the request is larger than the server takes"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice', "or add --tool-calls text"),
        (400, "m does not support tools", "or add --tool-calls text"),
        (404, "No endpoints found that support tool use.", "or add --tool-calls text"),
        (400, "System role not supported", "; --option system=false sends no system prompt"),
        (
            400,
            "Missing `reasoning_content` in the assistant message",
            "add --return-reasoning always",
        ),
        (
            400,
            "something",
            "; fields of requests are changed by --request NAME=VALUE, and left out by NAME=none",
        ),
    ],
)
def test_advice_is_about_what_the_server_named(status, error, fix):
    found = advice(
        error_page(status, json.dumps({"error": {"message": error}})), REQUEST, "MY_KEY", False
    )
    assert fix in found and ("--tool-calls text" in found) == (
        "tool" in error or "reasoning" in error
    )


def test_nothing_is_advised_against_a_server_that_is_broken_or_has_other_reasons():
    assert advice(error_page(500, "oops"), REQUEST, "MY_KEY", True) == ""
    assert advice(error_page(403, "flagged by moderation"), REQUEST, "MY_KEY", True) == ""


def test_a_parameter_that_is_named_apart_is_the_one():
    error = {
        "message": "Extra inputs are not permitted",
        "type": "extra_forbidden",
        "loc": ["body", "seed"],
    }
    assert advice(error_page(422, json.dumps({"detail": [error]})), REQUEST, "", True).endswith(
        "--request seed=none"
    )
    error = {"message": "max_tokens or seed is unsupported", "param": "seed"}
    assert advice(error_page(400, json.dumps({"error": error})), REQUEST, "", True).endswith(
        "--request seed=none"
    )
