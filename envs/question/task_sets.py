"""Tasks as authors give them to `QuestionEnv`: dicts, pairs, `Task`s or the name of a file, made a set of tasks."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..rows import VERL, Fields, SourceOptions, read_row, right_answers
from ..sources import load_tasks
from ..splits import ALL
from ..tasks import ListTasks, Task, Tasks

SHAPES = (
    Fields("question", "answer", gold=right_answers),
    Fields("problem", "answer", gold=right_answers),
    Fields("prompt", "answer", gold=right_answers),
    Fields(VERL.problem, VERL.answer, gold=right_answers, category=VERL.category),
)
"""The keys of an author's rows; an answer may be a list of right ones."""
FORM = '{"question": …, "answer": …}'
_WORDS = 5  # of a question, in the id that it is given


def as_task_set(tasks: Any) -> Tasks:
    """Return a set of tasks.

    A row without an `id` is named by its question, not by its place: a task keeps its id when others are added, removed
    or put in another order, so that runs before and after can be compared by task.

    Args:
        tasks: A set of tasks, which is returned as it is; the file, folder or data set that `load_tasks` reads; or a
            list of dicts `{"question": …, "answer": …}`, of pairs (question, answer), or of `Task`s.

    Raises TypeError if it is none of these; ValueError if a row of it cannot be used; the message names the row.
    """
    if isinstance(tasks, str | Path):
        return load_tasks(tasks, SourceOptions(split=ALL, shapes=SHAPES, by_command=False))
    if _is_task_set(tasks):
        return tasks  # type: ignore[no-any-return]
    if hasattr(tasks, "to_dict") and hasattr(tasks, "columns"):
        raise TypeError(
            f'tasks is a {type(tasks).__name__}; give its rows: tasks.to_dict("records")'
        )
    if isinstance(tasks, Mapping) or not isinstance(tasks, Iterable):
        raise TypeError(f"tasks is {tasks!r:.60}; give a list of {FORM}")
    made = [_as_task(row, f"tasks[{place}]") for place, row in enumerate(tasks)]
    if not made:
        raise ValueError(f"tasks is empty; give a list of {FORM}")
    _check_ids(made)
    return ListTasks(made, split=ALL)


def _is_task_set(tasks: Any) -> bool:
    """Return whether it keeps the protocol `Tasks`."""
    return all(hasattr(tasks, name) for name in ("name", "split", "__len__", "__getitem__"))


def _as_task(row: Any, where: str) -> Task:
    if isinstance(row, Task):
        return row
    if isinstance(row, list | tuple) and len(row) == 2:
        row = {"question": row[0], "answer": row[1]}
    if not isinstance(row, Mapping):
        raise TypeError(
            f"{where} is {row!r:.60}; write {FORM}, a pair (question, answer) or a Task"
        )
    row = dict(row)
    try:
        question = read_row(row, SHAPES, fix=f"write {FORM}")
    except ValueError as fault:
        raise ValueError(f"{where}{fault}") from None
    name = row.get("id")
    if name is not None and (not isinstance(name, str | int) or not str(name).strip()):
        raise ValueError(
            f"{where}: 'id' is {name!r:.60}; it needs a text or a number, or none at all"
        )
    return Task(
        id=_id_of(question.prompt) if name is None else str(name),
        prompt=question.prompt,
        gold=question.golds[0],
        aliases=question.golds[1:],
        category=question.category,
        opening=question.opening,
    )


def _id_of(question: str) -> str:
    """Return the first words of a question, and a digest of all of it."""
    words = re.findall(r"\w+", question.lower())[:_WORDS]
    digest = hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=3).hexdigest()
    return "-".join([*words, digest])


def _check_ids(tasks: list[Task]) -> None:
    """Raise ValueError if two tasks have one id: a journal and a report could not tell them apart."""
    times = Counter(task.id for task in tasks)
    name, most = times.most_common(1)[0]
    if most == 1:
        return
    first, second, *_ = [place for place, task in enumerate(tasks) if task.id == name]
    where = f"tasks[{first}] and tasks[{second}]"
    if tasks[first].prompt == tasks[second].prompt and name == _id_of(tasks[first].prompt):
        raise ValueError(f"{where} ask the same question; leave one out, or give each an 'id'")
    raise ValueError(f"{where} have the id {name!r}; give each its own")
