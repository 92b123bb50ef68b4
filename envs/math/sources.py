"""Questions by name: a file, a data set of the hub, or reasoning-gym's."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from ..question import Grader
from ..rows import SHAPES
from ..tasks import Tasks, load_jsonl
from .given import Given
from .hub import DATA_SETS, is_hub_name, load_hub
from .reasoning import PREFIX, ReasoningGrader, ReasoningTasks

_FILE = re.compile(r"[/\\~]|^\.|\.(?:jsonl?|gz|csv|parquet|txt)$")


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
    name, path = str(source), Path(source)
    if is_file(path):
        return _file(path, given), grader
    if name.startswith(PREFIX):
        given.refuse("reasoning-gym makes its tasks", "holdout", "config", "problem_field", "bad_rows")
        return ReasoningTasks(name.removeprefix(PREFIX).split(","), given.split), ReasoningGrader()
    if isinstance(source, str) and is_hub_name(name):
        return load_hub(name, given), grader
    if isinstance(source, Path) or _FILE.search(name):
        return _file(path, given), grader
    near = get_close_matches(name, DATA_SETS, n=1)
    raise ValueError(
        f"unknown task set {name!r}; {f'did you mean {near[0]!r}? ' if near else ''}the data sets are "
        f"{', '.join(DATA_SETS)} and OWNER/NAME of the hub; or name a .jsonl file, or {PREFIX}NAME"
    )


def is_file(source: str | Path) -> bool:
    """Return whether `source` is a file that exists; many names of reasoning-gym are too long for one."""
    try:
        return Path(source).is_file()
    except OSError:
        return False


def _file(path: Path, given: Given) -> Tasks:
    given.refuse(f"{path} is a file", "config")
    return load_jsonl(
        path,
        split=given.split,
        holdout=given.holdout or 0.0,
        shapes=SHAPES if given.fields is None else (given.fields,),
        check_gold=given.check_gold,
        bad_rows=given.bad_rows,
    )
