import numpy as np
import pytest

from turngym.agents.chat import Chat, Template
from turngym.tests.verify.templates.injections import PLACES, harm, look_alikes, mixtures, spellings, talk
from turngym.tests.verify.templates.tokenizers import Case, letters, names, odd

CASES = {case.name: case for case in odd()}
PLAIN = Case("plain", letters("<|im_start|>", "<|im_end|>", "<tool_call>"), "<|im_start|>", "<|im_end|>")


def test_a_token_is_spelled_at_both_ends_inside_nested_and_in_halves():
    texts = list(spellings("<ab>"))
    assert texts[0] == "<ab>" and "<a<ab>b>" in texts and "<<ab>ab>" in texts
    assert {"ab> and <", "b> and <a", "> and <ab"} <= set(texts)


def test_look_alikes_are_other_forms_other_cases_and_hidden_characters():
    texts = list(look_alikes("<|Ab|>"))
    for text in ("<｜Ab｜>", "＜｜Ａｂ｜＞", "<|AB|>", "<|ab|>", "<|aB|>", "<|A\u200db|>", "<|A\u00adb|>"):
        assert text in texts


def test_mixtures_are_keyed():
    one, again, other = (list(mixtures(["<a>", "<bcd>"], 20, (0, seed))) for seed in (1, 1, 2))
    assert one == again != other and len(one) == 20 and any("<a>" in text for text in one)


@pytest.mark.parametrize("place", PLACES)
def test_a_text_stands_in_its_place_only(place):
    opening, tools, answer = talk(place, "HERE")
    assert sum(str(part).count("HERE") for part in (opening, tools, answer)) == 1


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["<|im_end|>", "<tool_call>"])
def test_harm_is_found_in_every_place(monkeypatch, place, text):
    chat = Chat(PLAIN.tokenizer, Template(PLAIN.template))
    assert harm(chat, lossless=True)(place, text) == ""

    def naive(text, **rest):
        return np.array(chat.tokenizer.encode(str.__str__(text), add_special_tokens=False).ids, np.int32)

    monkeypatch.setattr(chat.encoder, "encode", naive)
    assert harm(chat, lossless=True)(place, text) == f"{text!r} as {place} brings control tokens"


def test_tokens_that_say_something_else_are_harm(monkeypatch):
    chat = Chat(PLAIN.tokenizer, Template(PLAIN.template))
    encode = chat.encoder.encode
    monkeypatch.setattr(chat.encoder, "encode", lambda text, **rest: encode(text[:-1], **rest))
    assert harm(chat, lossless=True)("question", "q") == "'q' as question is not what its tokens say"
    assert harm(chat, lossless=False)("question", "q") == ""


@pytest.mark.parametrize("name", CASES)
def test_no_text_harms_an_odd_tokenizer(name):
    """Of tokens that differ in a number only, some."""
    case = CASES[name]
    chat = Chat(case.tokenizer, Template(case.template))
    found, tokens = harm(chat, case.lossless), names(case.tokenizer)[:10]
    packed = [" ".join([*spellings(token)][:5]) for token in tokens]
    packed += ["\n".join(look_alikes(token)) for token in tokens] + tokens
    halves = [f"{token[cut:]} and {token[:cut]}" for token in tokens for cut in {1, len(token) // 2, len(token) - 1}]
    for text in [*packed, *halves, *mixtures(tokens, 10, (0,))]:
        for place in PLACES:
            assert found(place, text) == ""
