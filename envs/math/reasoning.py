"""Tasks that reasoning-gym makes and scores (extra `tasks`): logic, games, arithmetic and more.

Several answers to one task can be right, so reasoning-gym's own scorers decide, in a child process: some of them
evaluate the answer as code. Only a full score is paid, as many of them give parts of it for any answer at all.
"""

import functools
import math
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...tools.process import Deadline, Died, Pool
from ..sources import library
from ..tasks import SPLITS, Task, check_index, check_known, check_split
from .extract import extract_answer
from .grade import Grade, ask
from .numbers import read_number

PREFIX = "reasoning-gym:"
_PACKAGE = "reasoning_gym", f"{PREFIX}…"
SIZE = 1_000_000  # tasks of a data set in each split; entry i of a split is drawn with the seed of the split + i
MAX_ANSWER = 20_000
REFUSED: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("refused.toml").read_text("utf-8"))  # and why
_FULL = {"polynomial_equations": 0.99}  # its scorer measures distances, and rounding is no mistake
# Scorers that evaluate the answer; what they get may call nothing but these functions.
_EVALUATING = {"binary_matrix", "countdown", "n_queens", "simple_integration", "spiral_matrix", "string_insertion"}
_KEYWORD = re.compile(r"(?<![A-Za-z])(?:or|and|not|if|else|for|in|is|lambda)(?![A-Za-z])")
_NOT_FINITE = frozenset({"nan", "inf", "infinity", "infty", "oo", "zoo", "nanj", "infj", "infinityj", "∞"})
_HUGE = re.compile(r"[0-9.]+[eE]\+?[0-9]{2,}|[0-9]{309,}")
_FUNCTION = re.compile(r"a?(?:sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|Abs|\d+", re.ASCII)


class Gold(str):
    """An answer of reasoning-gym, which knows the entry that it answers: (data set, seed, index)."""

    entry: tuple[str, int, int]


class ReasoningTasks:
    """Tasks of one or several data sets of reasoning-gym, in turn.

    Args:
        names: The data sets.
        split: `train`, `valid` or `test`: their entries are drawn with other seeds, though easy tasks may be equal.

    Raises ValueError where reasoning-gym is missing or has no such data set, or its tasks cannot be used.
    """

    def __init__(self, names: Sequence[str], split: str = "train") -> None:
        self.split = check_split(split)
        self.names = tuple(name.strip() for name in names)
        self.name = PREFIX + ",".join(self.names)
        known = offered()
        for name in self.names:
            if name in REFUSED:
                raise ValueError(f"reasoning-gym's {name!r} cannot be used: {REFUSED[name]}")
            check_known(name, known, f"reasoning-gym has no data set {name!r}", "it has")

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        index, turn = divmod(i, len(self.names))
        name, seed = self.names[turn], SPLITS.index(self.split) * SIZE
        entry = _entries(name, seed)[index]
        gold = Gold(entry["answer"])
        gold.entry = (name, seed, index)
        return Task(f"{name}-{self.split}-{index}", entry["question"], gold, category=name)


class ReasoningGrader:
    """Grades answers to reasoning-gym's tasks with its own scorers, from any thread; only a full score is paid.

    A scorer may take `deadline` seconds for an answer; after that the answer earns 0.
    """

    def __init__(self, deadline: float = 10.0) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        self.deadline = deadline

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Score the last `\boxed{}`; a gold that is no `Gold` is compared as text. Raises `GraderFailure`."""
        if (answer := extract_answer(completion)) is None:
            return Grade(0.0, None, "no-answer")
        plain = re.sub(r"^\\text ?\{([^{}]*)\}$", r"\1", answer)
        if not isinstance(gold, Gold):
            return Grade(float(plain == gold.strip()), answer, "string")
        if refusal := _refusal(plain, gold):
            return Grade(0.0, answer, "failed", refusal)
        name, seed, index = gold.entry
        request = {"dataset": name, "seed": seed, "size": SIZE, "index": index, "answer": plain}
        try:
            reply = ask(_workers, "reasoning-gym", request, self.deadline)
        except Deadline:
            return Grade(0.0, answer, "timeout", f"scoring took over {self.deadline:g} s")
        except Died as error:
            return Grade(0.0, answer, "failed", f"scoring killed the grader's process: {error}")
        how = "failed" if "error" in reply else "reasoning-gym"
        return Grade(float(reply["score"] >= _FULL.get(name, 1.0)), answer, how, reply.get("error"))


_workers = Pool(Path(__file__).with_name("reasoning_worker.py"), memory_mb=4096, grown_mb=1024)


def offered() -> tuple[str, ...]:
    """Return the data sets whose tasks can be used; raise ValueError where reasoning-gym is missing."""
    return tuple(sorted(set(library(*_PACKAGE).factory.DATASETS) - set(REFUSED)))


def _refusal(answer: str, gold: Gold) -> str | None:
    """Return why an answer is not passed to a scorer; None if it is."""
    if len(answer) > MAX_ANSWER:
        return f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
    if _infinite(answer) and not _infinite(gold):
        return "the box holds no finite value; it needs the value"
    if gold.entry[0] in _EVALUATING:
        called = re.findall(r"(\w+)\s*\(", answer)
        if re.search(r"[\\#]|__|[])}]\s*\(", answer) or not all(map(_FUNCTION.fullmatch, called)):
            return "the box holds code; it needs the answer alone"
        if _KEYWORD.search(answer):
            return "the box holds several answers; it needs the one answer"
    try:  # a number for a number: some scorers look for its digits alone
        right, given = read_number(gold), read_number(answer)
    except ZeroDivisionError:
        return "the answer divides by zero"
    opposite = right is not None and given is not None and (right.value < 0) != (given.value < 0)
    return "the number has the other sign" if opposite else None


def _infinite(text: str) -> bool:
    """Return whether a text holds `nan`, `inf` and the like as a word of its own, or a number beyond all doubles."""
    text = unicodedata.normalize("NFKC", text)
    if not _NOT_FINITE.isdisjoint(re.findall(r"[a-z]+|∞", text.lower())):
        return True
    return any(number.count(".") < 2 and math.isinf(float(number)) for number in _HUGE.findall(text))


@functools.lru_cache(maxsize=64)
def _entries(name: str, seed: int) -> Any:
    return library(*_PACKAGE).create_dataset(name, seed=seed, size=SIZE)
