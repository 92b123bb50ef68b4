"""Several named rewards of an episode: what is paid, what is kept, and what is refused where they are made."""

import copy
import json
import math

import pytest

from turngym.envs import EnvFailure, Reply, Rewards, Rubric, StopReason, TextEnv
from turngym.envs.math.grading.grader import Grade
from turngym.envs.question.env import QuestionEnv
from turngym.envs.question.graders import FunctionGrader
from turngym.envs.tasks import ListTasks, Task

NAN = float("nan")


class Walk(TextEnv):
    """Pays every step by two names, and the end by one more."""

    def on_reset(self, rng, options):
        return "go"

    def on_step(self, text):
        if text == "fail":
            return Reply("", reward=Rewards({"goal": 1.0}), stop=StopReason.INFRA_ERROR)
        if text == "heavy":
            return Reply("", reward=Rewards({"step": 1.0}, {"step": 2.0}))
        if text == "rest":
            return Reply("resting")
        rewards = {"step": 1.0, "words": len(text)} | ({"goal": 1.0} if text == "end" else {})
        weights = {"step": -0.25, "words": 0.0}
        return Reply(
            "ok", reward=Rewards(rewards, weights), stop=StopReason.GOAL if text == "end" else None
        )


def test_what_is_paid_is_the_weighted_sum():
    made = Rewards({"correct": 1, "format": 0.5, "length": 12.0}, {"format": 0.2, "length": 0.0})
    assert made == 1.1 and isinstance(made, float) and json.dumps(made) == "1.1"
    assert made.rewards == {"correct": 1.0, "format": 0.5, "length": 12.0}
    assert made.weights == {"correct": 1.0, "format": 0.2, "length": 0.0}
    other = copy.deepcopy(made)
    assert (other, other.rewards, other.weights) == (made, made.rewards, made.weights)


@pytest.mark.parametrize(
    ("rewards", "weights", "message"),
    [
        ({}, None, "no reward is named; name at least one"),
        ({"": 1.0}, None, "a reward is called ''; a name has letters"),
        ({"two words": 1.0}, None, "a reward is called 'two words'"),
        ({3: 1.0}, None, "a reward is called 3"),
        ({"a": NAN}, None, "reward 'a' is nan; it must be a finite number"),
        ({"a": "1"}, None, "reward 'a' is '1'; it must be a finite number"),
        ({"a": None}, None, "reward 'a' is None; it must be a finite number"),
        ({"a": 1.0}, {"a": NAN}, "the weight of 'a' is nan; it must be a finite number"),
        (
            {"a": 1.0},
            {"b": 1.0},
            "there is a weight for 'b', which is no reward; the rewards are a",
        ),
    ],
)
def test_what_is_wrong_is_said_where_they_are_made(rewards, weights, message):
    with pytest.raises(ValueError, match=message):
        Rewards(rewards, weights)


def test_an_episode_keeps_the_sums_by_name_and_the_weights():
    env = Walk()
    env.reset(seed=0)
    first, rest, last = (env.step(text) for text in ("a", "rest", "end"))
    assert [step[1] for step in (first, rest, last)] == [-0.25, 0.0, 0.75]
    assert first[4]["rewards"] == {"step": 1.0, "words": 1.0} == rest[4]["rewards"]
    assert last[4]["rewards"] == {"step": 2.0, "words": 4.0, "goal": 1.0}
    assert last[4]["weights"] == {"step": -0.25, "words": 0.0, "goal": 1.0}
    assert sum(env.turn_rewards) == sum(
        last[4]["weights"][name] * value for name, value in last[4]["rewards"].items()
    )
    env.reset(seed=0)
    assert "rewards" not in env.step("rest")[4] and env.step("b")[4]["rewards"] == {
        "step": 1.0,
        "words": 1.0,
    }


def test_what_a_caller_changes_in_info_changes_no_episode():
    env = Walk()
    env.reset(seed=0)
    env.step("a")[4]["rewards"]["step"] = 9.0
    env.step("rest")[4]["rewards"]["step"] = 9.0
    assert (
        env.fork().step("end")[4]["rewards"]["step"] == 2.0 == env.step("end")[4]["rewards"]["step"]
    )


def test_a_failed_episode_has_no_rewards():
    env = Walk()
    env.reset(seed=0)
    env.step("a")
    _, reward, _, _, info = env.step("fail")
    assert math.isnan(reward) and not {"rewards", "weights"} & info.keys()


