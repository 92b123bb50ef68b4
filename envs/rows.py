"""Rows of questions: which of their fields are read, and the tasks that rows and JSONL files give.

`read_row` reads one row by the first of several `Fields` that it has, `make_tasks` makes the tasks
of many rows, and `load_jsonl` those of a file. A problem is a text, or a chat as verl has it: a
list of messages that ends with the question.
"""

import codecs
import gzip
import json
import lzma
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..tools.files import TooMuch, read_data_lines
from .splits import ALL, check_split, text_share
from .tasks import ListTasks, Message, Task, did_you_mean, refuse

Converted = TypeVar("Converted")
# Fields that may hold a row's category; the first that has one is used.
CATEGORY_FIELDS = ("category", "subject", "type", "subfield", "level")
# One number whose digits are grouped by commas, with a currency or a unit in front or behind:
# "$1,000,000 a year". In a list or a tuple the comma separates elements: "(1,234)" does not match.
_GROUPED_NUMBER = re.compile(r"[^\w,(\[{]*\d{1,3}(?:,\d{3})+(?!\d)[^,]*")
_MISSING_VALUES = ("nan", "NaN", "<NA>")  # as pandas writes them
_NAME_FIELDS = "name others with problem_field and answer_field"
_NAME_FIELDS_IN_CODE = (
    "rename them, or use load_tasks(FILE, SourceOptions(problem_field=…, answer_field=…))"
)
_UTF16_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# In front of a text that is hashed for a holdout. Without it, a file that was written by one split
# of a generator, which chose its problems by the same hash, would fall wholly on one side.
_HOLDOUT_SALT = "holdout "


# -- from the value of a field to a prompt or an answer ------------------------------------------


def as_text(value: Any) -> str:
    """Return a text as it is, and a finite number as text, such as 3.0 -> "3" and 0.5 -> "0.5".

    Raises:
        ValueError: The value is anything else, or an empty text.
    """
    if isinstance(value, np.generic):  # a scalar of NumPy, as pandas and datasets return them
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("it needs text")
    return value


def as_texts(value: Any) -> tuple[str, ...]:
    """Return the items of a list as texts, in order and without repetitions; or one value as one.

    Raises:
        ValueError: The list is empty, or an item is neither a text nor a number.
    """
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("it needs a text, or a list of texts")
    return tuple(dict.fromkeys(map(as_text, values)))


def final_answer(value: Any) -> str:
    """Return the answer at the end of a GSM8K rationale; an answer without a rationale as it is.

    Example: "She has 2 x 500 = <<2*500=1000>>1000 coins. #### 1,000" -> "1000"
    """
    text = as_text(value)
    _, marker, answer = text.rpartition("####")
    answer = answer.strip()
    if marker and _GROUPED_NUMBER.fullmatch(answer):  # "1,000" -> "1000"
        return answer.replace(",", "")
    return answer


def right_answers(value: Any) -> str | tuple[str, ...]:
    """Return all answers of a list, each of which is right, or else the one `final_answer`."""
    if isinstance(value, list | tuple):
        return as_texts(value)
    return final_answer(value)


class ChatPrompt(NamedTuple):
    """A question, and the messages in front of it."""

    opening: tuple[Message, ...]
    question: str


def as_chat(value: Any) -> ChatPrompt:
    """Return a problem as a question and the messages in front of it.

    Args:
        value: A text, which is the question, or a list of chat messages: system first, if there is
            one, then user and assistant in turn, and the question last.

    Raises:
        ValueError: It is neither. The message is the end of a sentence.
    """
    messages = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(messages, list | tuple):
        return ChatPrompt((), as_text(messages))
    if not messages:
        raise ValueError("it needs a message of the user")
    for number, message in enumerate(messages, start=1):
        _check_message(number, message)
    roles = [message["role"] for message in messages]
    turn_roles = roles[1:] if roles[0] == "system" else roles
    if not turn_roles or turn_roles[-1] != "user":
        raise ValueError(
            f"its last message is of the role {roles[-1]!r}; "
            "it needs a question of the user at the end"
        )
    user_roles = turn_roles[::2]
    assistant_roles = turn_roles[1::2]
    if set(user_roles) != {"user"} or not set(assistant_roles) <= {"assistant"}:
        raise ValueError(
            f"it has the roles {', '.join(roles)}; "
            "system comes first, then user and assistant take turns"
        )
    # Other keys of a message, such as a name, are dropped.
    opening = tuple(
        {"role": message["role"], "content": message["content"]} for message in messages[:-1]
    )
    return ChatPrompt(opening, question=as_text(messages[-1]["content"]))


