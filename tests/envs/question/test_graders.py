"""Plain functions as graders: what they get, what they may return, and what is no verdict."""

import math
import operator

import numpy as np
import pytest

from turngym.envs import EnvFailure, QuestionEnv, Rewards
from turngym.envs.math.grading.grader import MathGrader
from turngym.envs.question.graders import FunctionGrader, as_grader
from turngym.envs.question.toolbox import Toolbox

WARM = [{"question": "How warm is Oslo?", "answer": "-3"}]


def equal(answer, gold):
    return answer == gold


def test_a_function_gets_the_answer_without_blanks_and_the_gold():
    seen = []

    def grade(answer, gold):
        seen.append((answer, gold))
        return 0.25

    verdict = FunctionGrader(grade).grade(completion="\n -3 degrees ", gold="-3")
    assert seen == [("-3 degrees", "-3")]
    assert (verdict.score, verdict.answer, verdict.how) == (0.25, "-3 degrees", "grade")


@pytest.mark.parametrize(
    "reward", [True, False, 0, 1, 0.5, np.bool_(True), np.float32(0.5), np.int64(1)]
)
def test_a_reward_is_true_false_or_a_number_up_to_one(reward):
    score = FunctionGrader(lambda answer, gold: reward).grade(completion="a", gold="b").score
    assert type(score) in (float, np.float64) and score == reward


def test_named_rewards_stay_named():
    rewards = Rewards({"right": 1.0, "short": 0.5}, {"right": 0.5, "short": 0.5})
    assert (
        FunctionGrader(lambda answer, gold: rewards).grade(completion="a", gold="b").score
        is rewards
    )


@pytest.mark.parametrize("reward", [None, "1", 1.5, -0.1, math.nan, math.inf, [1], (True, "why")])
def test_a_verdict_that_is_no_reward_is_a_failure_that_names_the_grader(reward):
    def judge(answer, gold):
        return reward

    env = QuestionEnv(WARM, judge)
    env.reset(seed=0)
    _, paid, _, truncated, info = env.step("-3")
    assert math.isnan(paid) and truncated and info["outcome"] == "infra_error"
    assert info["error"].startswith(f"the grader judge returns {reward!r}")
    assert info["error"].endswith("return True, False or a number from 0 to 1")
    assert ("does it lack a `return`?" in info["error"]) == (reward is None)


def test_a_grader_that_raises_is_a_failure_with_its_place_and_without_the_gold():
    def judge(answer, gold):
        raise KeyError(gold)

    with pytest.raises(
        EnvFailure,
        match=r"^the grader judge raises KeyError: '\(the gold\)'.* it must grade any text$",
    ):
        FunctionGrader(judge).grade(completion="5", gold="secret-71")

    def unavailable(answer, gold):
        raise EnvFailure("the judge does not answer")

    with pytest.raises(EnvFailure, match=r"^the judge does not answer$"):
        FunctionGrader(unavailable).grade(completion="5", gold="4")


def test_an_empty_reply_is_no_answer_and_the_grader_is_not_asked():
    def judge(answer, gold):
        raise AssertionError("asked")

    env = QuestionEnv(WARM, judge)
    env.reset(seed=0)
    _, reward, _, _, info = env.step("  \n")
    assert (reward, info["stop"]) == (0.0, "no_answer")


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        (
            lambda answer: True,
            r"takes \(answer\); it is called with two texts: def grade\(answer, gold\)",
        ),
        (lambda completions, *, gold: True, "it is called with two texts"),
        (lambda gold, answer: True, "the answer comes first, then the gold"),
        (MathGrader, r"the grader is the class MathGrader; make one: MathGrader\(\)"),
        ("exact", r"the grader is 'exact'; write a function: def grade\(answer, gold\)"),
        (None, "the grader is None; write a function"),
    ],
)
def test_what_can_grade_nothing_is_refused_when_it_is_given(grader, words):
    with pytest.raises(TypeError, match=words):
        QuestionEnv(WARM, grader)


def test_an_async_function_is_refused():
    async def judge(answer, gold):
        return True

    with pytest.raises(TypeError, match="the grader judge is async; write it as a plain function"):
        as_grader(judge)


def test_functions_of_c_lambdas_and_graders_are_taken():
    assert as_grader(operator.eq).grade(completion="4", gold="4").score == 1.0
    assert (
        as_grader(lambda reply, right, strict=False: reply == right)
        .grade(completion="4", gold="4")
        .score
        == 1.0
    )
    grader = MathGrader()
    assert as_grader(grader) is grader


def test_the_expert_of_a_function_answers_with_the_plain_gold():
    def lookup(city: str) -> str:
        """Return the temperature of a city."""
        return {"Oslo": "-3"}.get(city, "unknown")

    env = QuestionEnv(WARM, equal, tools=[lookup])
    env.reset(seed=0)
    assert (
        env.gold() == ["-3"]
        and isinstance(env.toolbox, Toolbox)
        and list(env.toolbox.tools) == ["lookup"]
    )
    assert env.step("-3")[1] == 1.0
