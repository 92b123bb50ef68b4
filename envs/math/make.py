"""The math environments, made from their options.

The tasks are generated, read from a file or a data set, or made by reasoning-gym. `make_math` and
`make_math_python` are the two environments; `data_sets` lists the data sets that have short names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
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
# For `system=true`: what a stock model, which was not trained here, needs to be told.
_STOCK_MODEL_PROMPT = (
    "Solve the problem step by step. {calls}"
    "End with the final answer, and nothing but the answer, in \\boxed{{}}."
)


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
        tasks: Where the questions come from; by default they are generated. Or one of these:
            - a JSONL file (`.gz` too)
            - a data set: `gsm8k`, `math`, `math500`, `aime24`, `aime25`, `amc23`, `hmmt25`,
              `brumo25`, `cmimc25`, `minerva`, `olympiadbench`, `omni-math`, `dapo-math`,
              `deepscaler`, or `owner/name` on the hub
            - `reasoning-gym:NAME`, or several names with commas between them
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5, one or several; for generated questions only, where the
            default is 1 and 2.
        families: Which kinds of problems, one or several; for generated questions only, where the
            default is all but `sums`.
        holdout: The share of problems kept for `valid`. By default none of a file, and 0.05 of
            `train` of a data set that has no split for `valid`.
        config: The part of a data set that has several.
        problem_field: The field of the problem, if it is neither `problem` nor `question`; a dot
            reaches into a nested row.
        answer_field: The field of the answer, to be named with `problem_field`.
        bad_rows: How many rows without a usable problem and gold may be left out.
        system: The system prompt: one line that says where to put the answer (false), a text that
            also says how to find it, with tools if there are any (true), or a text of your own.
        answers: Which answers are read: only boxes (`strict`), or also those in a sentence or on a
            bare last line (`lenient`).
        tools: Tools, `module:name` or as a package declares them, one or several. With a tool an
            episode has four turns.

    Raises:
        ValueError: If an option has a value that it cannot have, or if the options exclude each
            other.
        FileNotFoundError: If the file does not exist.
    """
    reading = _ReadingOptions(
        holdout=holdout,
        config=config,
        problem_field=problem_field,
        answer_field=answer_field,
        bad_rows=bad_rows,
    )
    questions, grader = _make_questions(
        tasks,
        split=split,
        difficulty=difficulty,
        families=families,
        answers=answers,
        reading=reading,
    )
    loaded_tools = load_tools(tools)
    about_calls = CALLS if loaded_tools else ""
    prompt = prompt_of(system, SYSTEM, _STOCK_MODEL_PROMPT.format(calls=about_calls))
    return QuestionEnv(questions, grader, loaded_tools, system=prompt)


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

    The arguments that are not listed are those of `make_math` and of `QuestionEnv`.

    Args:
        timeout: Seconds that a call of the tool may take.
        memory_mb: MiB of memory that the tool may use.
        max_output: Characters of a result that the agent sees, 64 or more; of a longer result it
            sees the beginning and the end.
        level: How the tool is isolated: `namespaces`, `landlock` or `rlimits-only`. If the machine
            cannot give this level, no weaker one is used; `turngym doctor` says which ones it can.
        packages: Installed packages that programs can import in addition to the usual ones
            (docs/python-tool.md lists them).
        tools: Tools beside Python, as in `make_math`.

    Raises:
        ValueError: If an option has a value that it cannot have, or if the options exclude each
            other.
        FileNotFoundError: If the task file does not exist.
    """
    python = PythonTool(
        timeout=timeout,
        memory_mb=memory_mb,
        max_output=max_output,
        level=level,
        packages=packages,
    )
    reading = _ReadingOptions(
        holdout=holdout,
        config=config,
        problem_field=problem_field,
        answer_field=answer_field,
        bad_rows=bad_rows,
    )
    questions, grader = _make_questions(
        tasks,
        split=split,
        difficulty=difficulty,
        families=families,
        answers=answers,
        reading=reading,
    )
    prompt = prompt_of(system, SYSTEM_TOOL, _STOCK_MODEL_PROMPT.format(calls=CALLS))
    return QuestionEnv(
        questions,
        grader,
        tools=[python, *load_tools(tools)],
        format=format,
        system=prompt,
        max_turns=max_turns,
        # The tool ends a program after `timeout`; only one that does not answer at all fails.
        tool_timeout=timeout + TOOL_TIMEOUT,
    )


@dataclass(frozen=True)
class _ReadingOptions:
    """How questions are read that are not generated, as `make_math` describes it."""

    holdout: float | None
    config: str | None
    problem_field: str | None
    answer_field: str | None
    bad_rows: int


def _make_questions(
    source: str | Path | None,
    *,
    split: str,
    difficulty: int | Sequence[int] | None,
    families: str | Sequence[str] | None,
    answers: str,
    reading: _ReadingOptions,
) -> tuple[Tasks, Grader]:
    """Return the questions of an environment and what grades the answers to them.

    Args:
        source: A file, a data set or `reasoning-gym:NAME`; None if the questions are generated.
        split: `train`, `valid` or `test`.
        difficulty: The levels of generated questions; None is 1 and 2.
        families: The families of generated questions; None is all but `sums`.
        answers: `strict` or `lenient`.
        reading: How questions are read that are not generated.

    Raises:
        ValueError: If an option is set that the source would ignore, or that cannot be.
        FileNotFoundError: If the source is a file that does not exist.
    """
    lenient = is_lenient(answers)
    grader = MathGrader(extract="lenient" if lenient else "box")
    if source is None:
        return _generate_questions(split, difficulty, families, reading), grader
    if lenient and str(source).startswith(PREFIX):
        raise ValueError(
            f"answers is {answers!r}, but reasoning-gym's scorers read boxes alone; leave it out"
        )
    refuse(f"the tasks come from {source}", difficulty=difficulty, families=families)
    options = SourceOptions(
        split=split,
        holdout=reading.holdout,
        config=reading.config,
        problem_field=reading.problem_field,
        answer_field=reading.answer_field,
        bad_rows=reading.bad_rows,
        check_gold=grader.check_gold,
    )
    return load_tasks_and_grader(source, options, grader)


def _generate_questions(
    split: str,
    difficulty: int | Sequence[int] | None,
    families: str | Sequence[str] | None,
    reading: _ReadingOptions,
) -> MathTasks:
    """Return generated questions; the arguments are those of `_make_questions`.

    Raises:
        ValueError: If an option of reading is set, or one of the others cannot be.
    """
    refuse("generated splits share no task anyway", holdout=reading.holdout or None)
    refuse(
        "the tasks are generated",
        config=reading.config,
        problem_field=reading.problem_field,
        answer_field=reading.answer_field,
        bad_rows=reading.bad_rows or None,
    )
    if difficulty is None:
        difficulty = (1, 2)
    if families is None:
        families = MIXED
    elif isinstance(families, str):
        families = (families,)
    return MathTasks(split, difficulty, tuple(families))


def load_tasks_and_grader(
    source: str | Path, options: SourceOptions, grader: Grader
) -> tuple[Tasks, Grader]:
    """Return the tasks that a source names, and what grades them.

    Args:
        source: A file that exists; else `reasoning-gym:NAME,...`; else what `load_tasks` reads.
        options: How the tasks are read.
        grader: Grades all tasks but those of reasoning-gym, which have a grader of their own.

    Raises:
        ValueError: If there is no such source, it cannot be read, or it would ignore an option.
        FileNotFoundError: If the source is a file that does not exist.
    """
    name = str(source)
    if name.startswith(PREFIX) and not is_file(source):
        options.refuse(
            "reasoning-gym makes its tasks", "holdout", "config", "problem_field", "bad_rows"
        )
        data_set_names = name.removeprefix(PREFIX).split(",")
        return ReasoningTasks(data_set_names, options.split), ReasoningGrader()
    other_sources = f", or {PREFIX}NAME"  # for the error about an unknown source
    return load_tasks(source, options, data_sets(), other_sources), grader


@cache
def data_sets() -> dict[str, DataSet]:
    """Return the data sets that have a short name, by that name."""
    return read_data_sets(
        Path(__file__).with_name("data_sets.toml"),
        SHAPES,
        extract_last_box,
        join_answers,
        remove_answer_instructions,
    )


# A box without braces, such as `\boxed 4` or `\fbox 12.`; its content ends at a blank or a brace.
_BOX_WITHOUT_BRACES = re.compile(r"\\(boxed|fbox) +([^\s${}\\]+)")

# What DAPO-Math writes in front of each problem and behind it.
_ANSWER_INSTRUCTIONS = re.compile(
    r"^Solve the following math problem step by step\..*?\n\n"
    r'|\n\nRemember to put your answer on its own line after "Answer:"\.?\s*$',
    re.DOTALL,
)


def extract_last_box(solution: Any) -> str:
    r"""Return what the last box of a worked solution holds, also of a `\boxed 4` without braces.

    Raises:
        ValueError: If the solution has no box.
    """
    text = _BOX_WITHOUT_BRACES.sub(r"\\\1{\2}", as_text(solution))
    answer = extract_answer(text)
    if answer is None:
        raise ValueError("it needs a \\boxed{} answer")
    return answer


def join_answers(answers: Any) -> str:
    """Return the answers of a list with commas between them.

    Raises:
        ValueError: If this is no list, or an empty one.
    """
    if not isinstance(answers, list) or not answers:
        raise ValueError("it needs a list of answers")
    return ", ".join(map(as_text, answers))


def remove_answer_instructions(chat: Any) -> str:
    """Return the problem of a chat of one message, without how DAPO-Math asks for the answer.

    DAPO-Math wants a last line `Answer: 4`, but the environment asks for a box.

    Raises:
        ValueError: If this is no chat of one message.
    """
    if not isinstance(chat, list) or len(chat) != 1:
        raise ValueError("it needs a chat of one message")
    message = chat[0].get("content")
    return as_text(_ANSWER_INSTRUCTIONS.sub("", as_text(message)))