def _check_message(number: int, message: Any) -> None:
    """Raise ValueError unless `message`, the `number`-th of a chat, has a known role and a text."""
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        raise ValueError(f"message {number} is {message!r:.60}; it needs `role` and `content`")
    if message["role"] not in ("system", "user", "assistant"):
        raise ValueError(
            f"message {number} has the role {message['role']!r}; use system, user and assistant"
        )
    if not isinstance(message["content"], str):
        raise ValueError(
            f"message {number} has the content {message['content']!r:.60}; only text is read"
        )


# -- one row -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fields:
    """Which fields of a row hold its problem and answer, and how these become prompt and gold.

    Args:
        problem: The problem's field; a dot leads into a nested row: `reward_model.ground_truth`.
        answer: The answer's field, likewise.
        prompt: Makes the prompt of the problem's value; raises ValueError if it cannot.
        gold: Makes the right answer of the answer's value, or all right answers; likewise.
        aliases: A field that may hold more right answers.
        category: A field that may hold the category, if none of `CATEGORY_FIELDS` does.
    """

    problem: str
    answer: str
    prompt: Callable[[Any], str | ChatPrompt] = as_chat
    gold: Callable[[Any], str | tuple[str, ...]] = final_answer
    aliases: str | None = None
    category: str | None = None


VERL = Fields("prompt", "reward_model.ground_truth", category="data_source")
# The fields that are read if none are named; an answer may be a list of right ones.
SHAPES = (
    Fields("problem", "answer", gold=right_answers),
    Fields("question", "answer", gold=right_answers),
    Fields("prompt", "answer", gold=right_answers),
    VERL,
)


class QuestionRow(NamedTuple):
    """A row that was read.

    Args:
        prompt: The question.
        golds: All right answers.
        opening: The messages in front of the prompt.
        category: The row's category; "" if it has none.
    """

    prompt: str
    golds: tuple[str, ...]
    opening: tuple[Message, ...] = ()
    category: str = ""


def read_row(
    row: Any,
    shapes: Sequence[Fields],
    check_gold: Callable[[str], object] = str,
    fix: str = _NAME_FIELDS,
) -> QuestionRow:
    """Read the question and the right answers of a row.

    Args:
        row: A dict; anything else is an error.
        shapes: The pairs of fields that problem and answer may be in, of which the first that the
            row has is read.
        check_gold: Raises ValueError for an answer that the grader could not use.
        fix: The advice for a row that has none of the pairs.

    Raises:
        ValueError: The row has none of the fields, or one of them cannot be used. The message is
            the end of a sentence that begins with the place of the row.
    """
    for fields in shapes:
        try:
            problem = _field_value(row, fields.problem)
            answer = _field_value(row, fields.answer)
        except LookupError:
            continue
        prompt = _convert_field(fields.prompt, fields.problem, problem)
        if not isinstance(prompt, ChatPrompt):
            prompt = ChatPrompt(opening=(), question=prompt)
        golds = _read_golds(row, fields, answer)
        _check_golds(golds, check_gold, field=fields.answer, answer=answer)
        category = _find_category(row, fields)
        return QuestionRow(prompt.question, golds, prompt.opening, category)
    if not isinstance(row, dict):
        raise ValueError(
            f" has a {type(row).__name__}; a row needs {describe_fields(shapes)}; {fix}"
        )
    raise ValueError(
        f" has the fields {', '.join(map(str, row))}; a row needs {describe_fields(shapes)}; "
        f"{_near_field(row, shapes)}{fix}"
    )


def describe_fields(shapes: Sequence[Fields]) -> str:
    """Return the fields that a row may have, for an error message."""
    return " or ".join(f"`{fields.problem}, {fields.answer}`" for fields in shapes)


def _field_value(row: Any, field: str) -> Any:
    """Return the value of a field of a row; "a.b" is the field `b` of the nested row `a`.

    Raises:
        KeyError: There is no such field.
    """
    value = row
    for key in field.split("."):
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[key]
    return value


def _convert_field(convert: Callable[[Any], Converted], field: str, value: Any) -> Converted:
    """Return `convert(value)`; a ValueError that it raises is completed by field and value."""
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f": field {field!r} is {value!r}; {error}") from None


