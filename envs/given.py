"""What a user says about the questions of an environment, besides where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .rows import SHAPES, Fields
from .tasks import Make, check_holdout, check_split, plain_task


def _any(gold: str) -> None:
    pass


@dataclass(frozen=True)
class Given:
    """Options of task sets that are read.

    Args:
        split: What the tasks are for: `train`, `valid` or `test`.
        holdout: The share of problems kept for `valid`; None is the source's own.
        config: The part of a data set.
        problem_field: The field of the problem, where the source does not say so itself.
        answer_field: The field of the answer, likewise.
        bad_rows: How many rows without a usable problem and gold may be left out.
        check_gold: Raises ValueError for a gold that the grader could not use.
        shapes: The fields that need no naming; named ones are read as the first of these are.
        make: Makes a task of a row.

    Raises:
        ValueError: One of them cannot be.
    """

    split: str = "train"
    holdout: float | None = None
    config: str | None = None
    problem_field: str | None = None
    answer_field: str | None = None
    bad_rows: int = 0
    check_gold: Callable[[str], None] = _any
    shapes: Sequence[Fields] = SHAPES
    make: Make = plain_task

    def __post_init__(self) -> None:
        """Check what needs no source."""
        check_split(self.split)
        check_holdout(self.split, self.holdout or 0.0)
        if (self.problem_field is None) != (self.answer_field is None):
            raise ValueError(
                f"problem_field is {self.problem_field!r} and answer_field is {self.answer_field!r}; name both or none"
            )
        if type(self.bad_rows) is not int or self.bad_rows < 0:
            raise ValueError(f"bad_rows is {self.bad_rows!r}; it is a number of rows, at least 0")

    @property
    def fields(self) -> Fields | None:
        """Return the fields that are named; None where they are not."""
        if self.problem_field is None or self.answer_field is None:
            return None
        return replace(self.shapes[0], problem=self.problem_field, answer=self.answer_field)

    def refuse(self, what: str, *names: str) -> None:
        """Raise ValueError if one of the options `names` is given, which `what` would ignore."""
        for name in names:
            if value := getattr(self, name):
                raise ValueError(f"{name} is {value!r}, but {what}; leave it out")
