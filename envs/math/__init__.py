"""Math questions: generated, from files or from known data sets, in one turn or with a Python tool over several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...tools import PythonTool, Tool
from ..question import TOOL_TIMEOUT, Grader, QuestionEnv
from ..sources import SourceOptions
from ..tasks import Tasks
from .generate import MathTasks
from .grade import MathGrader
from .sources import load

LEVELS = (1, 2)
SYSTEM = "Solve the problem. Put the final answer in \\boxed{}."
SYSTEM_TOOL = "Solve the problem with Python. Put the final answer in \\boxed{}."

__all__ = ["MathGrader", "MathTasks", "make_math", "make_math_python"]


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
    system: str = SYSTEM,
) -> QuestionEnv:
    """Make `turngym/Math-v0`: a math question answered in one turn.

    Args:
        tasks: A JSONL file of questions (`.gz` too); a data set: `gsm8k`, `math`, `math500`, `aime24`, `aime25`,
            `amc23`, `minerva`, `olympiadbench`, `dapo-math`, `deepscaler` or `owner/name` on the hub;
            `reasoning-gym:NAME` or several names with commas between them; the built-in generator when left out.
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5, one or several; generator only, 1 and 2 when left out.
        families: Which kinds of problems, one or several; generator only, all when left out.
        holdout: The share of problems kept for `valid`; of a file none when left out, of a data set without a
            split of its own for `valid` 0.05 of `train`.
        config: The part of a data set that has several.
        problem_field: The field of the problem, where it is neither `problem` nor `question`; a dot reaches into a
            nested row.
        answer_field: The field of the answer, to be named with `problem_field`.
        bad_rows: How many rows without a usable problem and gold may be left out.
        system: The system prompt.
    """
    options = SourceOptions(split, holdout, config, problem_field, answer_field, bad_rows)
    questions, grader = _questions(tasks, difficulty, families, options)
    return QuestionEnv(questions, grader, system=system)


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
    system: str = SYSTEM_TOOL,
    max_turns: int = 4,
    format: str = "hermes",
    timeout: float = 5.0,
    memory_mb: int = 512,
    level: str = "namespaces",
) -> QuestionEnv:
    """Make `turngym/MathPython-v0`: a math question, and a Python tool.

    Args:
        timeout: Seconds that a call of the tool may take.
        memory_mb: MiB that the tool may use.
        level: How the tool is isolated: `namespaces`, `landlock` or `rlimits-only`. A weaker one than asked for is
            never taken; `turngym doctor` says which ones a machine can give.

    The other arguments are those of `make_math` and of `QuestionEnv`.
    """
    tools: list[Tool] = [PythonTool(timeout=timeout, memory_mb=memory_mb, level=level)]
    options = SourceOptions(split, holdout, config, problem_field, answer_field, bad_rows)
    questions, grader = _questions(tasks, difficulty, families, options)
    return QuestionEnv(
        questions,
        grader,
        tools,
        format=format,
        system=system,
        max_turns=max_turns,
        tool_timeout=timeout + TOOL_TIMEOUT,
    )


def _questions(
    source: str | Path | None,
    difficulty: int | Sequence[int] | None,
    families: str | Sequence[str] | None,
    options: SourceOptions,
) -> tuple[Tasks, Grader]:
    grader = MathGrader()
    if source is not None:
        for name, value in (("difficulty", difficulty), ("families", families)):
            if value is not None:
                raise ValueError(
                    f"{name} is {value!r}, but the tasks come from {source}; leave it out or leave out tasks"
                )
        return load(source, replace(options, check_gold=grader.check_gold), grader)
    if options.holdout:
        raise ValueError(
            f"holdout is {options.holdout}, but generated splits share no task anyway; leave it out or name tasks"
        )
    options.refuse("the tasks are generated", "config", "problem_field", "bad_rows")
    return _generated(options.split, difficulty, families), grader


def _generated(split: str, difficulty: int | Sequence[int] | None, families: str | Sequence[str] | None) -> MathTasks:
    chosen = LEVELS if difficulty is None else difficulty
    levels = tuple(chosen) if isinstance(chosen, Sequence) else (chosen,)
    if families is None:
        return MathTasks(split, levels)
    return MathTasks(split, levels, (families,) if isinstance(families, str) else tuple(families))