def _read_golds(row: Mapping[str, Any], fields: Fields, answer: Any) -> tuple[str, ...]:
    """Return all right answers of a row, without repetitions.

    Args:
        row: The row.
        fields: Its fields. The aliases, if it has any, are further right answers.
        answer: The value of its answer's field.
    """
    gold = _convert_field(fields.gold, fields.answer, answer)
    golds = (gold,) if isinstance(gold, str) else gold
    if fields.aliases is None:
        return golds
    aliases = row.get(fields.aliases)
    if not aliases:
        return golds
    alias_texts = _convert_field(as_texts, fields.aliases, aliases)
    return tuple(dict.fromkeys((*golds, *alias_texts)))


def _check_golds(
    golds: Sequence[str], check_gold: Callable[[str], object], field: str, answer: Any
) -> None:
    """Raise ValueError if a right answer is missing or cannot be graded.

    Args:
        golds: All right answers of a row.
        check_gold: Raises ValueError for one that the grader could not use.
        field: The field they come from, for the error.
        answer: Its value, for the error.
    """
    try:
        for gold in golds:
            if gold in _MISSING_VALUES:
                raise ValueError(
                    "that is how a missing value is written; leave the row out, or fill it"
                )
            check_gold(gold)
    except ValueError as error:
        raise ValueError(f": field {field!r} is {answer!r}: {error}") from None


def _find_category(row: Mapping[str, Any], fields: Fields) -> str:
    """Return the first category that a row has in one of its fields; "" if there is none."""
    names = (*CATEGORY_FIELDS, fields.category) if fields.category else CATEGORY_FIELDS
    for name in names:
        category = row.get(name)
        if category and isinstance(category, str):
            return category
    return ""


def _near_field(row: Mapping[str, Any], shapes: Sequence[Fields]) -> str:
    """Return a hint at a field's name that a row may have misspelled; "" if there is none.

    Names of nested fields, which have a dot, are not compared.
    """
    field_names = []
    for fields in shapes:
        field_names += [name for name in (fields.problem, fields.answer) if "." not in name]
    for name in row:
        if name in field_names:
            continue
        hint = did_you_mean(str(name), field_names)
        if hint:
            return hint
    return ""


# -- the tasks of many rows ----------------------------------------------------------------------


Make = Callable[[str, str, tuple[str, ...], Mapping[str, Any]], Task]
"""Makes a task from its id, its prompt, its right answers and the row that they come from."""


def plain_task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> Task:
    """Return the task of a row that has only a problem and its answers."""
    return Task(name, prompt, golds[0], aliases=golds[1:])


@dataclass(frozen=True)
class SourceOptions:
    """Options of task sets that are read from a file or a data set.

    Args:
        split: What the tasks are for: `train`, `valid` or `test`; `all` for those of all splits.
        holdout: The share of problems kept for `valid`; None for the source's default.
        config: The part of a data set.
        problem_field: The field of the problem, if the source does not say it.
        answer_field: The field of the answer, likewise.
        bad_rows: How many rows without a usable problem and answer may be left out.
        check_gold: Raises ValueError for an answer that the grader could not use.
        shapes: The fields that need no naming; fields that are named are read like the first of
            these.
        by_command: Whether the options above can be set by `--option`, which errors then advise;
            the author of a `QuestionEnv` cannot use it.
        make: Makes each task; raises ValueError, with the end of a sentence, if the row is wrong.

    Raises:
        ValueError: An option has a value that it cannot have, or two contradict each other.
    """

    split: str = "train"
    holdout: float | None = None
    config: str | None = None
    problem_field: str | None = None
    answer_field: str | None = None
    bad_rows: int = 0
    check_gold: Callable[[str], object] = str
    shapes: Sequence[Fields] = SHAPES
    by_command: bool = True
    make: Make = plain_task

    def __post_init__(self) -> None:
        """Raise ValueError if an option has a value that it cannot have, or two contradict."""
        check_split(self.split, listed=True)
        holdout = self.holdout or 0  # None, the source's default, is always possible
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout is {self.holdout}; it is a share, at least 0 and below 1")
        if self.holdout and self.split in ("test", ALL):
            raise ValueError(
                f"split is {self.split!r} and holdout is {self.holdout}; "
                "a holdout parts train from valid, so set it to 0"
            )
        names_problem = self.problem_field is not None
        names_answer = self.answer_field is not None
        if names_problem != names_answer:
            raise ValueError(
                f"problem_field is {self.problem_field!r} and answer_field is "
                f"{self.answer_field!r}; name both or none"
            )
        if type(self.bad_rows) is not int or self.bad_rows < 0:
            raise ValueError(f"bad_rows is {self.bad_rows!r}; it is a number of rows, at least 0")

    @property
    def fields(self) -> Fields | None:
        """The fields that are named; None if they are not."""
        if self.problem_field is None or self.answer_field is None:
            return None
        return replace(self.shapes[0], problem=self.problem_field, answer=self.answer_field)

    def refuse(self, what: str, *names: str) -> None:
        """Raise ValueError if an option is set that would be ignored.

        Args:
            what: The reason why it would be, as a clause, such as "tasks.csv is a file".
            names: The names of such options.
        """
        refuse(what, **{name: getattr(self, name) or None for name in names})


