import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.grading.boxed_answer import extract_answer, last_answer, lenient_answer
from turngym.tools.thoughts import without_thoughts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} no, \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"$\boxed{\boxed{3}}$", r"\boxed{3}"),
        (r"\boxed{a \boxed{3} b} and so on", r"a \boxed{3} b"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"f = { x, \boxed{5}", "5"),
        (r"a } b \boxed{5}", "5"),
        ("\\\\boxed{840}", "840"),
        ("line \\\\\\boxed{840}", "840"),
        ("\\boxed{\n12\n}", "12"),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"<think>a</think><think>\boxed{1}</think>\boxed{3}", "3"),
        (r"no opening \boxed{1} </think> \boxed{2}", "2"),
        (r"\boxed{4} but \boxed{5", "4"),
        (r"\boxed{42}<|im_end|>", "42"),
        (r"$\boxed{(1, 2)} \quad \text{and} \quad \boxed{(3, 4)}$", "(1, 2), (3, 4)"),
        (r"$\boxed{1}$, $\boxed{2}$ or $\boxed{3}$.", "1, 2, 3"),
        (r"$\boxed{1}$, that is, $\boxed{2}$", "2"),
        ("\\boxed{1}\n\n\\boxed{2}", "2"),
        (r"\boxed{1}, \boxed{1}", "1"),
        (r"\boxed{1}, \boxed{a \boxed{3}}", r"1, a \boxed{3}"),
        ("```python\nprint(r'\\boxed{1}')\n``` so \\boxed{2}", "2"),
        ("\\boxed{2} as here: ```python\n# \\boxed{1}\npass\n```", "2"),
    ],
)
def test_the_last_outermost_box_after_the_reasoning_is_the_answer(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "the answer is 42",
            r"\boxed",
            r"\boxed notation",
            r"\boxed{42",
            r"\boxed{}",
            r"\boxed{  }",
            r"\boxed{1}\boxed{}",
        ),
        r"<think>\boxed{1}",
        r"<think>a</think>\boxed{1}<think>",
        r"<think>\boxed{1}</think> so it is 1",
        r"\boxedx{3}",
        r"\boxed\{3\}",
        "```python\n# \\boxed{7}\npass\n```",
        "```\n\\boxed{7}",
        "see ```\\boxed{7}``` there",
    ],
)
def test_there_is_no_answer_without_a_closed_box_that_holds_something(text):
    assert extract_answer(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *(
            ("The answer is #### 42", "42"),
            ("#### -1,234.50", "-1,234.50"),
            ("so 3/4 of them.", "3/4"),
            ("up 5%.", "5%"),
        ),
        *(
            (r"It is $x+1$. I hope so.", "x+1"),
            (r"It is \( 9 \).", "9"),
            ("\\[\n 9 \n\\]", "9"),
            ("$$(1,2)$$ !", "(1,2)"),
        ),
        *(
            (r"from \$5 to \$10", "10"),
            ("as $a$, 12 in all", "12"),
            ("in 3 of $k$", "k"),
            ("<think>4</think> 5", "5"),
        ),
        *(
            (r"\boxed{4} rather than 5", "4"),
            (r"\boxed{} and 5", None),
            ("no idea", None),
            ("<think>4", None),
            ("", None),
        ),
        ("x2 and v1.5", None),
    ],
)
def test_without_a_box_the_last_formula_or_number_can_be_the_answer(text, answer):
    assert last_answer(text) == answer


@pytest.mark.parametrize(
    "piece", ["\\(", "$", "$$", "\\[", "1,", "1/", "```", "\\boxed{1},", "\\boxed{", "<think>"]
)
def test_hostile_text_is_searched_in_linear_time(piece):
    last_answer(piece * 200_000)  # in quadratic time this would outlast the test's timeout


def test_hostile_text_takes_linear_time():
    count = 200_000
    assert extract_answer(r"\boxed{" * count) is None
    assert extract_answer(r"\boxed{" * count + "1" + "}" * count) is not None
    assert extract_answer("\\boxed" + " " * count + "}" * count + r"\boxed{1}") == "1"


@given(st.text(alphabet="\\{}boxedf 12</think>", max_size=60), st.from_regex(r"\A[0-9a-z+]{1,9}\Z"))
def test_a_box_at_the_end_is_found_behind_any_text(noise, content):
    if (
        re.search(r"\\(boxed|fbox)\s*[{\d]", noise)
        or "<think>" in noise.rpartition("</think>")[2]
        or noise.endswith("\\")
    ):
        return
    assert extract_answer(f"{noise} \\boxed{{{content}}}") == content


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "a"),
        ("<think>a</think>b", "b"),
        ("a</think>b</think>c", "c"),
        ("<think>a", ""),
        ("<think>a</think>b<think>", ""),
        ("```\nb\n```", "```\nb\n```"),
    ],
)
def test_what_is_said_behind_the_reasoning(text, said):
    assert without_thoughts(text) == said


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *(
            (r"Hence \boxed 8", "8"),
            (r"Hence $\boxed 8$.", "8"),
            (r"Hence $\boxed8$.", "8"),
            (r"\boxed -12.", "-12"),
        ),
        *(
            (r"\boxed 1,234, as asked", "1,234"),
            (r"so \boxed C.", "C"),
            (r"\fbox 3/4", "3/4"),
            (r"\boxed{7} \\ \boxed 8", "8"),
        ),
        *(
            (r"\boxed 7, no: \boxed{8}", "8"),
            (r"\boxed{7} stands in the \boxed of it", "7"),
            (r"\boxed{\boxed 8}", r"\boxed 8"),
        ),
    ],
)
def test_a_box_may_hold_a_number_or_a_capital_without_braces(text, answer):
    assert extract_answer(text) == answer
    assert lenient_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *(
            ("<answer>5</answer>", "5"),
            ("<answer>\n5\n</answer>", "5"),
            ("<answer>4</answer> <answer>5</answer>", "5"),
        ),
        *(
            ("The answer is 4. <answer>5</answer>", "5"),
            (r"<answer>4</answer> \boxed{5}", "5"),
            ("<answer></answer>", None),
        ),
        ("Final Answer: The final answer is $5$. I hope it is correct.", "$5$"),
        *(
            ("The answer is 5. Wait, the answer is 6.", "6"),
            ("The answer to the problem is 5.", "5"),
        ),
        *(
            ("The answer is 5. But actually, the correct answer is 6.", "6"),
            (r"Thus the answer is \[ 42 \]", r"\[ 42 \]"),
        ),
    ],
)
def test_an_answer_is_also_read_from_a_tag_or_a_sentence_behind_another(text, answer):
    assert lenient_answer(text) == answer
