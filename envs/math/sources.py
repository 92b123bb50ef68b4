"""Math questions by name: a file, a data set of the hub, or reasoning-gym's."""

from __future__ import annotations

from pathlib import Path

from ..question import Grader
from ..sources import SourceOptions, is_file, load_tasks
from ..tasks import Tasks
from .hub import DATA_SETS
from .reasoning import PREFIX, ReasoningGrader, ReasoningTasks


def load(source: str | Path, options: SourceOptions, grader: Grader) -> tuple[Tasks, Grader]:
    """Return the tasks that `source` names, and what grades them: `grader`, unless they have a grader of their own.

    Args:
        source: In this order: a file that exists; `reasoning-gym:NAME,…`; a name of `DATA_SETS` or `owner/name`.
        options: Further options; one that the source would ignore is refused.
        grader: Grades answers to math questions.

    Raises:
        FileNotFoundError: It is the name of a file, and there is none.
        ValueError: There is no such source, or it cannot be read; the message says what there is.
    """
    name = str(source)
    if name.startswith(PREFIX) and not is_file(source):
        options.refuse("reasoning-gym makes its tasks", "holdout", "config", "problem_field", "bad_rows")
        return ReasoningTasks(name.removeprefix(PREFIX).split(","), options.split), ReasoningGrader()
    return load_tasks(source, options, DATA_SETS, f", or {PREFIX}NAME"), grader
