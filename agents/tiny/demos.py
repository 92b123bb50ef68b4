"""Demonstrations for the tiny policy: mostly planted bad play around a core of good play.

The handicap is planted on purpose, so that reinforcement learning has something to select. Of the demonstrated episodes
`MIX["good"]` compute with the tool and report its result; the others answer at once with a number from the problem
(`guess`), compute with a wrong operator (`slip`), or compute rightly and then report a number from the problem
(`misread`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...envs.tasks import Task, Tasks
from ...tools import Format, ToolCall

MIX = {"good": 0.38, "guess": 0.30, "slip": 0.16, "misread": 0.16}
_OPERATOR = re.compile(r"\*\*|//|[+*%]|(?<=[\d)])-")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Demo:
    """One episode: what the agent says in each turn, and what the tool answers in between."""

    prompt: str
    says: tuple[str, ...]
    results: tuple[str, ...]


def demos(tasks: Tasks, form: Format, count: int, seed: int) -> Iterator[Demo]:
    """Yield `count` episodes of the mix on the first `count` tasks; the same arguments give the same episodes."""
    rng = random.Random(seed)
    for index in range(count):
        kind = rng.choices(list(MIX), list(MIX.values()))[0]
        yield demo(tasks[index], kind, form, rng)


def demo(task: Task, kind: str, form: Format, rng: random.Random) -> Demo:
    """Play one task in one of the ways of `MIX`."""
    if task.solution is None:
        raise ValueError(f"task {task.id} has no solution program to demonstrate")
    numbers = _NUMBER.findall(task.prompt)
    wrong = _box(rng.choice(numbers))
    if kind == "guess":
        return Demo(task.prompt, (wrong,), ())
    code = _slip(task.solution, rng) if kind == "slip" else task.solution
    call, result = form.render(ToolCall("python", {"code": code})), run(code)
    return Demo(task.prompt, (call, wrong if kind == "misread" else _box(result)), (result,))


def run(code: str) -> str:
    """Return what a generator's own `print(<expression>)` program prints."""
    expression = re.fullmatch(r"print\((.*)\)", code, re.S)
    if expression is None:
        raise ValueError(f"not a single print: {code!r}")
    return str(eval(expression[1], {"__builtins__": {}}))  # noqa: S307 (our own generator wrote it)


def _slip(code: str, rng: random.Random) -> str:
    """Return the program with one operator replaced so that it still runs and prints a whole number."""
    places = list(_OPERATOR.finditer(code))
    rng.shuffle(places)
    for place in places:
        for other in rng.sample(["+", "-", "*", "//", "%"], 5):
            if other == place[0]:
                continue
            slipped = code[: place.start()] + other + code[place.end() :]
            try:
                result = run(slipped)
            except ArithmeticError:
                continue
            if len(result) <= 8 and result != run(code):
                return slipped
    return f"print({_NUMBER.findall(code)[0]})"


def _box(value: str) -> str:
    return f"\\boxed{{{value}}}"