class LocatedRow(NamedTuple):
    """A row, its place (for errors), and the name of its task if the row has no `id`."""

    place: str
    task_name: str
    row: Any


def make_tasks(
    rows: Iterable[LocatedRow],
    source: str,
    shapes: Sequence[Fields],
    options: SourceOptions,
) -> list[Task]:
    """Return the tasks of rows, in the rows' order.

    Args:
        rows: The rows, which may be read lazily. A row may have an `id`, which then names its task,
            and a category.
        source: Where the rows come from, for the error.
        shapes: The pairs of fields that problem and answer may be in, of which the first that a row
            has is read.
        options: How many rows may be left out (`bad_rows`), and how tasks are checked and made.

    Raises:
        ValueError: More than `bad_rows` rows cannot be used (the message says why the first
            cannot), or there is no row, or two rows have the same id.
    """
    fix = _NAME_FIELDS if options.by_command else _NAME_FIELDS_IN_CODE
    tasks: list[Task] = []
    faults: list[str] = []
    place_by_id: dict[str, str] = {}
    for place, task_name, row in rows:
        try:
            question = read_row(row, shapes, options.check_gold, fix)
            task_id = str(row.get("id", task_name))
            task = options.make(task_id, question.prompt, question.golds, row)
            tasks.append(replace(task, category=question.category, opening=question.opening))
        except ValueError as fault:
            faults.append(f"{place}{fault}")
            continue
        # Journals and reports could not tell two tasks of one id apart.
        if "id" in row and task.id in place_by_id:
            raise ValueError(
                f"{place_by_id[task.id]} and {place} have the id {task.id!r}; give each its own"
            )
        place_by_id[task.id] = place
    if len(faults) > options.bad_rows:
        raise ValueError(faults[0] + _count_faults(faults, tasks, options))
    if not tasks:
        raise ValueError(f"{source} has no rows; it needs rows with {describe_fields(shapes)}")
    return tasks


def _count_faults(faults: Sequence[str], tasks: Sequence[Task], options: SourceOptions) -> str:
    """Return the end of an error: how many rows cannot be used, and how to leave them out."""
    if tasks and options.by_command:
        return (
            f" ({len(faults)} rows cannot be used; --option bad_rows={len(faults)} leaves them out)"
        )
    if len(faults) > 1:
        return f" ({len(faults)} rows cannot be used)"
    return ""


def apply_holdout(
    tasks: list[Task], source: str, split: str, holdout: float, shared_by_splits: bool = False
) -> list[Task]:
    """Return the tasks of a split, if `holdout` divides them between train and valid.

    A task belongs to valid if the hash of its prompt, a number in [0, 1), is below `holdout`. So
    tasks with the same prompt are always in the same split.

    Args:
        tasks: All tasks of the source.
        source: Where they come from, for the error.
        split: `valid` for the tasks that are held out, any other for those that are not.
        holdout: The share of tasks to hold out, about; 0 to return all tasks.
        shared_by_splits: Whether the source gives all tasks to both splits if `holdout` is 0, which
            the error then advises.

    Raises:
        ValueError: The split has no task. The message names a holdout that leaves tasks in both
            splits, if there is one.
    """
    if not holdout:
        return tasks
    hashes = [text_share(_HOLDOUT_SALT + task.prompt) for task in tasks]
    split_tasks = []
    for task, prompt_hash in zip(tasks, hashes, strict=True):
        is_held_out = prompt_hash < holdout
        if is_held_out == (split == "valid"):
            split_tasks.append(task)
    if split_tasks:
        return split_tasks
    fixes = []
    dividing_holdout = _find_dividing_holdout(hashes)
    if dividing_holdout is not None:
        count = sum(prompt_hash < dividing_holdout for prompt_hash in hashes)
        fixes.append(f"--option holdout={dividing_holdout} holds out {count} of its {len(tasks)}")
    if shared_by_splits:
        fixes.append("--option holdout=0 trains and validates on all of them")
    fix = ", ".join(fixes) or "its problems are all the same"
    raise ValueError(f"holdout is {holdout} and leaves no task of {source} for {split}; {fix}")


