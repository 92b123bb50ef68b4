"""The key in what a server says, whole, in part and in other spellings."""

import base64
import json
from urllib.parse import quote

import pytest

from turngym.agents.endpoint.secret import MASK, Secret

KEY = "sk-CANARY/0123+456789abcdef=="


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    return Secret("MY_KEY")


SPELLINGS = [
    KEY,
    f"Bearer {KEY}",
    *(KEY[:length] for length in (8, 9, 20, 28)),
    *(KEY[start:] for start in (1, 5, 17)),
    KEY[5:20],
    quote(KEY, safe=""),
    quote(KEY),
    quote(KEY, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d"),
    KEY.replace("/", "\\/"),
    KEY.encode().hex(),
    KEY.encode().hex().upper(),
    *(
        base64.b64encode(before + KEY.encode() + b" and more").decode()
        for before in (b"", b"x", b"Bearer ", b"user:")
    ),
    base64.urlsafe_b64encode(KEY.encode()).decode(),
    base64.b64encode(KEY.encode()).decode()[:24],
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("around", ["{}", "the key {} was sent", "a{}b{}c"])
def test_no_spelling_stays_in_a_message_or_an_answer(secret, spelling, around):
    text = around.format(*[spelling] * 2)
    for hidden in (secret.hidden(text), secret.hidden_in({"a": [text, 1, None]})["a"][0]):
        assert MASK in hidden
        assert (
            not any(KEY[start : start + 12] in hidden for start in range(len(KEY) - 11))
            and KEY[:8] not in hidden
        )
        assert not any(
            spelling[start : start + 16] in hidden for start in range(len(spelling) - 15)
        )


def test_what_is_no_part_of_a_key_stays(secret):
    answer = {
        "choices": [{"message": {"content": "sk-CANA, 0123 and 456789: \\boxed{456789}"}}],
        "sk-CANARY": 1,
    }
    assert secret.hidden_in(answer) == answer
    assert secret.hidden_in({f"a {KEY} b": 1}) == {f"a {MASK} b": 1}


def test_a_short_key_is_a_placeholder(monkeypatch):
    monkeypatch.setenv("MY_KEY", "EMPTY")
    secret = Secret("MY_KEY")
    assert secret.hidden_in({"a": "the set is EMPTY"}) == {"a": "the set is EMPTY"}
    assert secret.hidden("Bearer EMPTY") == f"Bearer {MASK}"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert Secret("OPENAI_API_KEY").hidden("text") == "text"


def test_a_number_of_eight_digits_is_an_answer_also_where_a_key_begins_with_it(monkeypatch):
    monkeypatch.setenv("MY_KEY", "12345678901234567890")
    secret = Secret("MY_KEY")
    assert secret.hidden_in("\\boxed{12345678}") == "\\boxed{12345678}"
    assert secret.hidden_in("\\boxed{1234567890123}") == f"\\boxed{{{MASK}}}"


def test_a_long_answer_takes_little_time_and_stays_equal(secret):
    text = json.dumps(list(range(20_000)))
    assert secret.hidden_in(text) == text
