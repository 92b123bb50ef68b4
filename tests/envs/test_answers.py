"""Answers that are read leniently: what a sentence or a bare last line gives, where nothing is marked as the answer."""

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.qa import QAGrader
from turngym.envs.registry import make

STRICT, LENIENT = MathGrader(), MathGrader(extract="lenient")
READ = {  # completion: answer
    "The answer is 22.": "22",
    "the final answer is 22": "22",
    "So, the answer is 22!": "22",
    "Thus the correct answer is $22$.": "$22$",
    r"Therefore, the answer is \(22\).": r"\(22\)",
    "We get 4 * 5 + 2. The answer is 22. I hope it is correct.": "22",
    "The answer is 22.\n\nThat is the number of eggs which are left over.": "22",
    "The answer is **22**.": "22",
    "**Answer:** 22": "22",
    "Answer: 22": "22",
    "- Final answer: 22.0": "22.0",
    "The answer is:\n\n22": "22",
    "#### 22": "22",
    "4 * 5 + 2 = 22\n#### 22": "22",
    "22": "22",
    "I add them.\n22": "22",
    "I add them.\n\n**22**\n": "22",
    "I add them.\nx = 22.": "x = 22",
    "$$\n22\n$$": "22",
    "<think>Is the answer 7?</think>22": "22",
    "The answer is 7. The answer is 22.": "22",
    "Answer: 7\nI made a mistake.\nAnswer: 22": "22",
    "The answer is 22 eggs.": "22 eggs",
}
UNPAID = (
    "The answer is not 22",
    "I don't think the answer is 22.",
    "Not sure, but the answer is 22.",
    "If the answer is 22 then x is 3, which is wrong, so it must be something else.",
    "Is the answer 22?",
    "The answer is 22, right?",
    "22?",
    "Maybe 22",
    "It is 22, I think, or a bit more",
    "The answer is 22 or 23.",
    "The answer is 20, 21, 22.",
    "The answer is either 22",
    "The answer is about 22.",
    "The answer is 22 if x is 3.",
    "The answer is between 21 and 23.",
    "The answer is 20 + 2.",
    "The answer is 22. The answer is 23.",
    "20, 21, 22",
    "11 * 2 = 22",
    "1. 20\n2. 22",
    "- 22",
    "```\n22\n```",
    "<think>22",
    "<think>The answer is 22.</think>",
    "The answer is 22 \\boxed{",
    "The answer is 22. \\boxed{23}",
    "\\boxed{23}\nThe answer is 22.",
    "\\boxed{}\n22",
    "",
    "...",
)
FACTS = {  # completion: what it earns where the gold is Paris
    "The answer is Paris.": 1,
    "So the answer is: **Paris**": 1,
    "Answer: the Paris": 1,
    "#### Paris": 1,
    "Paris": 1,
    "I looked it up.\n\nParis.": 1,
    "Answer: Rome\nAnswer: Paris": 1,
    "The answer is not Paris.": 0,
    "Answer: Paris or Rome": 0,
    "It is Paris, the capital of France, as far as I know": 0,
    "Is it Paris?": 0,
    "<answer>Rome</answer>\nThe answer is Paris.": 0,
    "\\boxed{Rome}\nParis": 0,
    "<answer>Paris\nParis": 0,
    "<answer></answer>Paris": 0,
    "<think>Paris": 0,
}


@pytest.mark.parametrize("text", READ)
def test_an_answer_without_a_box_is_read(text):
    """Its worth is that of the same answer in a box."""
    found = LENIENT.grade(completion=text, gold="22")
    assert (found.score, found.answer) == (1.0, READ[text])
    assert STRICT.grade(completion=text, gold="22").answer is None
    assert STRICT.grade(completion=f"\\boxed{{{READ[text]}}}", gold="22").score == 1.0


@pytest.mark.parametrize("text", UNPAID)
def test_what_gives_no_answer_or_several_is_not_paid(text):
    found = LENIENT.grade(completion=text, gold="22")
    assert found.score == 0.0
    if found.answer is not None:
        assert STRICT.grade(completion=f"\\boxed{{{found.answer}}}", gold="22").score == 0.0


@pytest.mark.parametrize(
    "text", ["\\boxed{22}", "no \\boxed{21} \\boxed{22}", "22 \\boxed{1}, \\boxed{22}", "\\boxed{x"]
)
def test_a_box_is_read_as_always(text):
    for gold in ("22", "1", "x"):
        assert LENIENT.grade(completion=text, gold=gold) == STRICT.grade(completion=text, gold=gold)


@pytest.mark.parametrize("text", FACTS)
def test_answers_to_questions_of_fact(text):
    assert QAGrader(lenient=True).grade(completion=text, gold="Paris").score == FACTS[text]
    assert QAGrader().grade(completion=text, gold="Paris").score == 0.0


@pytest.mark.parametrize("env", ["turngym/Math-v0", "turngym/MathPython-v0", "turngym/Search-v0"])
def test_environments_read_as_they_are_asked(env):
    options = {"size": "tiny"} if "Search" in env else {}
    with pytest.raises(ValueError, match="answers is 'loose'; it must be strict or lenient"):
        make(env, answers="loose", **options)
    for answers, reward in (("strict", 0.0), ("lenient", 1.0)):
        asked = make(env, answers=answers, **options)
        asked.reset(options={"task": 0})
        assert asked.step(f"The answer is {asked.task.gold}.")[1] == reward
        asked.close()


def test_tasks_with_scorers_of_their_own_are_read_strictly():
    with pytest.raises(
        ValueError, match="answers is 'lenient', but reasoning-gym's scorers read boxes alone"
    ):
        make("turngym/Math-v0", tasks="reasoning-gym:gcd", answers="lenient")
