"""Rows of questions: which fields hold a problem and its answer, and the tasks that rows and JSONL files give.

A problem is a text, or a chat as verl has it: a list of messages that ends with the question.
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

from ..tools.files import TooMuch, data_lines
from .splits import ALL, check_split, text_share
from .tasks import ListTasks, Message, Task, did_you_mean, refuse

M = TypeVar("M")
KINDS = (
    "category",
    "subject",
    "type",
    "subfield",
    "level",
)  # fields that may hold a category, the first that does
# One number whose digits are grouped by commas, with a currency or a unit; in a list or a tuple a comma parts elements.
_GROUPED_NUMBER = re.compile(r"[^\w,(\[{]*\d{1,3}(?:,\d{3})+(?!\d)[^,]*")
_MISSING = ("nan", "NaN", "<NA>")  # how pandas writes a missing value
_NAME_FIELDS = "name others with problem_field and answer_field"
_NAME_FIELDS_IN_CODE = (
    "rename them, or use load_tasks(FILE, SourceOptions(problem_field=…, answer_field=…))"
)
_BOMS_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SALT = "holdout "  # in front of a hashed text: a file written by a generator's split must not fall on one side


def as_text(value: Any) -> str:
    """Return a text as it is and a number as it is written; raise ValueError for anything else and for nothing."""
    if isinstance(value, np.generic):
        value = value.item()
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


def right_answers(value: Any) -> str | tuple[str, ...]:
    """Return the right answers of a list, or the one of anything else as `final_answer` does."""
    return as_texts(value) if isinstance(value, list | tuple) else final_answer(value)


class ChatPrompt(NamedTuple):
    """A question, and the messages in front of it."""

    opening: tuple[Message, ...]
    question: str


def as_chat(value: Any) -> ChatPrompt:
    """Return the question of a text, or of a list of messages that ends with one of the user.

    Raises ValueError, with the end of a sentence, if it is neither, or has messages that cannot open an episode.
    """
    messages = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(messages, list | tuple):
        return ChatPrompt((), as_text(messages))
    if not messages:
        raise ValueError("it needs a message of the user")
    for number, message in enumerate(messages, start=1):
        _check_message(number, message)
    roles = [message["role"] for message in messages]
    talk = roles[1:] if roles[0] == "system" else roles
    if not talk or talk[-1] != "user":
        raise ValueError(
            f"its last message is of the role {roles[-1]!r}; it needs a question of the user at the end"
        )
    alternating = ["user" if place % 2 == 0 else "assistant" for place in range(len(talk))]
    if talk != alternating:
        raise ValueError(
            f"it has the roles {', '.join(roles)}; system comes first, then user and assistant take turns"
        )
    opening = tuple(
        {"role": message["role"], "content": message["content"]} for message in messages[:-1]
    )
    return ChatPrompt(opening, as_text(messages[-1]["content"]))


def _check_message(number: int, message: Any) -> None:
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
    prompt: Callable[[Any], str | ChatPrompt] = (
        as_chat  # of the problem's field; raises ValueError if it cannot
    )
    gold: Callable[[Any], str | tuple[str, ...]] = (
        final_answer  # likewise the gold, or all right answers
    )
    aliases: str | None = None  # a field that may hold more right answers
    category: str | None = None  # a field that may hold the category, if none of `KINDS` does


VERL = Fields("prompt", "reward_model.ground_truth", category="data_source")
# The fields that need no naming; an answer may be a list of right ones.
SHAPES = (
    Fields("problem", "answer", gold=right_answers),
    Fields("question", "answer", gold=right_answers),
    Fields("prompt", "answer", gold=right_answers),
    VERL,
)


class QuestionRow(NamedTuple):
    """A row that was read: its prompt, all right answers, the messages in front of the prompt, and a category or ""."""

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
    """Return what a row holds, by the first of `shapes` whose fields it has.

    `fix` says what to do with a row that has none of them. Raises ValueError with what is wrong, as the end of a
    sentence that says where the row is.
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
                if gold in _MISSING:
                    raise ValueError(
                        "that is how a missing value is written; leave the row out, or fill it"
                    )
                check_gold(gold)
        except ValueError as error:
            raise ValueError(f": field {fields.answer!r} is {answer!r}: {error}") from None
        opening, question = prompt if isinstance(prompt, ChatPrompt) else ((), prompt)
        return QuestionRow(question, golds, opening, _category(row, fields))
    if not isinstance(row, dict):
        raise ValueError(f" has a {type(row).__name__}; a row needs {expected(shapes)}; {fix}")
    names = ", ".join(map(str, row))
    raise ValueError(
        f" has the fields {names}; a row needs {expected(shapes)}; {_near_field(row, shapes)}{fix}"
    )


