"""Tasks and sets of tasks, and what generated sets share: checked arguments, and how an index is chosen.

A set is a deterministic function from an index to a task: the same arguments and the same index give the same task on
any machine. The gold answer stays between the task set and the grader; a task's `repr` does not show it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from ..tools.checks import did_you_mean as did_you_mean
from .splits import check_split

P = ParamSpec("P")
T = TypeVar("T")
Message = dict[str, Any]
"""One chat message: `role` and `content`, as chat templates take them."""


@dataclass(frozen=True)
class Task:
    """One problem.

    Args:
        id: Names the task in journals and reports.
        prompt: What the agent reads.
        gold: The right answer, for the grader only.
        solution: A Python program that prints the answer, for demonstrations only.
        aliases: Other answers that are as right, for the grader only.
        category: Of what kind it is, for reports.
        opening: Messages in front of the prompt: a system prompt of this task, earlier turns of its conversation.
    """

    id: str
    prompt: str
    gold: str = field(repr=False)
    solution: str | None = field(default=None, repr=False)
    aliases: tuple[str, ...] = field(default=(), repr=False)
    category: str = field(default="", repr=False)
    opening: tuple[Message, ...] = field(default=(), repr=False, hash=False)

    @property
    def golds(self) -> tuple[str, ...]:
        """All answers that are right."""
        return (self.gold, *self.aliases)

    def restates(self, answer: str) -> bool:
        """Return whether an answer only repeats the question, and so earns nothing, whatever its grader says."""
        return False


class Tasks(Protocol):
    """A sequence of tasks that depends on nothing but its own arguments."""

    name: str  # where the tasks come from
    split: str  # `train`, `valid` or `test`

    def __len__(self) -> int:
        """Return the number of tasks."""

    def __getitem__(self, i: int, /) -> Task:
        """Return task `i`; raise IndexError out of range."""


class ListTasks:
    """Tasks held in memory."""

    def __init__(self, tasks: Sequence[Task], name: str = "tasks", split: str = "train") -> None:
        if not tasks:
            raise ValueError(f"{name} has no tasks; a task set needs at least one")
        self.name = name
        self.split = check_split(split, listed=True)
        self._tasks = tuple(tasks)
        self.longest = max(
            len(task.prompt.encode("utf-8", "replace")) for task in self._tasks
        )  # bytes of a prompt
        # The longest of the tasks' openings: whether a chat template can carry it is checked before the first episode.
        self.opening = max((task.opening for task in self._tasks), key=len)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        return self._tasks[i]


def check_known(value: str, known: Iterable[str], fault: str, listed: str) -> None:
    """Raise ValueError with `fault`, the nearest value and, behind `listed`, all there are, unless a value is known."""
    if value not in known:
        raise ValueError(f"{fault}; {did_you_mean(str(value), known)}{listed} {', '.join(known)}")


def refuse(what: str, **options: object) -> None:
    """Raise ValueError if one of `options` is set, which `what` would ignore."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r}, but {what}; leave it out")


def check_index(i: int, tasks: Tasks, noun: str = "task") -> None:
    """Raise IndexError unless `tasks` has an item `i`."""
    if not 0 <= i < len(tasks):
        raise IndexError(f"{noun} {i} of {tasks.name}: there are {noun}s 0 to {len(tasks) - 1}")


def choose_index(
    rng: np.random.Generator,
    options: Mapping[str, Any],
    tasks: Tasks | Sequence[Any],
    noun: str = "task",
) -> int:
    """Return the index in `options["task"]`, else one that is drawn; raise ValueError for any other option."""
    drawn = int(rng.integers(len(tasks)))
    if unknown := set(options) - {"task"}:
        raise ValueError(
            f"reset has no option {', '.join(map(repr, unknown))}; its one option is 'task'"
        )
    index = options.get("task", drawn)
    # A NumPy integer would not survive the JSON of a snapshot.
    if type(index) is not int or not 0 <= index < len(tasks):
        last, name = len(tasks) - 1, getattr(tasks, "name", "the environment")
        raise ValueError(
            f"options['task'] is {index!r}; choose an int from 0 to {last}, a {noun} of {name}"
        )
    return index


def check_choices(name: str, value: int | Iterable[int], known: Iterable[int]) -> tuple[int, ...]:
    """Return one choice or several as a sorted tuple; raise ValueError if there is none or one is not `known`."""
    chosen = set(value) if isinstance(value, Iterable) else {value}
    if not chosen or not chosen <= set(known):
        raise ValueError(
            f"{name} is {value!r}; choose one or several of {', '.join(map(str, known))}"
        )
    return tuple(sorted(chosen))


def strict(make: Callable[P, T]) -> Callable[P, T]:
    """Return a factory that raises ValueError for an option that it does not take, with the nearest one."""
    known = signature(make).parameters

    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> T:
        for name in options.keys() - known.keys():
            hint = f"{did_you_mean(name, known)}its options are {', '.join(known)}"
            if name == "render_mode":
                hint = "observations are text: print them"
            raise ValueError(f"{make.__name__} takes no option {name!r}; {hint}")
        return make(*args, **options)

    return made
