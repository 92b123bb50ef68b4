"""Rows of questions: which fields hold a problem and its answer, and the tasks that rows and JSONL files give."""

import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ..tools.files import TooMuch, data_lines
from .tasks import ListTasks, Task, check_split, refuse, text_share

M = TypeVar("M")
KINDS = ("category", "subject", "type", "subfield", "level")  # fields that may hold a category, the first that does
# One number whose digits are grouped by commas, with a currency or a unit; in a list or a tuple a comma parts elements.
_GROUPED_NUMBER = re.compile(r"[^\w,(\[{]*\d{1,3}(?:,\d{3})+(?!\d)[^,]*")
_SALT = "holdout "  # in front of a hashed text: a file written by a generator's split must not fall on one side


def as_text(value: Any) -> str:
    """Return a text as it is and a number as it is written; raise ValueError for anything else and for nothing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
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
    final = final.strip()
    if not hashes:
        return final
    return final.replace(",", "") if _GROUPED_NUMBER.fullmatch(final) else final


@dataclass(frozen=True)
class Fields:
    """Where rows hold problem and answer, and how these become prompt and gold."""

    problem: str  # the problem's field; a dot reaches into a nested row
    answer: str  # the answer's field, likewise
    prompt: Callable[[Any], str] = as_text  # of what the problem's field holds; raises ValueError where it cannot
    gold: Callable[[Any], str | tuple[str, ...]] = final_answer  # likewise the gold, or all right answers
    aliases: str | None = None  # a field that may hold more right answers


SHAPES = (Fields("problem", "answer"), Fields("question", "answer"))  # the fields that need no naming


def read_row(
    row: Any, shapes: Sequence[Fields], check_gold: Callable[[str], object] = str
) -> tuple[str, tuple[str, ...]]:
    """Return the prompt and the golds of a row, by the first of `shapes` whose fields it has.

    Raises ValueError with what is wrong, as the end of a sentence that says where the row is.
    """
    for fields in shapes:
        try:
            problem, answer = _at(row, fields.problem), _at(row, fields.answer)
        except LookupError:
            continue
        prompt = _made(fields.prompt, fields.problem, problem)
        gold = _made(fields.gold, fields.answer, answer)
        golds = (gold,) if isinstance(gold, str) else gold
        if fields.aliases is not None and (more := row.get(fields.aliases)):
            golds = tuple(dict.fromkeys((*golds, *_made(as_texts, fields.aliases, more))))
        try:
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


def _made(make: Callable[[Any], M], field: str, value: Any) -> M:
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f": field {field!r} is {value!r}; {error}") from None


Make = Callable[[str, str, tuple[str, ...], Mapping[str, Any]], Task]
"""Makes a task of its id, its prompt, its right answers and the row that they come from."""


def plain_task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> Task:
    """Return the task of a row that holds nothing but a problem and its answers."""
    return Task(name, prompt, golds[0], aliases=golds[1:])


@dataclass(frozen=True)
class SourceOptions:
    """Options of task sets that are read. Raises ValueError where one of them cannot be."""

    split: str = "train"  # what the tasks are for: `train`, `valid` or `test`
    holdout: float | None = None  # the share of problems kept for `valid`; None is the source's own
    config: str | None = None  # the part of a data set
    problem_field: str | None = None  # the field of the problem, where the source does not say so itself
    answer_field: str | None = None  # the field of the answer, likewise
    bad_rows: int = 0  # how many rows without a usable problem and gold may be left out
    check_gold: Callable[[str], object] = str  # raises ValueError for a gold that the grader could not use
    shapes: Sequence[Fields] = SHAPES  # the fields that need no naming; named ones are read as the first of these are
    make: Make = plain_task  # raises ValueError, with the end of a sentence, where the row holds something wrong

    def __post_init__(self) -> None:
        check_split(self.split)
        if not 0 <= (self.holdout or 0) < 1:
            raise ValueError(f"holdout is {self.holdout}; it is a share, at least 0 and below 1")
        if self.holdout and self.split == "test":
            parted = f"holdout is {self.holdout}; a holdout parts train from valid"
            raise ValueError(f"split is 'test' and {parted}, so set it to 0")
        problem, answer = self.problem_field, self.answer_field
        if (problem is None) != (answer is None):
            raise ValueError(f"problem_field is {problem!r} and answer_field is {answer!r}; name both or none")
        if type(self.bad_rows) is not int or self.bad_rows < 0:
            raise ValueError(f"bad_rows is {self.bad_rows!r}; it is a number of rows, at least 0")

    @property
    def fields(self) -> Fields | None:
        """The fields that are named; None where they are not."""
        if self.problem_field is None or self.answer_field is None:
            return None
        return replace(self.shapes[0], problem=self.problem_field, answer=self.answer_field)

    def refuse(self, what: str, *names: str) -> None:
        """Raise ValueError if one of the options `names` is set, which `what` would ignore."""
        refuse(what, **{name: getattr(self, name) or None for name in names})


def tasks_of(
    rows: Iterable[tuple[str, str, Any]], what: str, shapes: Sequence[Fields], options: SourceOptions
) -> list[Task]:
    """Return the tasks of rows that come as (where the row is, a name for its task, the row).

    A row may hold an `id`, which then names the task, and a category in one of `KINDS`. Of `shapes` the first pair that
    a row has is used; `what` says where the rows are from.

    Raises ValueError where more than `bad_rows` rows cannot be used; the message names the first.
    """
    tasks, faults = [], []
    for where, name, row in rows:
        try:
            prompt, golds = read_row(row, shapes, options.check_gold)
            task = options.make(str(row.get("id", name)), prompt, golds, row)
            kinds = (row.get(kind) for kind in KINDS)
            tasks.append(replace(task, category=next((kind for kind in kinds if kind and isinstance(kind, str)), "")))
        except ValueError as fault:
            faults.append(f"{where}{fault}")
    if len(faults) > options.bad_rows:
        more = f" ({len(faults)} rows cannot be used; --option bad_rows={len(faults)} leaves them out)" if tasks else ""
        raise ValueError(faults[0] + more)
    if not tasks:
        raise ValueError(f"{what} has no rows; it needs rows with {expected(shapes)}")
    return tasks


def apply_holdout(tasks: list[Task], what: str, split: str, holdout: float) -> list[Task]:
    """Return the tasks on the side of `split` where `holdout` parts train from valid by the problems' texts."""
    if holdout:
        tasks = [task for task in tasks if (text_share(_SALT + task.prompt) < holdout) == (split == "valid")]
        if not tasks:
            raise ValueError(f"holdout is {holdout} and leaves no task of {what} for {split}; try --option holdout=0.2")
    return tasks


