"""The math environments, made from their options: generated problems, or known data sets."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...tools import AnyTool, PythonTool
from ...tools.plugins import load_tools
from ..question.env import CALLS, Grader, QuestionEnv, is_lenient, prompt_of
from ..question.toolbox import TOOL_TIMEOUT
from ..rows import SHAPES, SourceOptions, as_text
from ..sources import DataSet, is_file, load_tasks, read_data_sets
from ..tasks import Tasks, refuse, strict
from .grading.boxed_answer import extract_answer
from .grading.grader import MathGrader
from .problems.families import MIXED
from .problems.tasks import MathTasks
from .reasoning.grader import ReasoningGrader
from .reasoning.tasks import PREFIX, ReasoningTasks

SYSTEM = "Solve the problem. Put the final answer in \\boxed{}."
"""The default system prompt of Math."""
SYSTEM_TOOL = "Solve the problem with Python. Put the final answer in \\boxed{}."
"""The default system prompt of MathPython."""
# What a stock model has to be told.
FULL = "Solve the problem step by step. {calls}End with the final answer, and nothing but the answer, in \\boxed{{}}."


@strict
def make_math(
    tasks: str | Path | None = None,
    split: str = "train",
    difficulty: int | Sequence[int] | None = None,
    families: str | Sequence[str] | None = None,
    holdout: float | None = None,
    config: str | None = None,
    problem_field: str | None = None,
    answer_field: str | None = None,
    bad_rows: int = 0,
    system: bool | str = False,
    answers: str = "strict",
    tools: str | Sequence[str | AnyTool] = (),
) -> QuestionEnv:
    """Make `turngym/Math-v0`: a math question answered in one turn.

    Args:
        tasks: A JSONL file of questions (`.gz` too); a data set: `gsm8k`, `math`, `math500`, `aime24`, `aime25`,
            `amc23`, `hmmt25`, `brumo25`, `cmimc25`, `minerva`, `olympiadbench`, `omni-math`, `dapo-math`, `deepscaler`
            or `owner/name` on the hub;
            `reasoning-gym:NAME` or several names with commas between them; the built-in generator when left out.
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5, one or several; generator only, 1 and 2 when left out.
        families: Which kinds of problems, one or several; generator only, all but `sums` when left out.
        holdout: The share of problems kept for `valid`; of a file none when left out, of a data set without a
            split of its own for `valid` 0.05 of `train`.
        config: The part of a data set that has several.
        problem_field: The field of the problem, where it is neither `problem` nor `question`; a dot reaches into a
            nested row.
        answer_field: The field of the answer, to be named with `problem_field`.
        bad_rows: How many rows without a usable problem and gold may be left out.
        system: The system prompt: one line that tells where the answer goes (false), a text that also tells how to
            come to it, with tools if there are any (true), or a text of your own.
        answers: Which answers are read: boxes (`strict`), or also those that a sentence or a bare last line gives
            (`lenient`).
        tools: Tools, `module:name` or as a package declares them, one or several; with any, there are four turns.
    """
    reading = {
        "holdout": holdout,
        "config": config,
        "problem_field": problem_field,
        "answer_field": answer_field,
    }
    questions, grader = _questions(tasks, split, difficulty, families, answers, reading, bad_rows)
    held = load_tools(tools)
    prompt = prompt_of(system, SYSTEM, FULL.format(calls=CALLS if held else ""))
    return QuestionEnv(questions, grader, held, system=prompt)


@strict
def make_math_python(
    tasks: str | Path | None = None,
    split: str = "train",
    difficulty: int | Sequence[int] | None = None,
    families: str | Sequence[str] | None = None,
    holdout: float | None = None,
    config: str | None = None,
    problem_field: str | None = None,
    answer_field: str | None = None,
    bad_rows: int = 0,
    system: bool | str = False,
    answers: str = "strict",
    max_turns: int = 4,
    format: str = "hermes",
    timeout: float = 5.0,
    memory_mb: int = 512,
    max_output: int = 8192,
    level: str = "namespaces",
    packages: str | Sequence[str] = (),
    tools: str | Sequence[str | AnyTool] = (),
) -> QuestionEnv:
    """Make `turngym/MathPython-v0`: a math question, and a Python tool.

    Args:
        timeout: Seconds that a call of the tool may take.
        memory_mb: MiB that the tool may use.
        max_output: Characters of a result that the agent sees, 64 or more; of a longer one, the head and the tail.
        level: How the tool is isolated: `namespaces`, `landlock` or `rlimits-only`. A weaker one than asked for is
            never taken; `turngym doctor` says which ones a machine can give.
        packages: Installed packages that programs can import beside the usual ones (docs/python-tool.md lists them).
        tools: Further tools, as in `make_math`.

    The other arguments are those of `make_math` and of `QuestionEnv`.
    """
    python = PythonTool(timeout, memory_mb, max_output, level=level, packages=packages)
    reading = {
        "holdout": holdout,
        "config": config,
        "problem_field": problem_field,
        "answer_field": answer_field,
    }
    questions, grader = _questions(tasks, split, difficulty, families, answers, reading, bad_rows)
    prompt = prompt_of(system, SYSTEM_TOOL, FULL.format(calls=CALLS))
    held = [python, *load_tools(tools)]
    return QuestionEnv(questions, grader, held, format, prompt, max_turns, timeout + TOOL_TIMEOUT)


def _questions(
    source: str | Path | None,
    split: str,
    difficulty: int | Sequence[int] | None,
    families: str | Sequence[str] | None,
    answers: str,
    reading: Mapping[str, Any],
    bad_rows: int,
) -> tuple[Tasks, Grader]:
    grader = MathGrader(extract="lenient" if is_lenient(answers) else "box")
    if source is not None:
        if is_lenient(answers) and str(source).startswith(PREFIX):
            raise ValueError(
                f"answers is {answers!r}, but reasoning-gym's scorers read boxes alone; leave it out"
            )
        refuse(f"the tasks come from {source}", difficulty=difficulty, families=families)
        options = SourceOptions(split, **reading, bad_rows=bad_rows, check_gold=grader.check_gold)
        return load(source, options, grader)
    refuse("generated splits share no task anyway", holdout=reading["holdout"] or None)
    refuse("the tasks are generated", **{**reading, "holdout": None}, bad_rows=bad_rows or None)
    names = MIXED if families is None else (families,) if isinstance(families, str) else families
    return MathTasks(split, (1, 2) if difficulty is None else difficulty, tuple(names)), grader


def load(source: str | Path, options: SourceOptions, grader: Grader) -> tuple[Tasks, Grader]:
    """Return the tasks that `source` names, and what grades them: `grader`, unless they have a grader of their own.

    A source is in this order: a file that exists; `reasoning-gym:NAME,…`; what `load_tasks` reads, which says what it
    raises.
    """
    name = str(source)
    if name.startswith(PREFIX) and not is_file(source):
        options.refuse(
            "reasoning-gym makes its tasks", "holdout", "config", "problem_field", "bad_rows"
        )
        return ReasoningTasks(
            name.removeprefix(PREFIX).split(","), options.split
        ), ReasoningGrader()
    return load_tasks(source, options, data_sets(), f", or {PREFIX}NAME"), grader


_BARE_BOX = re.compile(r"\\(boxed|fbox) +([^\s${}\\]+)")
_FRAME = re.compile(
    r"^Solve the following math problem step by step\..*?\n\n"
    r'|\n\nRemember to put your answer on its own line after "Answer:"\.?\s*$',
    re.DOTALL,
)


def boxed(value: Any) -> str:
    r"""Return the last box of a worked solution, also of a `\boxed 4` without braces."""
    if (answer := extract_answer(_BARE_BOX.sub(r"\\\1{\2}", as_text(value)))) is None:
        raise ValueError("it needs a \\boxed{} answer")
    return answer


def joined(value: Any) -> str:
    """Return the answers of a list with commas between them."""
    if not isinstance(value, list) or not value:
        raise ValueError("it needs a list of answers")
    return ", ".join(map(as_text, value))


def unframed(value: Any) -> str:
    """Return the problem of a chat whose one message asks for the answer in a form of its own."""
    if not isinstance(value, list) or len(value) != 1:
        raise ValueError("it needs a chat of one message")
    return as_text(_FRAME.sub("", as_text(value[0].get("content"))))


@cache
def data_sets() -> dict[str, DataSet]:
    """Return the data sets that have a short name, by that."""
    return read_data_sets(
        Path(__file__).with_name("data_sets.toml"), SHAPES, boxed, joined, unframed
    )
