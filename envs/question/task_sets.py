"""Makes a set of tasks from what authors give to `QuestionEnv`: dicts, pairs, `Task`s, a file."""

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

ROW_SHAPES = (
    Fields("question", "answer", gold=right_answers),
    Fields("problem", "answer", gold=right_answers),
    Fields("prompt", "answer", gold=right_answers),
    Fields(VERL.problem, VERL.answer, gold=right_answers, category=VERL.category),
)
"""The keys that a row may have; `answer` may be a list of right answers."""
EXPECTED_ROW = '{"question": …, "answer": …}'
_ID_WORDS = 5  # words of a question that its id begins with


def as_task_set(tasks: Any) -> Tasks:
    """Return a set of tasks.

    A row without an `id` gets one that is made from its question, not from its index. So a task
    keeps its id when others are added, removed or reordered, and runs before and after that can be
    compared task by task.

    Args:
        tasks: A set of tasks, which is returned as it is; a file, folder or data set that
            `load_tasks` reads; or a list of dicts `{"question": …, "answer": …}`, of pairs
            (question, answer), or of `Task`s.

    Raises:
        TypeError: It is none of these.
        ValueError: A row cannot be used; the message names the row.
    """
    if isinstance(tasks, str | Path):
        return load_tasks(tasks, SourceOptions(split=ALL, shapes=ROW_SHAPES, by_command=False))
    if _is_task_set(tasks):
        return tasks  # type: ignore[no-any-return]
    is_data_frame = hasattr(tasks, "to_dict") and hasattr(tasks, "columns")
    if is_data_frame:
        raise TypeError(
            f'tasks is a {type(tasks).__name__}; give its rows: tasks.to_dict("records")'
        )
    if isinstance(tasks, Mapping) or not isinstance(tasks, Iterable):
        raise TypeError(f"tasks is {tasks!r:.60}; give a list of {EXPECTED_ROW}")
    task_list = [_as_task(row, where=f"tasks[{index}]") for index, row in enumerate(tasks)]
    if not task_list:
        raise ValueError(f"tasks is empty; give a list of {EXPECTED_ROW}")
    _check_ids_are_unique(task_list)
    return ListTasks(task_list, split=ALL)


def _is_task_set(tasks: Any) -> bool:
    """Return whether an object follows the protocol `Tasks`."""
    return all(hasattr(tasks, name) for name in ("name", "split", "__len__", "__getitem__"))


def _as_task(row: Any, where: str) -> Task:
    """Turn one row into a task.

    Args:
        row: A `Task`, a pair (question, answer) or a dict with the keys of one of `ROW_SHAPES`.
        where: The row's place for error messages, such as `tasks[3]`.

    Raises:
        TypeError: The row is none of these.
        ValueError: The question, the answer or the id cannot be used.
    """
    if isinstance(row, Task):
        return row
    if isinstance(row, list | tuple) and len(row) == 2:
        row = {"question": row[0], "answer": row[1]}
    if not isinstance(row, Mapping):
        raise TypeError(
            f"{where} is {row!r:.60}; write {EXPECTED_ROW}, a pair (question, answer) or a Task"
        )
    row = dict(row)
    try:
        question = read_row(row, ROW_SHAPES, fix=f"write {EXPECTED_ROW}")
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
    given_id = row.get("id")
    if given_id is None:
        task_id = _id_from_question(question.prompt)
    elif isinstance(given_id, str | int) and str(given_id).strip():
        task_id = str(given_id)
    else:
        raise ValueError(
            f"{where}: 'id' is {given_id!r:.60}; it needs a text or a number, or none at all"
        )
    return Task(
        id=task_id,
        prompt=question.prompt,
        gold=question.golds[0],
        aliases=question.golds[1:],
        category=question.category,
        opening=question.opening,
    )


def _id_from_question(question: str) -> str:
    """Return an id made of the first words of a question and a digest of its whole text.

    `"What is 2 + 3?"` -> `"what-is-2-3-1f09ab"`
    """
    words = re.findall(r"\w+", question.lower())[:_ID_WORDS]
    digest = hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=3).hexdigest()
    return "-".join([*words, digest])


def _check_ids_are_unique(tasks: list[Task]) -> None:
    """Raise ValueError if two tasks have the same id, as reports name tasks by their ids."""
    most_common_id, uses = Counter(task.id for task in tasks).most_common(1)[0]
    if uses == 1:
        return
    first, second, *_ = [index for index, task in enumerate(tasks) if task.id == most_common_id]
    where = f"tasks[{first}] and tasks[{second}]"
    question = tasks[first].prompt
    is_same_question = tasks[second].prompt == question
    if is_same_question and most_common_id == _id_from_question(question):
        raise ValueError(f"{where} ask the same question; leave one out, or give each an 'id'")
    raise ValueError(f"{where} have the id {most_common_id!r}; give each its own")