def _find_dividing_holdout(hashes: Sequence[float]) -> float | None:
    """Return a holdout with few digits that leaves tasks in both splits; None if there is none.

    Args:
        hashes: The hashes of all prompts, in [0, 1). A task is held out if its hash is below the
            holdout, so the holdout must be above the smallest and not above the largest.
    """
    smallest = min(hashes)
    largest = max(hashes)
    for digits in range(2, 18):  # a float has up to 17 significant digits
        scale = 10**digits
        rounded_up: float = round(math.ceil(smallest * scale) / scale, digits)
        if smallest < rounded_up <= largest:
            return rounded_up
    return None


# -- files ---------------------------------------------------------------------------------------


def load_jsonl(path: str | Path, options: SourceOptions | None = None) -> ListTasks:
    """Read one task per line of a `.jsonl` or `.jsonl.gz` file (UTF-8); blank lines are skipped.

    Without options its rows have `problem, answer` or `question, answer`, and of a GSM8K rationale
    only the answer behind `####` is read. Every split has all tasks of the file, unless `holdout`
    divides them between train and valid.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file, or a line of it, is not as described; the message names both.
    """
    path = Path(path)
    fix = ""
    if ".jsonl" not in path.suffixes:
        fix = "; only .json, .csv, .tsv and .parquet files are read as others"
    # Numbers stay as they are written: 0.10 and 12345678901234567890.5 lose nothing.
    rows = json_rows(path, number_type=str, fix=fix)
    return make_tasks_of_file(path, rows, options or SourceOptions())


def make_tasks_of_file(
    path: Path, rows: Iterable[tuple[int, Any]], options: SourceOptions
) -> ListTasks:
    """Return the tasks of the rows of a file.

    Args:
        path: The file.
        rows: The number of each row's line, and the row. A task is named by its row's `id`, or else
            by file and line.
        options: The split, the holdout, and how the rows are read.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The rows cannot be used; the message names file and line.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"task file {path} does not exist; give a .jsonl or .json, .csv, .tsv or .parquet file"
        )
    options.refuse(f"{path} is a file", "config")
    shapes = [options.fields] if options.fields else options.shapes
    located_rows = (
        LocatedRow(place=f"{path}:{number}", task_name=f"{path.name}-{number}", row=row)
        for number, row in rows
    )
    tasks = make_tasks(located_rows, str(path), shapes, options)
    split_tasks = apply_holdout(
        tasks,
        source=str(path),
        split=options.split,
        holdout=options.holdout or 0.0,
        shared_by_splits=True,
    )
    return ListTasks(split_tasks, path.name, options.split)


def json_rows(
    path: Path, number_type: Callable[[str], Any] | None = None, fix: str = ""
) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a `.jsonl`, `.jsonl.gz` or `.jsonl.xz` file (UTF-8); skip blank lines.

    Args:
        path: The file.
        number_type: Converts the text of a number; by default to an int or a float.
        fix: Advice at the end of the error for a line that is not JSON.

    Yields:
        The number of each line, from 1, and the JSON value in it.

    Raises:
        ValueError: A line is not JSON or too long, or the file is incomplete, not a plain file, or
            too large: a few compressed bytes can expand to very many.
    """
    line_number = 0
    try:
        for line_number, line in enumerate(read_plain_lines(path), start=1):
            if line.strip():
                yield line_number, json.loads(line, parse_int=number_type, parse_float=number_type)
    except (TooMuch, WrongEncoding):  # they are ValueErrors too, but their messages are complete
        raise
    except (ValueError, RecursionError) as error:
        fault = str(error)
        if isinstance(error, json.JSONDecodeError):
            # Some messages of `json` end with "at", as in "Invalid control character at".
            fault = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise ValueError(f"{path}:{line_number} is not JSON in UTF-8: {fault}{fix}") from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


class WrongEncoding(ValueError):
    """A text file is in UTF-16."""


def read_plain_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as `read_data_lines` does, without a byte order mark of UTF-8.

    Raises:
        WrongEncoding: The file is in UTF-16.
    """
    lines = read_data_lines(path)
    first_line = next(lines, b"")
    if first_line.startswith(_UTF16_BYTE_ORDER_MARKS):
        raise WrongEncoding(
            f"{path} is in UTF-16; save it as UTF-8, as with: iconv -f UTF-16 -t UTF-8"
        )
    yield first_line.removeprefix(codecs.BOM_UTF8)
    yield from lines