def load_jsonl(path: str | Path, options: SourceOptions | None = None) -> ListTasks:
    """Read one task per line of a `.jsonl` or `.jsonl.gz` file (UTF-8); blank lines are skipped.

    Without options its rows hold `problem, answer` or `question, answer` (GSM8K's `#### 42` is understood). The whole
    file serves any split unless `holdout` is set; the same text is always on the same side.

    Raises FileNotFoundError where there is no such file; ValueError where the file, or a line of it, is not as
    described; the message names both.
    """
    path, options = Path(path), options or SourceOptions()
    options.refuse(f"{path} is a file", "config")
    shapes = [options.fields] if options.fields else options.shapes
    tasks = tasks_of(_lines(path), str(path), shapes, options)
    return ListTasks(apply_holdout(tasks, str(path), options.split, options.holdout or 0.0), path.name, options.split)


def json_rows(path: Path, number_type: Callable[[str], Any] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a `.jsonl`, `.jsonl.gz` or `.jsonl.xz` file (UTF-8), each with the number of its line.

    Blank lines are skipped. `number_type` makes a number of its text; an int or a float when left out.

    Raises ValueError where a line is not JSON or too long, or the file is not complete, is no plain file, or holds too
    much: of few bytes a packed file can make very many.
    """
    number = 0
    try:
        for number, line in enumerate(data_lines(path), start=1):
            if line.strip():
                yield number, json.loads(line, parse_int=number_type, parse_float=number_type)
    except TooMuch:
        raise
    except (ValueError, RecursionError) as error:
        where = str(error)
        if isinstance(error, json.JSONDecodeError):
            where = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise ValueError(f"{path}:{number} is not JSON in UTF-8: {where}") from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


def _lines(path: Path) -> Iterator[tuple[str, str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"task file {path} does not exist; give a .jsonl or .jsonl.gz file")
    # Numbers stay as they are written: 0.10 and 12345678901234567890.5 lose nothing.
    for number, row in json_rows(path, number_type=str):
        yield f"{path}:{number}", f"{path.name}-{number}", row
