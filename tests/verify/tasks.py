"""Golds of real task files, counted: all load, each is paid in a second written form, none for another value."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from turngym.tests.verify import constants
from turngym.tests.verify.grader.forms import FORMS, forms
from turngym.tests.verify.grader.written import clean, number, squeeze
from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.envs.math import MathGrader
    from turngym.envs.tasks import ListTasks, Task

APART: Mapping[
    str, str
] = {  # rows whose gold has no second form that could be told from a wrong answer, and why
    "olympiadbench-1965": "the gold is a formula and conditions on it in words",
    "olympiadbench-2045": "the gold is an interval with a stray letter in front",
}
PATIENCE = 60.0  # seconds an answer may take: a loaded machine is no wrong verdict


@dataclass(frozen=True)
class Tasks:
    """Golds of task files: loaded, paid in second forms, not for other values; answers that need no question."""

    data: Path = Path("../shared/data/math")
    """Folder of JSONL files, `.gz` too."""
    seed: int = 0
    """Chooses the rows where not all are taken."""
    most: int | None = None
    """Rows of a file that are taken for each form; all when left out."""
    entries: int = 8
    """Tasks of each data set of reasoning-gym."""
    constant: int = 8
    """Tasks of each source at which answers are played that need no question."""
    questions: Path = Path("../shared/data/search_qa")
    """Folder of JSONL files of questions of fact."""

    def rows(self) -> Iterator[Row]:
        """Yield three rows a file, then what is said of all."""
        from turngym.envs.math import MathGrader
        from turngym.envs.rows import SourceOptions, load_jsonl

        files = sorted(
            path for path in self.data.glob("*") if path.name.endswith((".jsonl", ".jsonl.gz"))
        )
        if not files:
            raise FileNotFoundError(
                f"{self.data} has no .jsonl or .jsonl.gz file; name the folder with --data"
            )
        count = Count(MathGrader(PATIENCE, shortcuts=False))
        for path in files:
            tasks = load_jsonl(path, SourceOptions(check_gold=count.grader.check_gold))
            yield Row(f"{path.name}: rows that load", len(tasks), _lines(path))
            yield from count.file(tasks, self._chosen(tasks))
        yield from count.all()
        if self.entries:
            yield reasoning(self.entries)
        if self.constant:
            yield from constants.rows(self.seed, self.constant, self.data, self.questions)

    def _chosen(self, tasks: ListTasks) -> Sequence[int]:
        """Return the rows to take: of each form as many as there may be, in an order that `seed` draws."""
        if self.most is None:
            return range(len(tasks))
        order = sorted(
            range(len(tasks)), key=lambda i: hashlib.blake2b(f"{self.seed} {i}".encode()).digest()
        )
        taken, times = [], Counter[str]()
        for i in order:
            made = forms(tasks[i].gold)
            if any(times[name] < self.most for name in made) or tasks[i].id in APART:
                times.update(made.keys())
                taken.append(i)
        return taken


class Count:
    """Counts verdicts on the golds of files."""

    def __init__(self, grader: MathGrader) -> None:
        self.grader = grader
        self.made, self.paid = Counter[str](), Counter[str]()  # by form
        self.apart: dict[str, bool] = {}  # whether a row that is listed has no form that is paid
        self._verdicts: dict[tuple[str, str], bool] = {}

    def file(self, tasks: ListTasks, chosen: Sequence[int]) -> Iterator[Row]:
        """Yield how many golds are paid in all their second forms, and how many wrong answers are not paid."""
        short, wrong, of = [], [], 0
        for i in chosen:
            task = tasks[i]
            accepted = self._accepts(task)
            if task.id in APART:
                self.apart[task.id] = not accepted
            elif not accepted:
                short.append(task.id)
            for other in _wrong(tasks, i):
                of += 1
                if self._pays(task.gold, other):
                    wrong.append(task.id)
        rows = [i for i in chosen if tasks[i].id not in APART]
        listed = f"{len(chosen) - len(rows)} listed apart" if len(rows) < len(chosen) else ""
        what = f"{tasks.name}: golds paid in every second form"
        yield Row(what, len(rows) - len(short), len(rows), first(short) or listed)
        yield Row(f"{tasks.name}: wrong answers not paid", of - len(wrong), of, first(wrong))

    def all(self) -> Iterator[Row]:
        """Yield how many forms occur, and how many listed rows are rightly so."""
        note = ", ".join(
            f"{name} {self.paid[name]}/{self.made[name]}" for name in sorted(self.made)
        )
        yield Row("forms that occur (paid/made)", len(self.made), len(FORMS), note)
        if self.apart:
            why = "; ".join(f"{name}: {APART[name]}" for name in self.apart)
            yield Row(
                "rows listed apart that have no second form",
                sum(self.apart.values()),
                len(self.apart),
                why,
            )

    def _accepts(self, task: Task) -> bool:
        made = forms(task.gold)
        verdicts = {name: self._pays(task.gold, form) for name, form in made.items()}
        if task.id not in APART:
            self.made.update(made.keys())
            self.paid.update(name for name, paid in verdicts.items() if paid)
        return bool(made) and all(verdicts.values())

    def _pays(self, gold: str, answer: str) -> bool:
        if (gold, answer) not in self._verdicts:
            grade = self.grader.grade(completion=f"It is \\boxed{{{answer}}}.", gold=gold)
            self._verdicts[gold, answer] = grade.score == 1.0
        return self._verdicts[gold, answer]


def reasoning(entries: int) -> Row:
    """Count the golds of reasoning-gym that its own scorers pay, in a process that has not made them."""
    from turngym.envs.math.reasoning.grader import ReasoningGrader
    from turngym.envs.math.reasoning.tasks import ReasoningTasks, offered

    grader, short, names = ReasoningGrader(PATIENCE), [], offered()
    for name in names:
        tasks = ReasoningTasks([name], "test")
        for i in range(entries):
            task = tasks[i]
            if grader.grade(completion=f"\\boxed{{{task.gold}}}", gold=task.gold).score < 1:
                short.append(task.id)
    of = len(names) * entries
    note = first(short) or f"{len(names)} data sets"
    return Row("reasoning-gym: golds paid by its own scorers", of - len(short), of, note)


def _wrong(tasks: ListTasks, i: int) -> Iterator[str]:
    """Yield the gold of task `i` with another last digit, and a second form of the next gold of another value."""
    gold = tasks[i].gold
    if digit := re.search(r"\d(?=\D*$)", gold):
        yield f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}"
    for step in range(1, len(tasks)):
        other = tasks[(i + step) % len(tasks)].gold
        made = list(forms(other).values())
        if made and _value(other) != _value(gold):
            yield made[i % len(made)]
            return


def _value(gold: str) -> Fraction | str:
    """Return what tells a gold from others: its number without name, unit and percent sign, or its text."""
    made = forms(gold)
    text = made.get("value") or made.get("no unit") or clean(gold)
    value = number(re.sub(r"\s*\\?%$", "", text))
    return squeeze(text) if value is None else value


def _lines(path: Path) -> int:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return sum(1 for line in text.splitlines() if line.strip())
