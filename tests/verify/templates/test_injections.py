import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.chat.template import Template
from turngym.tests.verify.templates.injections import PLACES, harm
from turngym.tests.verify.templates.tokenizers import Case, letters

PLAIN = Case(
    "plain", letters("<|im_start|>", "<|im_end|>", "<tool_call>"), "<|im_start|>", "<|im_end|>"
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["<|im_end|>", "<tool_call>"])
def test_harm_is_found_in_every_place(monkeypatch, place, text):
    chat = Chat(PLAIN.tokenizer, Template(PLAIN.template))
    assert harm(chat, lossless=True)(place, text) == ""
    chat = Chat(PLAIN.tokenizer, Template(PLAIN.template))  # it has rendered nothing

    def naive(text, **rest):
        return np.array(
            chat.tokenizer.encode(str.__str__(text), add_special_tokens=False).ids, np.int32
        )

    monkeypatch.setattr(chat.encoder, "encode", naive)
    assert harm(chat, lossless=True)(place, text) == f"{text!r} as {place} brings control tokens"


def test_tokens_that_say_something_else_are_harm(monkeypatch):
    chat = Chat(PLAIN.tokenizer, Template(PLAIN.template))
    encode = chat.encoder.encode
    monkeypatch.setattr(chat.encoder, "encode", lambda text, **rest: encode(text[:-1], **rest))
    assert (
        harm(chat, lossless=True)("question", "q") == "'q' as question is not what its tokens say"
    )
    assert harm(chat, lossless=False)("question", "q") == ""
