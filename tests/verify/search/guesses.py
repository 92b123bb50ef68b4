"""What an agent without the tool could say: ways to guess, tried on another split than they learned from."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from turngym.envs.question.env import Grader
from turngym.envs.tasks import Task
from turngym.tests.verify.rows import Row
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.retriever import Passage

NEED = 0.98  # share of the questions that a guess must not answer
LONGEST = 5  # words of a string of the question

Guess = Callable[
    [str], Sequence[str]
]  # a question to what is said; one of several that is right counts


def guesses(
    learned: Sequence[Task], asked: Sequence[Task], titles: Sequence[str], seed: int
) -> dict[str, Guess]:
    """Return the ways to guess: constants, what was learned of train, strings of the question, titles."""
    common = Counter(task.gold for task in learned).most_common(1)[0][0]
    best = Counter(task.gold for task in asked).most_common(1)[0][0]
    alike = defaultdict[str, Counter[str]](Counter)
    for task in learned:
        alike[_frame(task.prompt)][task.gold] += 1
    nearest = BM25([Passage(str(i), "", task.prompt) for i, task in enumerate(learned)])
    named = BM25([Passage(str(i), title, title) for i, title in enumerate(titles)])
    drawn = random.Random(f"guesses {seed}")

    def near(question: str) -> list[str]:
        return [learned[int(one.id)].gold for one in nearest.search(question, 1)]

    def frame(question: str) -> list[str]:
        return [answer for answer, _ in alike[_frame(question)].most_common(1)]

    return {
        "the one constant that is right most often": lambda _: [best],
        "the most frequent answer of train": lambda _: [common],
        "the most frequent answer of train to what begins alike": frame,
        "the answer of the most similar question of train": near,
        "any string of the question": _strings,
        "the title most like the question": lambda question: [
            one.title for one in named.search(question, 1)
        ],
        "a title at random": lambda _: [drawn.choice(titles)],
        "a word of a title at random": lambda _: [drawn.choice(drawn.choice(titles).split())],
    }


def guess_rows(grader: Grader, tasks: Sequence[Task], ways: Mapping[str, Guess]) -> Iterator[Row]:
    """Count for each way the questions that it does not answer."""
    for name, way in ways.items():
        right = sum(_right(grader, task, way) for task in tasks)
        note = f"{100 * right / len(tasks):.2f} % answered"
        yield Row(
            f"questions not answered without the tool by {name}",
            len(tasks) - right,
            len(tasks),
            note,
            NEED,
        )


def _right(grader: Grader, task: Task, way: Guess) -> bool:
    """Whether one of the things said is paid."""
    completions = (f"<answer>{said}</answer>" for said in way(task.prompt))
    return any(
        grader.grade(completion=text, gold=gold).score > 0
        for text in completions
        for gold in task.golds
    )


def _frame(question: str) -> str:
    """Return a question without its names."""
    return re.sub(r"\b(?!^)[A-Z]\w+( [A-Z]\w+)*", "X", question)


def _strings(question: str) -> list[str]:
    """Return all runs of a few words."""
    words = re.findall(r"\w+", question)
    return [
        " ".join(words[i : i + size])
        for size in range(1, LONGEST + 1)
        for i in range(len(words) - size + 1)
    ]
