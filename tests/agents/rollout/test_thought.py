"""Where thought ends in a turn, with real formats and a real tokenizer."""

import numpy as np
import pytest

from turngym.agents.chat.chat import Chat
from turngym.agents.rollout.path import thought_length, tokens_before
from turngym.agents.source import TINY
from turngym.tools import FORMATS, get_format

CALL = {
    "hermes": 'Let me see. <tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>',
    "tags": "Let me see. <python>1</python>",
    "fenced": "Let me see. ```python\n1\n```",
}


@pytest.mark.parametrize("name", sorted(set(CALL) & set(FORMATS)))
def test_thought_ends_where_the_first_call_begins(name):
    text, format = CALL[name], get_format(name)
    assert text[thought_length(text, format.begins(text)) :].startswith(text.removeprefix("Let me see. "))
    hidden = f"<think>{text}</think>{text}"
    assert thought_length(hidden, format.begins(hidden)) == len(f"<think>{text}</think>Let me see. ")


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("go to desk 1", ""),
        ("<think>where?</think>go to desk 1", "<think>where?</think>"),
        ("6 times 7 is \\boxed{42}", "6 times 7 is "),
        ("\\boxed{1} or rather \\boxed{42}.", "\\boxed{1} or rather "),
        ("<think>\\boxed{1}</think>so it is 42", "<think>\\boxed{1}</think>"),
        ("so <answer>42</answer>", "so "),
    ],
)
def test_without_a_call_thought_ends_at_the_box_or_with_the_last_thought_in_tags(text, thought):
    assert text[: thought_length(text, get_format("tags").begins(text))] == thought


def test_tokens_are_counted_up_to_the_one_that_holds_the_character():
    tokenizer = Chat.from_folder(TINY).tokenizer
    for text in ("Let me see: héllo 🍎 \\boxed{42}", "a", "42 is it"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for place in range(len(text) + 1):
            count = tokens_before(np.array(ids, np.int32), place, tokenizer.decode)
            assert len(tokenizer.decode(ids[:count])) <= place or count == 0
            assert count == len(ids) or len(tokenizer.decode(ids[: count + 1])) > place
