"""Math questions: generated or from files, answered in one turn or with a Python tool over several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...tools import PythonTool, Tool
from ..question import QuestionEnv
from ..tasks import Tasks, load_jsonl
from .generate import MathTasks
from .grade import MathGrader

LEVELS = (1, 2)
SYSTEM = "Solve the problem. Put the final answer in \\boxed{}."
SYSTEM_TOOL = "Solve the problem with Python. Put the final answer in \\boxed{}."

__all__ = ["MathGrader", "MathTasks", "make_math", "make_math_python"]


def make_math(
    tasks: str | Path | None = None,
    split: str = "train",
    difficulty: int | Sequence[int] | None = None,
    families: str | Sequence[str] | None = None,
    holdout: float = 0.0,
    system: str = SYSTEM,
) -> QuestionEnv:
    """Make `turngym/Math-v0`: a math question answered in one turn.

    Args:
        tasks: A JSONL file of questions (`.gz` too); the built-in generator when left out.
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5, one or several; generator only, 1 and 2 when left out.
        families: Which kinds of problems, one or several; generator only, all when left out.
        holdout: The share of a file's problems kept for `valid`.
        system: The system prompt.
    """
    return QuestionEnv(_tasks(tasks, split, difficulty, families, holdout), MathGrader(), system=system)


def make_math_python(
    tasks: str | Path | None = None,
    split: str = "train",
    difficulty: int | Sequence[int] | None = None,
    families: str | Sequence[str] | None = None,
    holdout: float = 0.0,
    system: str = SYSTEM_TOOL,
    max_turns: int = 4,
    format: str = "hermes",
    timeout: float = 5.0,
    memory_mb: int = 512,
) -> QuestionEnv:
    """Make `turngym/MathPython-v0`: a math question, and a Python tool of `timeout` seconds and `memory_mb` MiB."""
    tools: list[Tool] = [PythonTool(timeout=timeout, memory_mb=memory_mb)]
    questions = _tasks(tasks, split, difficulty, families, holdout)
    return QuestionEnv(questions, MathGrader(), tools, format=format, system=system, max_turns=max_turns)


def _tasks(
    source: str | Path | None,
    split: str,
    difficulty: int | Sequence[int] | None,
    families: str | Sequence[str] | None,
    holdout: float,
) -> Tasks:
    if source is not None:
        for name, value in (("difficulty", difficulty), ("families", families)):
            if value is not None:
                raise ValueError(
                    f"{name} is {value!r}, but the tasks come from {source}; leave it out or leave out tasks"
                )
        return load_jsonl(source, split=split, holdout=holdout, check_gold=MathGrader().check_gold)
    if holdout:
        raise ValueError(f"holdout is {holdout}, but generated splits share no task anyway; leave it out or name tasks")
    given = LEVELS if difficulty is None else difficulty
    levels = tuple(given) if isinstance(given, Sequence) else (given,)
    if families is None:
        return MathTasks(split, levels)
    return MathTasks(split, levels, (families,) if isinstance(families, str) else tuple(families))