def _near_field(row: Mapping[str, Any], shapes: Sequence[Fields]) -> str:
    """Return the field that a row may have misspelled, as `did_you_mean` says it."""
    fields = [
        field for shape in shapes for field in (shape.problem, shape.answer) if "." not in field
    ]
    hints = [did_you_mean(str(name), fields) for name in row if name not in fields]
    return next(filter(None, hints), "")


def _category(row: Mapping[str, Any], fields: Fields) -> str:
    names = (*KINDS, fields.category) if fields.category else KINDS
    kinds = [row.get(name) for name in names]
    return next((kind for kind in kinds if kind and isinstance(kind, str)), "")


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

    split: str = (
        "train"  # what the tasks are for: `train`, `valid` or `test`; `all` for those of all splits
    )
    holdout: float | None = None  # the share of problems kept for `valid`; None is the source's own
    config: str | None = None  # the part of a data set
    problem_field: str | None = (
        None  # the field of the problem, where the source does not say so itself
    )
    answer_field: str | None = None  # the field of the answer, likewise
    bad_rows: int = 0  # how many rows without a usable problem and gold may be left out
    check_gold: Callable[[str], object] = (
        str  # raises ValueError for a gold that the grader could not use
    )
    shapes: Sequence[Fields] = (
        SHAPES  # the fields that need no naming; named ones are read as the first of these are
    )
    by_command: bool = True  # whether the options above can be set by --option; the author of a `QuestionEnv` has none
    make: Make = plain_task  # raises ValueError, with the end of a sentence, where the row holds something wrong

    def __post_init__(self) -> None:
        check_split(self.split, listed=True)
        if not 0 <= (self.holdout or 0) < 1:
            raise ValueError(f"holdout is {self.holdout}; it is a share, at least 0 and below 1")
        if self.holdout and self.split in ("test", ALL):
            parted = f"holdout is {self.holdout}; a holdout parts train from valid"
            raise ValueError(f"split is {self.split!r} and {parted}, so set it to 0")
        problem, answer = self.problem_field, self.answer_field
        if (problem is None) != (answer is None):
            raise ValueError(
                f"problem_field is {problem!r} and answer_field is {answer!r}; name both or none"
            )
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
    rows: Iterable[tuple[str, str, Any]],
    what: str,
    shapes: Sequence[Fields],
    options: SourceOptions,
) -> list[Task]:
    """Return the tasks of rows that come as (where the row is, a name for its task, the row).

    A row may hold an `id`, which then names the task, and a category in one of `KINDS`. Of `shapes` the first pair that
    a row has is used; `what` says where the rows are from.

    Raises ValueError where more than `bad_rows` rows cannot be used; the message names the first. Also where two rows
    give one id: a journal and a report could not tell their tasks apart.
    """
    fix = _NAME_FIELDS if options.by_command else _NAME_FIELDS_IN_CODE
    tasks, faults = [], []
    places: dict[str, str] = {}  # of ids
    for where, name, row in rows:
        try:
            question = read_row(row, shapes, options.check_gold, fix)
            task = options.make(str(row.get("id", name)), question.prompt, question.golds, row)
            tasks.append(replace(task, category=question.category, opening=question.opening))
        except ValueError as fault:
            faults.append(f"{where}{fault}")
            continue
        if "id" in row and task.id in places:
            raise ValueError(
                f"{places[task.id]} and {where} have the id {task.id!r}; give each its own"
            )
        places[task.id] = where
    if len(faults) > options.bad_rows:
        more = ""
        if tasks and options.by_command:
            more = f" ({len(faults)} rows cannot be used; --option bad_rows={len(faults)} leaves them out)"
        elif len(faults) > 1:
            more = f" ({len(faults)} rows cannot be used)"
        raise ValueError(faults[0] + more)
    if not tasks:
        raise ValueError(f"{what} has no rows; it needs rows with {expected(shapes)}")
    return tasks


