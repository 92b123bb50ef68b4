"""Answers that need no question, played against every source of tasks: what one earns is known, or it is a fault."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import turngym
from turngym.tests.verify.rows import Row, Tally

if TYPE_CHECKING:
    from turngym.envs.question.env import Grader
    from turngym.envs.tasks import Task, Tasks

CONSTANTS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "10",
        "12",
        "100",
        "1000",
        "-2",
        "0.5",
        "1/2",
        "0.0",
        "+0",
    ),
    *(
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-1e999",
        "nan+nanj",
        "infinity",
        "∞",
        r"\infty",
        r"-\infty",
        "float('nan')",
    ),
    *(
        "complex(nan)",
        "oo",
        "zoo",
        "9" * 400,
        r"\text{NaN}",
        "0/0",
        r"\frac{0}{0}",
        "1/0",
        r"\emptyset",
        r"\mathbb{R}",
    ),
    *(
        "yes",
        "no",
        "Yes",
        "No",
        "true",
        "false",
        "True",
        "False",
        "Yes No",
        "True False",
        "yes or no",
        "Yes/No",
    ),
    *(
        "A",
        "B",
        "C",
        "D",
        "E",
        "x",
        "i",
        "",
        " ",
        "...",
        "-",
        "?",
        "!!!",
        "()",
        "[]",
        "{}",
        "[[]]",
        '""',
        r"\{\}",
    ),
    *(
        "unknown",
        "none",
        "None",
        "N/A",
        "null",
        "noanswer",
        "impossible",
        "infeasible",
        "I don't know",
        "undefined",
    ),
    *(
        "0 1 2 3 4 5 6 7 8 9",
        "0,1,2,3,4,5,6,7,8,9",
        "1,2,3",
        "1 2 3",
        "[0]",
        "(0,0)",
        "1 or 0",
        "a, b",
        "x=1 or x=2",
    ),
    *(
        "12:00",
        "00:00:00",
        "Monday",
        "red",
        "up",
        "left",
        "knight",
        "the",
        r"\pm 1",
        r"[0, 10^9]",
        r"(-\infty, \infty)",
    ),
    *(
        r"\boxed{}",
        "0x0",
        "0j",
        "1_0",
        r"\infty^0",
        "50%",
        "2020",
        "1900",
        "0 0",
        "x = 0",
        ",".join(map(str, range(100))),
    ),
)
PATIENCE = 2.0  # seconds that an answer may take; one that takes longer is not paid
LEAST = 0.1  # what an answer may earn, but where another floor is declared
UNEVEN = {"number-theory": 0.2}  # remainders and last digits are small numbers
LONGEST = (
    60  # characters of an answer that is read off a prompt: prose is slow to read as a formula
)
# Lines of numbers, or of the marks of a board: a matrix that the answer may be.
_BLOCK = re.compile(r"(?m)(?:^[ \t]*[\d_.#*XO-]+(?:[ \t]+[\d_.#*XO-]+)*[ \t]*(?:\n|\Z))+")
RARE = 1e-6  # how seldom an answer that earns its floor on the whole is counted as a fault


def on_the_prompt(prompt: str) -> Iterator[tuple[str, str]]:
    """Yield answers read off a prompt without thought, and where each stands: numbers, words, lines, a matrix."""
    kinds = {
        "number": re.findall(r"-?\d+(?:\.\d+)?", prompt),
        "quotient": re.findall(r"\d+ ?/ ?\d+", prompt),
        "name": re.findall(r"\b[A-Z]\w+\b", prompt),
        "word": re.findall(r"[^\W_][\w'-]*", prompt),
        "quote": re.findall(r"['\"`]([^'\"`\n]{1,80})['\"`]", prompt),
        "line": [line.strip() for line in prompt.splitlines() if line.strip()],
    }
    for kind, found in kinds.items():
        for place in (0, 1, 2, -1, -2, -3):
            if found and -len(found) <= place < len(found):
                yield f"{kind} {place}", found[place]
        if found:
            yield f"most frequent {kind}", Counter(found).most_common(1)[0][0]
    if blocks := _BLOCK.findall(prompt):
        yield "block", max(blocks, key=len).strip()
    if numbers := kinds["number"]:
        yield "largest number", max(numbers, key=float)
        yield "smallest number", min(numbers, key=float)
        yield "count of numbers", str(len(numbers))


class Source(NamedTuple):
    """Tasks, their grader, other tasks of the same kind, and what an answer without the question may earn."""

    name: str
    tasks: Tasks
    others: Tasks
    grader: Grader
    floor: float


def rows(seed: int, count: int, math: Path, qa: Path) -> Iterator[Row]:
    """Yield a row for each kind of source, of each of which `count` tasks are played."""
    yield row("reasoning-gym", reasoning(), seed, count, "\\boxed{@}")
    yield row("generated math", generated(), seed, count, "\\boxed{@}")
    yield row("math files", files(math), seed, count, "\\boxed{@}")
    yield row("questions of fact", questions(qa), seed, count, "<answer>@</answer>")


def reasoning() -> Iterator[Source]:
    """Yield the data sets of reasoning-gym."""
    from turngym.envs.math.reasoning.grader import ReasoningGrader
    from turngym.envs.math.reasoning.tasks import ReasoningTasks, offered

    grader, known = ReasoningGrader(PATIENCE), floors()
    for name in offered():
        yield Source(
            name,
            ReasoningTasks([name], "test"),
            ReasoningTasks([name]),
            grader,
            known.get(name, LEAST),
        )


def floors() -> dict[str, float]:
    """Return what the page on the grader says that an answer earns, by data set of reasoning-gym."""
    page = (Path(turngym.__file__).parent / "docs" / "grader.md").read_text("utf-8")
    return {
        name: int(percent) / 100
        for name, percent in re.findall(r"^\| `(\w+)` \| (\d+)% \|", page, re.MULTILINE)
    }


def generated() -> Iterator[Source]:
    """Yield each family of generated math, at all difficulties."""
    from turngym.envs.math import MathGrader, MathTasks
    from turngym.envs.math.problems.families import FAMILIES
    from turngym.envs.math.problems.tasks import DIFFICULTIES

    for family in FAMILIES:
        test, train = (MathTasks(split, DIFFICULTIES, (family,)) for split in ("test", "train"))
        yield Source(family, test, train, MathGrader(PATIENCE), UNEVEN.get(family, LEAST))


def files(folder: Path) -> Iterator[Source]:
    """Yield the files of math tasks."""
    from turngym.envs.math import MathGrader
    from turngym.envs.rows import load_jsonl

    grader = MathGrader(PATIENCE)
    for path in sorted(
        path for path in folder.glob("*") if path.name.endswith((".jsonl", ".jsonl.gz"))
    ):
        tasks = load_jsonl(path)
        yield Source(path.name, tasks, tasks, grader, LEAST)


def questions(folder: Path) -> Iterator[Source]:
    """Yield the invented worlds, by hops, and the files of questions."""
    from turngym.envs.qa import InventedWorld, QAGrader
    from turngym.envs.qa.make import load_questions
    from turngym.envs.qa.world import HOPS
    from turngym.envs.rows import SourceOptions

    for size in ("tiny", "small"):
        world = InventedWorld(0, size)
        for hops in HOPS:
            yield Source(
                f"{size} world, {hops} hops",
                world.tasks("test", hops),
                world.tasks("train", hops),
                QAGrader(),
                LEAST,
            )
    for path in sorted(folder.glob("*.jsonl")):
        # Some golds are punctuation alone.
        tasks = load_questions(path, SourceOptions(bad_rows=1000))
        yield Source(path.name, tasks, tasks, QAGrader(), LEAST)


def row(what: str, sources: Iterable[Source], seed: int, count: int, form: str) -> Row:
    """Play all answers at all sources; a case is an answer at a source, a fault one that earns more than the floor."""
    tally, names, most = (
        Tally(f"{what}: answers that need no question earn no more than the floor"),
        0,
        (0.0, ""),
    )
    for source in sources:
        names += 1
        last = len(source.tasks)
        indices = random.Random(f"{source.name} {seed}").sample(range(last), min(count, last))
        means = earned(source.tasks, source.grader, indices, frequent(source.others, 100), form)
        limit = may_earn(source.floor, len(indices))
        for answer, mean in means.items():
            fault = f"earns {mean:.2f}, floor {source.floor:g}" if mean > limit else ""
            tally.add(f"{answer[:40]} at {source.name}", fault)
            most = max(most, (mean, f"{answer[:40]} at {source.name}"))
    return tally.row(f"{names} sources; most: {most[0]:.2f} for {most[1]}")


def frequent(tasks: Tasks, count: int, most: int = 4) -> list[str]:
    """Return the golds that the first `count` tasks share most often."""
    golds = Counter(str(tasks[i].gold) for i in range(min(count, len(tasks))))
    return [gold for gold, _ in golds.most_common(most)]


def answers(task: Task, others: Sequence[str], before: str) -> Mapping[str, str]:
    """Return all answers to try at a task, by what they are: those of the table, off the prompt, golds of others."""
    table = {repr(constant): constant for constant in (*CONSTANTS, *others)}
    shown = {
        what: one
        for what, one in on_the_prompt(task.prompt)
        if len(one) <= LONGEST or what == "block"
    }
    return table | shown | {"the gold before": before}


def earned(
    tasks: Tasks, grader: Grader, indices: Sequence[int], others: Sequence[str], form: str
) -> dict[str, float]:
    """Return what each answer earns on the tasks in the mean; `form` puts it into a completion in place of `@`."""
    sums, before = dict[str, float](), ""
    for i in indices:
        task, paid = tasks[i], dict[str, float]()
        for what, answer in answers(task, others, before).items():
            if answer not in paid:
                text = form.replace("@", answer)
                scores = [grader.grade(completion=text, gold=gold).score for gold in task.golds]
                paid[answer] = 0.0 if task.restates(answer) else max(scores)
            sums[what] = sums.get(what, 0.0) + paid[answer]
        before = str(task.gold)
    return {what: total / len(indices) for what, total in sums.items()}


def may_earn(floor: float, count: int) -> float:
    """Return the mean over `count` tasks that an answer right in a share `floor` of all seldom goes beyond."""
    for hits in range(count + 1):
        more = range(hits + 1, count + 1)
        if sum(comb(count, n) * floor**n * (1 - floor) ** (count - n) for n in more) < RARE:
            return hits / count
    return 1.0
