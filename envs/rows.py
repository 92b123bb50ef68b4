"""What a row of a task file or a data set holds: a problem and its answer, under names that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

M = TypeVar("M")


def as_text(value: Any) -> str:
    """Return a text as it is and a number as it is written; raise ValueError for anything else and for nothing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("it needs text")
    return value


def as_texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, each once, or a text by itself; raise ValueError where one is no text."""
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("it needs a text, or a list of texts")
    return tuple(dict.fromkeys(map(as_text, values)))


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
        gold: Makes the gold, or all right answers, of what the answer's field holds, likewise.
        aliases: A field that may hold more right answers.
    """

    problem: str
    answer: str
    prompt: Callable[[Any], str] = as_text
    gold: Callable[[Any], str | tuple[str, ...]] = final_answer
    aliases: str | None = None


SHAPES = (Fields("problem", "answer"), Fields("question", "answer"))
"""The fields that need no naming."""


def read_row(
    row: Any, shapes: Sequence[Fields], check_gold: Callable[[str], None] | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the prompt and the golds of a row, by the first of `shapes` whose fields it has.

    Raises:
        ValueError: what is wrong, as the end of a sentence that says where the row is.
    """
    for fields in shapes:
        try:
            problem, answer = _at(row, fields.problem), _at(row, fields.answer)
        except LookupError:
            continue
        prompt = _made(fields.prompt, fields.problem, problem)
        golds = _golds(row, fields, answer)
        try:
            if check_gold is not None:
                for gold in golds:
                    check_gold(gold)
        except ValueError as error:
            raise ValueError(f": field {fields.answer!r} is {answer!r}: {error}") from None
        return prompt, golds
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


def _golds(row: Any, fields: Fields, answer: Any) -> tuple[str, ...]:
    made = _made(fields.gold, fields.answer, answer)
    golds = (made,) if isinstance(made, str) else made
    more = row.get(fields.aliases) if fields.aliases is not None else None
    return tuple(dict.fromkeys((*golds, *_made(as_texts, fields.aliases or "", more)))) if more else golds


def _made(make: Callable[[Any], M], field: str, value: Any) -> M:
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f": field {field!r} is {value!r}; {error}") from None