def apply_holdout(
    tasks: list[Task], what: str, split: str, holdout: float, whole: bool = False
) -> list[Task]:
    """Return the tasks on the side of `split` where `holdout` parts train from valid by the problems' texts.

    `whole` says that without a holdout `what` gives all tasks to both, for the error. Raises ValueError where no task
    is left; the message names a holdout that leaves some on both sides.
    """
    if not holdout:
        return tasks
    shares = [text_share(_SALT + task.prompt) for task in tasks]
    valid = [task for task, share in zip(tasks, shares, strict=True) if share < holdout]
    train = [task for task, share in zip(tasks, shares, strict=True) if share >= holdout]
    chosen = valid if split == "valid" else train
    if chosen:
        return chosen
    fixes = []
    parting = _parting_holdout(shares)
    if parting is not None:
        held_out = sum(share < parting for share in shares)
        fixes.append(f"--option holdout={parting} holds out {held_out} of its {len(tasks)}")
    if whole:
        fixes.append("--option holdout=0 trains and validates on all of them")
    fix = ", ".join(fixes) or "its problems are all the same"
    raise ValueError(f"holdout is {holdout} and leaves no task of {what} for {split}; {fix}")


def _parting_holdout(shares: Sequence[float]) -> float | None:
    """Return the shortest number just above the smallest share that is not above the largest; None if all are one."""
    least, most = min(shares), max(shares)
    for digits in range(2, 18):
        holdout: float = round(math.ceil(least * 10**digits) / 10**digits, digits)
        if least < holdout <= most:
            return holdout
    return None


def load_jsonl(path: str | Path, options: SourceOptions | None = None) -> ListTasks:
    """Read one task per line of a `.jsonl` or `.jsonl.gz` file (UTF-8); blank lines are skipped.

    Without options its rows hold `problem, answer` or `question, answer` (GSM8K's `#### 42` is understood). The whole
    file serves any split unless `holdout` is set; the same text is always on the same side.

    Raises FileNotFoundError where there is no such file; ValueError where the file, or a line of it, is not as
    described; the message names both.
    """
    path = Path(path)
    # Numbers stay as they are written: 0.10 and 12345678901234567890.5 lose nothing.
    is_named_so = ".jsonl" in path.suffixes
    fix = "" if is_named_so else "; only .json, .csv, .tsv and .parquet files are read as others"
    rows = json_rows(path, number_type=str, fix=fix)
    return tasks_of_file(path, rows, options or SourceOptions())


def tasks_of_file(path: Path, rows: Iterable[tuple[int, Any]], options: SourceOptions) -> ListTasks:
    """Return the tasks of the rows of a file, which come with the numbers of their lines. Raises as `load_jsonl` does.

    A row without an `id` is named by file and line, which say where to look for it.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"task file {path} does not exist; give a .jsonl or .json, .csv, .tsv or .parquet file"
        )
    options.refuse(f"{path} is a file", "config")
    shapes = [options.fields] if options.fields else options.shapes
    named_rows = ((f"{path}:{number}", f"{path.name}-{number}", row) for number, row in rows)
    tasks = tasks_of(named_rows, str(path), shapes, options)
    return ListTasks(
        apply_holdout(tasks, str(path), options.split, options.holdout or 0.0, whole=True),
        path.name,
        options.split,
    )


def json_rows(
    path: Path, number_type: Callable[[str], Any] | None = None, fix: str = ""
) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a `.jsonl`, `.jsonl.gz` or `.jsonl.xz` file (UTF-8), each with the number of its line.

    Blank lines are skipped. `number_type` makes a number of its text; an int or a float when left out. `fix` ends the
    error of a line that is not JSON.

    Raises ValueError where a line is not JSON or too long, or the file is not complete, is no plain file, or holds too
    much: of few bytes a packed file can make very many.
    """
    number = 0
    try:
        for number, line in enumerate(plain_lines(path), start=1):
            if line.strip():
                yield number, json.loads(line, parse_int=number_type, parse_float=number_type)
    except (TooMuch, WrongEncoding):
        raise
    except (ValueError, RecursionError) as error:
        where = str(error)
        if isinstance(error, json.JSONDecodeError):
            where = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise ValueError(f"{path}:{number} is not JSON in UTF-8: {where}{fix}") from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


class WrongEncoding(ValueError):
    """A file of text is in UTF-16."""


def plain_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as `data_lines` does, without the mark (BOM) that may stand in front of UTF-8.

    Raises WrongEncoding if the file is in UTF-16.
    """
    lines = data_lines(path)
    first = next(lines, b"")
    if first.startswith(_BOMS_16):
        raise WrongEncoding(
            f"{path} is in UTF-16; save it as UTF-8, as with: iconv -f UTF-16 -t UTF-8"
        )
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from lines
