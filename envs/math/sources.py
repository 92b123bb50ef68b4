"""Math questions by name: a file, a data set of the hub, or reasoning-gym's."""

from __future__ import annotations

from pathlib import Path

from ..given import Given
from ..question import Grader
from ..sources import is_file, load_tasks
from ..tasks import Tasks
from .hub import DATA_SETS
from .reasoning import PREFIX, ReasoningGrader, ReasoningTasks


def load(source: str | Path, given: Given, grader: Grader) -> tuple[Tasks, Grader]:
    """Return the tasks that `source` names, and what grades them: `grader`, unless they have a grader of their own.

    Args:
        source: In this order: a file that exists; `reasoning-gym:NAME,…`; a name of `DATA_SETS` or `owner/name`.
        given: Further options; one that the source would ignore is refused.
        grader: Grades answers to math questions.

    Raises:
        FileNotFoundError: It is the name of a file, and there is none.
        ValueError: There is no such source, or it cannot be read; the message says what there is.
    """
    name = str(source)
    if name.startswith(PREFIX) and not is_file(source):
        given.refuse("reasoning-gym makes its tasks", "holdout", "config", "problem_field", "bad_rows")
        return ReasoningTasks(name.removeprefix(PREFIX).split(","), given.split), ReasoningGrader()
    return load_tasks(source, given, DATA_SETS, f", or {PREFIX}NAME"), grader
