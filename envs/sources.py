"""Where questions come from: a file, a folder of data, or a data set of the Hugging Face hub.

`load_tasks` decides which of these a name means. Data sets are read with the `datasets` library
(extra `tasks`).
"""

import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .rows import (
    CATEGORY_FIELDS,
    SHAPES,
    Fields,
    LocatedRow,
    SourceOptions,
    apply_holdout,
    describe_fields,
    make_tasks,
)
from .splits import ALL
from .task_files import check_folder, load_file
from .tasks import ListTasks, Tasks, did_you_mean

# A name that was meant as a path: it has a separator or `~`, begins with a dot, or ends like a
# file.
_LOOKS_LIKE_PATH = re.compile(r"[/\\~]|^\.|\.(?:jsonl?|gz|xz|csv|tsv|parquet|txt)$")
VALID_SPLIT_NAMES = (
    "validation",
    "valid",
    "val",
    "dev",
)  # names that data sets give to the split `valid`
DEFAULT_HOLDOUT = 0.05  # the share of train that is held out if a data set has no split `valid`
_BATCH_ROWS = 1000  # rows read at a time; one at a time takes ten times as long


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub.

    Args:
        path: Its name on the hub (`owner/name`), or a folder.
        fields: Where its rows have problem and answer.
        splits: The data set's name of each of our splits; without `valid`, a part of `train` is
            held out. None: those that it has under the usual names.
        configs: Its parts, which are read one after another; empty if there is only one.
        repeats: Whether the file repeats its rows in the same order, again and again. Then each
            row is taken once, and no problem that has two different answers.
    """

    path: str
    fields: Sequence[Fields] = SHAPES
    splits: Mapping[str, str] | None = None
    configs: Sequence[str] = ()
    repeats: bool = False


def read_data_sets(
    file: Path, shapes: Sequence[Fields], *converters: Callable[[Any], Any]
) -> dict[str, DataSet]:
    """Read the descriptions of data sets in a TOML file.

    Args:
        file: Each of its tables is a data set; the keys are those of `DataSet` and `Fields`.
        shapes: The fields of a data set whose table has no `fields`.
        converters: The functions that `prompt` and `gold` of the fields may name.

    Returns:
        The data sets by name.
    """
    converter_by_name = {converter.__name__: converter for converter in converters}
    data_sets = {}
    for name, table in tomllib.loads(file.read_text("utf-8")).items():
        fields_of_table = []
        for field_arguments in table.get("fields", ()):
            for key in ("prompt", "gold"):
                if key in field_arguments:
                    converter_name = field_arguments[key]
                    field_arguments[key] = converter_by_name[converter_name]
            fields_of_table.append(Fields(**field_arguments))
        table["fields"] = fields_of_table or shapes
        data_sets[name] = DataSet(**table)
    return data_sets


def load_tasks(
    source: str | Path,
    options: SourceOptions = SourceOptions(),  # noqa: B008 (immutable)
    known: Mapping[str, DataSet] = MappingProxyType({}),
    others: str = "",
) -> Tasks:
    """Return the tasks of a file, a folder or a data set.

    Args:
        source: The first of these that it can be: a file that exists; the name of a data set in
            `known`; a folder in the layout of the hub (`data/train-00000-of-00001.parquet`,
            `train.jsonl`, …); `owner/name` on the hub.
        options: The split, the fields and so on; an option that the source would ignore is refused.
        known: The data sets that have a short name.
        others: The end of the error for an unknown name: other things that it may be.

    Raises:
        FileNotFoundError: `source` looks like the path of a file, which does not exist.
        ValueError: There is no such source, or it cannot be read.
    """
    name = str(source)
    path = Path(source)
    if is_file(path):
        return load_file(path, options)
    is_known = name in known or any(data_set.path == name for data_set in known.values())
    if not is_known and is_folder(path):
        return load_folder(path, options)
    if isinstance(source, str) and (is_known or is_hub_name(name)):
        return load_hub(name, options, known)
    if isinstance(source, Path) or _LOOKS_LIKE_PATH.search(name):
        return load_file(path, options)  # it raises the FileNotFoundError
    raise ValueError(
        f"unknown task set {name!r}; {did_you_mean(name, known)}the data sets are "
        f"{', '.join(known)} and OWNER/NAME of the hub; or name a .jsonl file{others}"
    )


def is_file(source: str | Path) -> bool:
    """Return whether a file exists; False for a name that is too long to be one."""
    try:
        return Path(source).is_file()
    except OSError:
        return False


def is_folder(source: str | Path) -> bool:
    """Return whether a folder exists; False for a name that is too long to be one."""
    try:
        return Path(source).is_dir()
    except OSError:
        return False


def is_hub_name(name: str) -> bool:
    """Return whether `name` could be a data set's on the hub: `owner/name`, which is no file's."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*(?<!\.jsonl)(?<!\.json)(?<!\.gz)", name) is not None


