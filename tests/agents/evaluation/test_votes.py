"""Which answers count as one: by the environment's grader, each pair asked at most once."""

import json

import gymnasium

from turngym.agents.cli.settings import EndpointOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.scores import Episode, interval, majority, summarize
from turngym.agents.evaluation.votes import classes, same_in, spelled_alike
from turngym.envs import Outcome, TextEnv
from turngym.envs.math.grading.grader import MathGrader
from turngym.envs.question.env import QuestionEnv
from turngym.envs.registry import make
from turngym.envs.rewards import Grade
from turngym.envs.tasks import Task
from turngym.tests.support.chat_server import ChatServer

HALVES, THREES = ("½", "0.5", "\\frac12"), ("3", "3")
VALUE = {"½": 0.5, "0.5": 0.5, "\\frac12": 0.5, "3": 3.0}


class Numbers:
    """A grader that knows a few spellings of numbers."""

    def grade(self, *, completion: str, gold: str) -> Grade:
        return Grade(float(VALUE.get(completion) == VALUE[gold]), completion, "value")

    def same(self, first: str, second: str) -> bool:
        return VALUE[first] == VALUE[second]


class Spelled:
    """A grader that does not say what is the same."""

    def grade(self, *, completion: str, gold: str) -> Grade:
        return Grade(float(completion == gold), completion, "text")


class Tasks:
    name, split = "one", "test"

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Task:
        return Task(f"one-{i}", "What is a half?", "0.5")


def question(grader: object) -> QuestionEnv:
    return QuestionEnv(Tasks(), grader)


def episode(answer: str | None, won: bool) -> Episode:
    return Episode(0, Outcome.DONE, "answered", float(won), 1, False, answer=answer)


def test_answers_are_grouped_by_their_first_spelling_and_each_pair_is_compared_once():
    asked = []

    def same(first: str, second: str) -> bool:
        asked.append((first, second))
        return VALUE[first] == VALUE[second]

    assert classes([*HALVES, *THREES, *HALVES], same) == [0, 0, 0, 1, 1, 0, 0, 0]
    assert asked == [("½", "0.5"), ("½", "\\frac12"), ("½", "3")]  # equal texts are not compared
    assert classes(["3", "½", "0.5"], same) == [0, 1, 1]
    assert classes([], same) == []


def test_where_sameness_is_not_passed_on_the_first_member_of_a_class_decides():
    def near(first: str, second: str) -> bool:
        return abs(int(first) - int(second)) <= 1

    assert classes(["1", "2", "3", "4", "2"], near) == [0, 0, 1, 1, 0]


def test_answers_that_are_no_texts_are_the_same_where_they_are_written_alike():
    assert classes([["7"], 7, "7", ["7"], {"a": 1}, {"a": 1}], lambda first, second: True) == [
        0,
        1,
        2,
        0,
        3,
        3,
    ]


def test_an_environment_says_what_is_the_same_wrapped_or_not():
    env = question(Numbers())
    wrapped = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.OrderEnforcing(env))
    for one in (env, wrapped, env.fork()):
        assert same_in(one)("½", "0.5") and not same_in(one)("½", "3")
    spelled = question(Spelled())
    assert not spelled.same("½", "0.5") and spelled.same("½", "½")
    assert TextEnv().same("a", "a") and not TextEnv().same("a", "A")


def test_comparisons_are_kept():
    env, asked = question(Numbers()), []
    env.grader.same = lambda first, second: asked.append((first, second)) or True
    same = same_in(env)
    assert all(same("1", "2") for _ in range(3)) and asked == [("1", "2")]


def test_spellings_of_the_right_answer_vote_together():
    """½, 0.5 and \\frac12 are right, 3 and 3 wrong: by text the wrong one wins."""
    episodes = [
        *(episode(answer, True) for answer in HALVES),
        *(episode(answer, False) for answer in THREES),
    ]
    same = same_in(question(Numbers()))
    assert (majority(episodes, same), majority(episodes)) == (1.0, 0.0)
    assert majority(episodes[::-1], same) == 1.0
    assert majority([episode(None, False)], same) == 0.0
    assert summarize(episodes, same=same).maj == interval([1.0], 1)
    assert (
        summarize(episodes).maj == interval([0.0], 1) == summarize(episodes, same=spelled_alike).maj
    )


def test_the_math_grader_has_spellings_vote_together():
    same = same_in(make("turngym/Math-v0"))
    episodes = [
        *(episode(answer, True) for answer in HALVES),
        *(episode(answer, False) for answer in THREES),
    ]
    assert majority(episodes, same) == 1.0


def test_an_evaluation_through_an_endpoint_votes_by_the_grader(tmp_path, monkeypatch):
    """A half is said in three ways, and 3 twice."""
    says = iter(["0.5", "3", "1/2", "3", "2/4"])
    value = {"0.5": 0.5, "1/2": 0.5, "2/4": 0.5, "3": 3.0}
    monkeypatch.setattr(
        MathGrader, "same", lambda self, one, other: value[one] == value[other], raising=False
    )
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"problem": "What is a half?", "answer": "0.5"}) + "\n"
    )
    with ChatServer(lambda asked: {"content": f"\\boxed{{{next(says)}}}"}).run() as url:
        prepared = evaluate.prepare(
            "turngym/Math-v0",
            {"tasks": str(tmp_path / "tasks.jsonl"), "holdout": 0},
            episodes=1,
            samples=5,
            endpoint=EndpointOptions(base_url=url, model="m", concurrency=1),
        )
        report = evaluate.run(prepared)
    assert report.success.value == 3 / 5 and report.maj == interval([1.0], 1)