def test_a_reward_has_one_weight():
    env = Walk()
    env.reset(seed=0)
    env.step("a")
    with pytest.raises(
        ValueError, match=r"the reward 'step' weighs 2, and -0\.25 in an earlier turn"
    ):
        env.step("heavy")


def test_the_digest_of_an_episode_covers_what_each_reward_was():
    class Other(Walk):
        def on_step(self, text):
            reply = super().on_step(text)
            return Reply(
                reply.text,
                reward=Rewards({"step": 1.0, "words": 7.0}, {"step": -0.25, "words": 0.0}),
            )

    env = Walk()
    env.reset(seed=0)
    env.step("a")
    assert Walk().restore(env.snapshot()) == "ok"
    with pytest.raises(RuntimeError, match="replay of 1 actions diverged"):
        Other().restore(env.snapshot())


# --- rubrics


class Exact:
    def grade(self, *, completion, gold):
        if "down" in completion:
            raise EnvFailure("the grader is down")
        answer = completion.partition("answer: ")[2] or None
        return Grade(float(answer == gold), answer, "string" if answer else "no-answer")


def brief(completion, gold):
    return float(len(completion) < 20)


def asked(rubric, text, aliases=()):
    env = QuestionEnv(ListTasks([Task("t", "q", "four", aliases=aliases)]), rubric)
    env.reset(seed=0)
    return env.step(text)


def test_a_rubric_pays_the_weighted_sum_of_its_graders_and_keeps_each():
    rubric = Rubric({"correct": Exact(), "brief": brief}, weights={"brief": 0.25})
    for text, reward, parts in (
        ("answer: four", 1.25, {"correct": 1.0, "brief": 1.0}),
        ("after long thought: answer: four", 1.0, {"correct": 1.0, "brief": 0.0}),
        ("answer: five", 0.25, {"correct": 0.0, "brief": 1.0}),
    ):
        _, paid, *_, info = asked(rubric, text)
        assert (paid, info["rewards"], info["weights"]) == (
            reward,
            parts,
            {"correct": 1.0, "brief": 0.25},
        )
        assert (info["score"], info["how"], info["stop"]) == (reward, "string", "answered")
        assert json.loads(json.dumps(info)) == info
    assert asked(rubric, "hm")[4]["stop"] == "no_answer"
    assert asked(rubric, "answer: IV", aliases=("IV",))[4]["rewards"]["correct"] == 1.0


def test_functions_alone_make_a_rubric_too():
    info = asked(Rubric({"brief": brief}), " short ")[4]
    assert (info["answer"], info["rewards"], info["stop"]) == ("short", {"brief": 1.0}, "answered")
    assert asked(Rubric({"brief": brief}), "  ")[4]["stop"] == "no_answer"


def test_a_grader_that_cannot_run_leaves_no_rewards():
    info = asked(Rubric({"brief": brief, "correct": Exact()}), "down")[4]
    assert info["outcome"] == "infra_error" and "rewards" not in info


def test_what_is_wrong_with_a_rubric_is_said_where_it_is_made_or_names_the_reward():
    with pytest.raises(
        ValueError, match="there is a weight for 'brif', which is no reward; the rewards are brief"
    ):
        Rubric({"brief": brief}, weights={"brif": 1.0})
    with pytest.raises(ValueError, match="no reward is named"):
        Rubric({})
    with pytest.raises(
        TypeError, match="brief is 3; a rubric takes graders, and functions of completion and gold"
    ):
        Rubric({"brief": 3})
    with pytest.raises(ValueError, match="reward 'odd' is nan; it must be a finite number"):
        asked(Rubric({"odd": lambda completion, gold: NAN}), "x")


def test_the_expert_of_a_rubric_of_functions_answers_with_the_plain_gold():
    def right(answer, gold):
        return answer == gold

    for graders, gold in (
        ({"right": right, "brief": brief}, "four"),
        ({"right": FunctionGrader(right)}, "four"),
        ({"right": right, "correct": Exact()}, "\\boxed{four}"),
    ):
        env = QuestionEnv(ListTasks([Task("t", "q", "four")]), Rubric(graders))
        env.reset(seed=0)
        assert env.gold() == [gold]


def test_a_function_of_a_rubric_that_raises_is_named_with_its_place_and_without_the_gold():
    own = {}
    exec(compile("def right(answer, gold):\n    raise KeyError(gold)\n", "own.py", "exec"), own)
    info = asked(Rubric({"brief": brief, "exact": own["right"]}), "five")[4]
    message = (
        "the reward exact raises KeyError: '(the gold)' (own.py, line 2); it must grade any text"
    )
    assert (info["outcome"], info["error"]) == ("infra_error", message)