def load_folder(folder: Path, options: SourceOptions) -> Tasks:
    """Load the data set in a folder of the hub's layout.

    Raises:
        ValueError: The `datasets` library is missing, the folder's card names data elsewhere, or
            the data set cannot be used.
    """
    library("datasets", f"the folder {folder}")
    check_folder(folder)
    data_set = DataSet(str(folder), options.shapes)
    return _load_data_set(data_set, folder.resolve().name, options)


def load_hub(name: str, options: SourceOptions, known: Mapping[str, DataSet]) -> ListTasks:
    """Load a data set of the hub; the `datasets` library caches what it downloads.

    Args:
        name: A short name in `known`, or a name on the hub.
        options: The split, the holdout, and how rows are read.
        known: The data sets that have a short name.

    Raises:
        ValueError: The library is missing, or the data set cannot be loaded, or has no such split,
            or a row of it cannot be used. The message names data set, split and row.
    """
    data_set = known.get(name)
    if data_set is None:
        # A known data set may also be named by its path, and then its fields are known as well.
        same_path = (other for other in known.values() if other.path == name)
        data_set = next(same_path, DataSet(name, options.shapes))
    return _load_data_set(data_set, name, options)


def _load_data_set(data_set: DataSet, name: str, options: SourceOptions) -> ListTasks:
    """Load the tasks of a split of a data set.

    Args:
        data_set: The data set.
        name: What the user has called it.
        options: The split, the holdout, and which part and fields to read.
    """
    if options.config is not None:
        data_set = replace(data_set, configs=(options.config,))
    if options.fields is not None:
        data_set = replace(data_set, fields=(options.fields,))
    splits_to_read, holdout = _choose_splits(data_set, name, options)
    rows = chain.from_iterable(_read_rows(data_set, name, split) for split in splits_to_read)
    source = data_set.path
    if len(splits_to_read) == 1:
        source = f"split {splits_to_read[0]!r} of {data_set.path}"
    tasks = make_tasks(rows, source, data_set.fields, options)
    if data_set.repeats:
        # Equal rows are read once, so a prompt that is still there twice has two answers.
        count_by_prompt = Counter(task.prompt for task in tasks)
        tasks = [task for task in tasks if count_by_prompt[task.prompt] == 1]
    split_tasks = apply_holdout(tasks, name, options.split, holdout)
    return ListTasks(split_tasks, name, options.split)


def _choose_splits(
    data_set: DataSet, name: str, options: SourceOptions
) -> tuple[Sequence[str], float]:
    """Choose the splits of a data set to read for the split that `options` asks for.

    Without its own split for valid, a share of the data set's train is held out for valid.

    Returns:
        The data set's names of the splits to read, and the share of their tasks to hold out; 0.0
        to hold out none.

    Raises:
        ValueError: The data set has no such split, or a holdout is given that would be ignored, or
            0 is given though a holdout is needed.
    """
    # The data set's name of each of our splits that it has.
    name_by_split = data_set.splits
    if name_by_split is None:
        name_by_split = _find_splits(data_set)
    if options.split == ALL and name_by_split:
        return list(dict.fromkeys(name_by_split.values())), 0.0
    needs_holdout = options.split != "test" and "valid" not in name_by_split
    if options.split in name_by_split and not needs_holdout:
        options.refuse(f"{name} has a split of its own for {options.split!r}", "holdout")
        return [name_by_split[options.split]], 0.0
    if options.split == "test" or "train" not in name_by_split:
        present_splits = ", ".join(name_by_split) or "none of ours"
        raise ValueError(
            f"{name} has no split for {options.split!r}; its rows serve {present_splits}; "
            "name one with --split, or all"
        )
    holdout = DEFAULT_HOLDOUT if options.holdout is None else options.holdout
    if options.split == "valid" and not holdout:
        raise ValueError(
            f"holdout is 0, but {name} has no split for 'valid'; "
            "hold out a share of train, such as 0.05"
        )
    return [name_by_split["train"]], holdout


def _find_splits(data_set: DataSet) -> dict[str, str]:
    """Return which of our splits a data set has under a usual name.

    Returns:
        The data set's name of each split: {"train": "train", "valid": "validation"}.
    """
    names = _call_datasets(
        data_set.path,
        data_set.path,
        "get_dataset_split_names",
        *data_set.configs[:1],
    )
    name_by_split = {}
    if "train" in names:
        name_by_split["train"] = "train"
    valid_name = next((name for name in VALID_SPLIT_NAMES if name in names), None)
    if valid_name is not None:
        name_by_split["valid"] = valid_name
    if "test" in names:
        name_by_split["test"] = "test"
    return name_by_split


