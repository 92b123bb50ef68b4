"""Two good environments to be broken in one thing each, and what the check says of them."""

import gymnasium
import pytest

from turngym.agents.check import copies
from turngym.agents.check.clauses import CLAUSES, check, run
from turngym.agents.check.episodes import Subject
from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.math.grading.grader import Grade
from turngym.envs.question.env import QuestionEnv
from turngym.envs.tasks import ListTasks, Task
from turngym.tools import Status, ToolResult, tool


class World(TextEnv):
    """A question, noise for every thought, and an answer."""

    tasks = range(1000)
    canary = ""

    def on_reset(self, rng, options):
        self.number = options.get("task", int(rng.integers(1000)))
        self.thoughts = []
        self.secret = self.canary or str(7 * self.number)
        self.task_id = f"number-{self.number}"
        return f"What is seven times {self.number}?"

    def on_step(self, text):
        if text.startswith("answer"):
            right = text == f"answer {self.secret}"
            return Reply("right" if right else "wrong", float(right), StopReason.ANSWERED)
        self.thoughts.append(len(text))
        return Reply(
            f"{sum(self.thoughts)} {self.np_random.integers(1000)}",
            info={"thoughts": len(self.thoughts)},
        )

    def gold(self):
        return [*["think"] * (2 - self.turn), f"answer {self.secret}"]

    def plant(self, canary):
        self.canary = canary
        return True


class Memory:
    """A tool with state."""

    name = "memory"

    def __init__(self, words=()):
        self.words = list(words)

    @property
    def schema(self):
        fields = {"word": {"type": "string"}, "how": {"type": "string", "enum": ["at the end"]}}
        about = {
            "name": self.name,
            "description": "d",
            "parameters": {"properties": fields, "required": [*fields]},
        }
        return {"type": "function", "function": about}

    def call(self, arguments):
        self.words.append(str(arguments.get("word"))[:9])
        return ToolResult(Status.OK, " ".join(self.words))

    def reset(self):
        self.words = []

    def fork(self):
        return type(self)(self.words)

    def close(self):
        pass


@tool
def echo(text: str, times: int | str, also: list[str], loud: bool = False) -> str:
    """Give the text back."""
    return text


class Exact:
    """A grader."""

    def grade(self, *, completion, gold):
        return Grade(float(completion == gold), completion[:50], "string")


class Quiz(QuestionEnv):
    """Questions with tools."""

    def __init__(self, tools=()):
        tasks = ListTasks(
            [Task(f"t{i}", f"Which number is {i}?", str(i), "no program") for i in range(100, 150)]
        )
        super().__init__(tasks, Exact(), [Memory(), echo, *tools])

    def gold(self):
        return [self.task.gold]


@pytest.fixture
def world():
    return World


@pytest.fixture
def quiz():
    return Quiz


@pytest.fixture
def memory():
    return Memory


@pytest.fixture
def register():
    """Register what makes an environment and return its id."""
    added = []

    def register(maker, **options):
        added.append(f"test/{maker.__name__}{len(added)}-v0")
        gymnasium.register(added[-1], entry_point=maker, **options)
        return added[-1]

    yield register
    for name in added:
        del gymnasium.registry[name]


@pytest.fixture
def broken(register, monkeypatch):
    """What every clause finds wrong with an environment, by name; vectors only in the process of the test."""
    monkeypatch.setattr(copies, "MODES", ("sync",))

    def broken(maker):
        results = check(register(maker))
        return {result.name: result.problem for result in results if not result.ok}

    return broken


@pytest.fixture
def problem(register):
    """What one clause finds wrong with an environment; empty where it finds nothing."""

    def problem(name, maker):
        clause = next(clause for clause in CLAUSES if clause.name == name)
        return run(clause, Subject(register(maker), {})).problem

    return problem
