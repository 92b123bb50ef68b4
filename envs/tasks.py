"""Tasks and sets of tasks, and the checks that makers of sets and environments share.

A set is a deterministic function from an index to a task: the same arguments and the same index
give the same task on any machine. The gold answer stays between the task set and the grader; a
task's `repr` does not show it.
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
        prompt: The question, which the agent reads.
        gold: The right answer; only the grader reads it.
        solution: A Python program that prints the answer, for demonstrations.
        aliases: Other right answers, for the grader.
        category: Reports count the tasks of each category apart; "" for none.
        opening: Messages in front of the prompt: this task's own system prompt, or earlier turns of
            its conversation.
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
        """All right answers."""
        return (self.gold, *self.aliases)

    def restates(self, answer: str) -> bool:
        """Return whether an answer only repeats the question, and so earns nothing."""
        return False


class Tasks(Protocol):
    """A sequence of tasks that depends only on its own arguments."""

    name: str  # where the tasks come from
    split: str  # `train`, `valid` or `test`

    def __len__(self) -> int:
        """Return the number of tasks."""

    def __getitem__(self, i: int, /) -> Task:
        """Return task `i`; raise IndexError out of range."""


class ListTasks:
    """A sequence of tasks in memory.

    Args:
        tasks: At least one task; ValueError if there is none.
        name: Where the tasks come from.
        split: A split, or `all`.

    Attributes:
        longest: The size of the longest prompt, in bytes.
        opening: The opening with the most messages; a chat template is tried on it before the first
            episode.
    """

    def __init__(self, tasks: Sequence[Task], name: str = "tasks", split: str = "train") -> None:
        """Make a set of tasks; see the class for the arguments."""
        if not tasks:
            raise ValueError(f"{name} has no tasks; a task set needs at least one")
        self.name = name
        self.split = check_split(split, listed=True)
        self._tasks = tuple(tasks)
        prompt_sizes = [len(task.prompt.encode("utf-8", "replace")) for task in self._tasks]
        self.longest = max(prompt_sizes)
        self.opening = max((task.opening for task in self._tasks), key=len)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        return self._tasks[i]


def check_known(value: str, known: Iterable[str], fault: str, listed: str) -> None:
    """Raise ValueError unless a value is one of those that are known.

    Args:
        value: Any value, of which the nearest known one is suggested.
        known: The values that are known.
        fault: How the message begins, such as "domain is 'aeroline'".
        listed: What the message says in front of all known values, such as "the domains are".
    """
    if value not in known:
        raise ValueError(f"{fault}; {did_you_mean(str(value), known)}{listed} {', '.join(known)}")


def refuse(what: str, **options: object) -> None:
    """Raise ValueError if an option is set that would be ignored.

    Args:
        what: The reason why it would be, as a clause, such as "tasks.csv is a file".
        options: The values of such options; None if one is not set.
    """
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is {value!r}, but {what}; leave it out")


def check_index(i: int, tasks: Tasks, noun: str = "task") -> None:
    """Raise IndexError unless `tasks` has an item `i`; the message calls the items `noun`."""
    if not 0 <= i < len(tasks):
        raise IndexError(f"{noun} {i} of {tasks.name}: there are {noun}s 0 to {len(tasks) - 1}")


def choose_index(
    rng: np.random.Generator,
    options: Mapping[str, Any],
    tasks: Tasks | Sequence[Any],
    noun: str = "task",
) -> int:
    """Return the index of the task for a new episode: the one in the options, or a random one.

    Args:
        rng: Draws the random index. It draws one in any case, so that its later draws do not depend
            on the options.
        options: The options of `reset`: `task`, an index, or nothing.
        tasks: The tasks to choose from.
        noun: What the error calls a task.

    Raises:
        ValueError: There is another option, or the index is not an int in range.
    """
    random_index = int(rng.integers(len(tasks)))
    unknown_options = set(options) - {"task"}
    if unknown_options:
        raise ValueError(
            f"reset has no option {', '.join(map(repr, unknown_options))}; its one option is 'task'"
        )
    index = options.get("task", random_index)
    # A NumPy integer is refused, as a snapshot writes the options as JSON.
    if type(index) is not int or not 0 <= index < len(tasks):
        name = getattr(tasks, "name", "the environment")
        raise ValueError(
            f"options['task'] is {index!r}; choose an int from 0 to {len(tasks) - 1}, "
            f"a {noun} of {name}"
        )
    return index


def check_choices(name: str, value: int | Iterable[int], known: Iterable[int]) -> tuple[int, ...]:
    """Return one choice, or several, as a sorted tuple without repetitions.

    Args:
        name: The option's name, for the error.
        value: A number, or several.
        known: The numbers to choose from.

    Raises:
        ValueError: No number is chosen, or one that is not `known`.
    """
    chosen = set(value) if isinstance(value, Iterable) else {value}
    if not chosen or not chosen <= set(known):
        raise ValueError(
            f"{name} is {value!r}; choose one or several of {', '.join(map(str, known))}"
        )
    return tuple(sorted(chosen))


def strict(make: Callable[P, T]) -> Callable[P, T]:
    """Decorate a factory so that an unknown option raises a ValueError which lists all options.

    It also suggests the nearest option; Python's own TypeError would do neither.
    """
    parameters = signature(make).parameters

    @wraps(make)
    def make_strictly(*args: P.args, **options: P.kwargs) -> T:
        unknown_options = options.keys() - parameters.keys()
        for name in unknown_options:
            if name == "render_mode":  # an option of Gymnasium's own environments
                hint = "observations are text: print them"
            else:
                hint = f"{did_you_mean(name, parameters)}its options are {', '.join(parameters)}"
            raise ValueError(f"{make.__name__} takes no option {name!r}; {hint}")
        return make(*args, **options)

    return make_strictly