def _read_rows(data_set: DataSet, name: str, split: str) -> Iterator[LocatedRow]:
    """Yield the rows of one split of a data set, part after part.

    Args:
        data_set: The data set. Only the columns of its fields are read.
        name: What the user has called it. Tasks are named `NAME-SPLIT-NUMBER`, or, if there are
            several parts, `NAME-PART-SPLIT-NUMBER`.
        split: The data set's own name of the split.
    """
    for config in data_set.configs or (None,):
        table = _call_datasets(name, data_set.path, "load_dataset", config, split=split)
        columns = _columns_to_read(data_set, table.column_names)
        part = f" ({config})" if config else ""
        place = f"{data_set.path}{part}, split {split!r}, row"
        task_prefix = f"{name}-{split}"
        if config and len(data_set.configs) > 1:
            task_prefix = f"{name}-{config}-{split}"
        if data_set.repeats:
            numbered_rows = _rows_before_repetition(table, columns)
        else:
            numbered_rows = enumerate(_iterate_values(table.select_columns(columns)))
        for number, values in numbered_rows:
            row = dict(zip(columns, values, strict=True))
            yield LocatedRow(
                place=f"{place} {number}", task_name=f"{task_prefix}-{number}", row=row
            )


def _columns_to_read(data_set: DataSet, names: list[str]) -> list[str]:
    """Return the columns of a data set that its tasks need.

    Args:
        data_set: The data set, whose `fields` are pairs of columns for problem and answer. The
            first pair that is there is read.
        names: The names of all its columns.

    Returns:
        The columns of problem and answer, then those of aliases and categories that it has.

    Raises:
        ValueError: It has the columns of none of its `fields`.
    """
    for fields in data_set.fields:
        # A nested field such as "reward_model.ground_truth" is in the column "reward_model".
        columns = [field.split(".")[0] for field in (fields.problem, fields.answer)]
        if not set(columns) <= set(names):
            continue
        optional = (fields.aliases, *CATEGORY_FIELDS, fields.category)
        return columns + [name for name in optional if name in names and name not in columns]
    raise ValueError(
        f"{data_set.path} has the fields {', '.join(names)}; "
        f"it needs {describe_fields(data_set.fields)}: "
        "name others with --option problem_field=NAME --option answer_field=NAME"
    )


def _rows_before_repetition(
    table: Any, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the different rows of a table that repeats, until its first row appears again.

    Args:
        table: A table of the `datasets` library. Its rows are compared in all columns.
        columns: The columns to yield.

    Yields:
        The number of a row and its values in `columns`, if no earlier row has the same.
    """
    column_indices = [table.column_names.index(column) for column in columns]
    first_row = None
    keys_of_earlier_rows = set()
    for number, row in enumerate(_iterate_values(table)):
        if number == 0:
            first_row = row
        elif row == first_row:
            return
        values = tuple(row[index] for index in column_indices)
        key = repr(values)  # the values themselves may be lists, which cannot be in a set
        if key not in keys_of_earlier_rows:
            keys_of_earlier_rows.add(key)
            yield number, values


def _iterate_values(table: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row of a table of the `datasets` library, in the columns' order."""
    for batch in table.iter(_BATCH_ROWS):
        yield from zip(*batch.values(), strict=True)


def library(module: str, what: str) -> Any:
    """Import a module that comes with `pip install 'turngym[tasks]'`.

    Args:
        module: The name of the module.
        what: The data set or folder that needs it, for the error.

    Raises:
        ValueError: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.replace("_", "-")
        raise ValueError(
            f"{what} needs the package {package}: pip install 'turngym[tasks]'"
        ) from None


def _call_datasets(name: str, path: str, function: str, *args: Any, **options: Any) -> Any:
    """Call a function of the `datasets` library and return its result.

    Args:
        name: What the user has called the data set, for the error if the library is missing.
        path: The data set's path, the function's first argument.
        function: The name of the function.
        args: Its other positional arguments.
        options: Its keyword arguments.

    Raises:
        ValueError: The library is missing, or raises an error.
    """
    datasets = library("datasets", name)
    try:
        return getattr(datasets, function)(path, *args, **options)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        message_on_one_line = " ".join(str(error).split())
        raise ValueError(f"data set {path} cannot be loaded: {message_on_one_line}") from error
