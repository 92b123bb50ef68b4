"""What a row of a task file or a data set holds: a problem and its answer, under names that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


def as_text(value: Any) -> str:
    """Return a text as it is and a number as it is written; raise ValueError for anything else and for nothing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("it needs text")
    return value


def final_answer(value: Any) -> str:
    """Return the answer at the end of a GSM8K rationale, or an answer that is no rationale as it is."""
    text = as_text(value)
    _, hashes, final = text.rpartition("####")
    return final.strip().replace(",", "") if hashes else text.strip()


@dataclass(frozen=True)
class Fields:
    """Where rows hold problem and answer, and how these become prompt and gold.

    Args:
        problem: The problem's field; a dot reaches into a nested row.
        answer: The answer's field, likewise.
        prompt: Makes the prompt of what the problem's field holds; raises ValueError where it cannot.
        gold: Makes the gold of what the answer's field holds, likewise.
    """

    problem: str
    answer: str
    prompt: Callable[[Any], str] = as_text
    gold: Callable[[Any], str] = final_answer


SHAPES = (Fields("problem", "answer"), Fields("question", "answer"))
"""The fields that need no naming."""


def read_row(row: Any, shapes: Sequence[Fields], check_gold: Callable[[str], None] | None = None) -> tuple[str, str]:
    """Return prompt and gold of a row, by the first of `shapes` whose fields it has.

    Raises:
        ValueError: what is wrong, as the end of a sentence that says where the row is.
    """
    for fields in shapes:
        try:
            problem, answer = _at(row, fields.problem), _at(row, fields.answer)
        except LookupError:
            continue
        prompt = _made(fields.prompt, fields.problem, problem)
        gold = _made(fields.gold, fields.answer, answer)
        try:
            if check_gold is not None:
                check_gold(gold)
        except ValueError as error:
            raise ValueError(f": field {fields.answer!r} is {answer!r}: {error}") from None
        return prompt, gold
    found = f"the fields {', '.join(row)}" if isinstance(row, dict) else f"a {type(row).__name__}"
    raise ValueError(f" has {found}; a row needs {expected(shapes)}; name others with problem_field and answer_field")


def expected(shapes: Sequence[Fields]) -> str:
    """Return the fields that a row may hold, for an error message."""
    return " or ".join(f"`{fields.problem}, {fields.answer}`" for fields in shapes)


def _at(row: Any, field: str) -> Any:
    for key in field.split("."):
        if not isinstance(row, dict):
            raise KeyError(key)
        row = row[key]
    return row


def _made(make: Callable[[Any], str], field: str, value: Any) -> str:
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f": field {field!r} is {value!r}; {error}") from None
