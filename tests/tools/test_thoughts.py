"""What of a text is thought, in every spelling that is known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools.thoughts import SPELLINGS, end_of_last_thought, thought_marks, without_thoughts

MARKS = {
    "think": ("<think>", "</think>"),
    "capitals": ("<Think>", "</THINK>"),
    "thinking": ("<thinking>", "</thinking>"),
    "thought": ("<thought>", "</thought>"),
    "seed": ("<seed:think>", "</seed:think>"),
    "magistral": ("[THINK]", "[/THINK]"),
    "kimi": ("◁think▷", "◁/think▷"),
    "begin": ("<|begin_of_thought|>", "<|end_of_thought|>"),
    "harmony": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
}


def test_every_spelling_is_tried():
    assert SPELLINGS.keys() == MARKS.keys() - {"capitals"}


@pytest.mark.parametrize("name", MARKS)
def test_what_stands_outside_of_thoughts_is_said(name):
    start, end = MARKS[name]
    texts = {
        f"{start}no{end}yes": "yes",
        f"{start}\n\n{end}\n\nyes\n": "yes",
        f"{start}no{end}\n{start}no{end}yes": "yes",
        f"ye{start}no{end}s": "yes",
        f"yes\n{start}no{end}": "yes",
        f"{start}no {start}no{end} no{end}yes": "yes",  # one thought in another
        f"{start}\n{start}\nno\n{end}\n\nyes": "yes",  # opened by the template, and again by the model
        f"{start}no": "",
        f"no {start}no": "",
        f"{start}no{end}no{start}": "",
        f"{start}no{end}": "",
    }
    if name != "harmony":  # whose end other models have for other ends
        texts |= {
            f"no{end}yes": "yes",
            f"no{end}no{end}yes": "yes",
            f"{start}no{end}no{end}yes": "yes",
            f"no{end}": "",
        }
    for text, said in texts.items():
        assert without_thoughts(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  yes\n",
        "I think that <b>it</b> is so",
        "yes<|end|>",
        "< think>yes</ think>",
        "<|channel|>final<|message|>yes",
        "a thought, [think]",
        "<answer>The tag <think> opens it</answer>",
        "<answer>and </think> ends it</answer>",
        "<action>say <think>no</think></action>",
    ],
)
def test_a_text_without_thoughts_stays_as_it_is(text):
    assert without_thoughts(text) == text


def test_spellings_do_not_end_each_other():
    assert without_thoughts("<think>a</thinking>b</think>c") == "c"
    assert without_thoughts("[THINK]a</think>b[/THINK]c") == "c"
    assert without_thoughts("<think>a[/THINK]") == ""


def test_an_answer_that_is_only_mentioned_in_a_thought_is_none():
    assert (
        without_thoughts("I put it in <answer> tags.</think><answer>4</answer>")
        == "<answer>4</answer>"
    )
    assert without_thoughts("<think>is it <answer>5</think> or</answer> <answer>4</answer>") == (
        "or</answer> <answer>4</answer>"
    )


def test_the_last_thought_ends_behind_its_mark():
    texts = {"a": 0, "<think>a": 0, "<think>a</think>b": 16, "a[/THINK]b</think>c": 18}
    assert {text: end_of_last_thought(text) for text in texts} == texts


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [mark for pair in MARKS.values() for mark in pair] + ["a", " ", "<answer>", "</answer>"]
        )
    )
)
def test_what_is_said_is_said_again(pieces):
    said = without_thoughts("".join(pieces))
    assert without_thoughts(said) == said or not said
    assert said == said.strip() or not thought_marks("".join(pieces))


@pytest.mark.parametrize(
    "pieces", [*MARKS.values(), ("<answer>", "</think>"), ("<think><answer>", "</answer>")]
)
def test_long_texts_are_read_in_linear_time(pieces):
    start, end = pieces
    for text in (
        start * 20_000,
        end * 20_000,
        (start + end) * 10_000,
        start * 10_000 + end * 10_000,
        f"{start}{start}{end}" * 8_000,
    ):
        without_thoughts(text)  # quadratic work would run into the test timeout
