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
    KINDS,
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
_PATH = re.compile(r"[/\\~]|^\.|\.(?:jsonl?|gz|xz|csv|tsv|parquet|txt)$")
VALID = ("validation", "valid", "val", "dev")  # names that data sets give to the split `valid`
HOLDOUT = 0.05  # the share of train that is held out if a data set has no split `valid`
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
    """Read a TOML table of data sets.

    Args:
        file: Each of its tables is a data set; the keys are those of `DataSet` and `Fields`.
        shapes: The fields of a data set that names none.
        converters: The functions that `prompt` and `gold` of its fields name.

    Returns:
        The data sets by name.
    """
    converter_by_name = {converter.__name__: converter for converter in converters}
    data_sets = {}
    for name, row in tomllib.loads(file.read_text("utf-8")).items():
        named_fields = []
        for field_row in row.get("fields", ()):
            for key in ("prompt", "gold"):
                if key in field_row:
                    field_row[key] = converter_by_name[field_row[key]]
            named_fields.append(Fields(**field_row))
        data_sets[name] = DataSet(**{**row, "fields": named_fields or shapes})
    return data_sets


def load_tasks(
    source: str | Path,
    options: SourceOptions = SourceOptions(),  # noqa: B008 (immutable)
    known: Mapping[str, DataSet] = MappingProxyType({}),
    others: str = "",
) -> Tasks:
    """Return the tasks that `source` names.

    Args:
        source: In this order: a file that exists, as `load_file` reads it; a name of `known`; a
            folder in the layout of the hub (`data/train-00000-of-00001.parquet`, `train.jsonl`, …);
            `owner/name` on the hub.
        options: Further options; one that the source would ignore is refused.
        known: The data sets that have a short name.
        others: What else could have been named, for the error.

    Raises:
        FileNotFoundError: It is the name of a file, and there is none.
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
    if isinstance(source, Path) or _PATH.search(name):
        return load_file(path, options)  # there is none, which the error says
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
    """Load the tasks of a data set, which the user has called `name`."""
    if options.config is not None:
        data_set = replace(data_set, configs=(options.config,))
    if options.fields is not None:
        data_set = replace(data_set, fields=(options.fields,))
    splits, holdout = _choose_splits(data_set, name, options)
    rows = chain.from_iterable(_read_rows(data_set, name, split) for split in splits)
    source = f"split {splits[0]!r} of {data_set.path}" if len(splits) == 1 else data_set.path
    tasks = make_tasks(rows, source, data_set.fields, options)
    if data_set.repeats:
        count_by_prompt = Counter(task.prompt for task in tasks)
        tasks = [task for task in tasks if count_by_prompt[task.prompt] == 1]
    chosen = apply_holdout(tasks, name, options.split, holdout)
    return ListTasks(chosen, name, options.split)


def _choose_splits(
    data_set: DataSet, name: str, options: SourceOptions
) -> tuple[Sequence[str], float]:
    """Decide which splits of a data set serve the split that is asked for.

    Returns:
        The data set's names of the splits to read, and the share of them that is held out.

    Raises:
        ValueError: No split of the data set serves it, or a holdout is given that would be ignored,
            or none that is needed.
    """
    splits = _find_splits(data_set) if data_set.splits is None else data_set.splits
    if options.split == ALL and splits:
        return list(dict.fromkeys(splits.values())), 0.0
    # `train` is whole only if the data set has another split for `valid`.
    is_whole = options.split == "test" or "valid" in splits
    if options.split in splits and is_whole:
        options.refuse(f"{name} has a split of its own for {options.split!r}", "holdout")
        return [splits[options.split]], 0.0
    if options.split == "test" or "train" not in splits:
        served = ", ".join(splits) or "none of ours"
        raise ValueError(
            f"{name} has no split for {options.split!r}; its rows serve {served}; "
            "name one with --split, or all"
        )
    holdout = HOLDOUT if options.holdout is None else options.holdout
    if options.split == "valid" and not holdout:
        raise ValueError(
            f"holdout is 0, but {name} has no split for 'valid'; "
            "hold out a share of train, such as 0.05"
        )
    return [splits["train"]], holdout


def _find_splits(data_set: DataSet) -> dict[str, str]:
    """Return the data set's name of each of our splits that it has under a usual name."""
    names = _call_datasets(
        data_set.path,
        data_set.path,
        "get_dataset_split_names",
        *data_set.configs[:1],
    )
    splits = {}
    if "train" in names:
        splits["train"] = "train"
    valid = next((name for name in VALID if name in names), None)
    if valid is not None:
        splits["valid"] = valid
    if "test" in names:
        splits["test"] = "test"
    return splits


def _read_rows(data_set: DataSet, name: str, split: str) -> Iterator[LocatedRow]:
    """Yield the rows of one split, of all parts of a data set, with only the columns that are used.

    Args:
        data_set: The data set.
        name: What the user has called it, with which the names of tasks begin.
        split: The data set's own name of the split.
    """
    for config in data_set.configs or (None,):
        table = _call_datasets(name, data_set.path, "load_dataset", config, split=split)
        columns = _columns_to_read(data_set, table.column_names)
        part = f" ({config})" if config else ""
        place = f"{data_set.path}{part}, split {split!r}, row"
        # Only with several parts does a task's name have to say which: NAME-PART-SPLIT-NUMBER.
        name_parts = [name, config if len(data_set.configs) > 1 else None, split]
        task_name = "-".join(filter(None, name_parts))
        if data_set.repeats:
            numbered_rows = _rows_before_repetition(table, columns)
        else:
            numbered_rows = enumerate(_iterate_values(table.select_columns(columns)))
        for number, values in numbered_rows:
            row = dict(zip(columns, values, strict=True))
            yield LocatedRow(f"{place} {number}", f"{task_name}-{number}", row)


def _columns_to_read(data_set: DataSet, names: list[str]) -> list[str]:
    """Return the columns of the first of a data set's fields that are among its columns `names`.

    Columns of aliases and categories follow, if it has them.
    """
    for fields in data_set.fields:
        columns = [field.split(".")[0] for field in (fields.problem, fields.answer)]
        if not set(columns) <= set(names):
            continue
        optional = (fields.aliases, *KINDS, fields.category)
        return columns + [field for field in optional if field in names and field not in columns]
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
    places = [table.column_names.index(column) for column in columns]
    first_row = None
    seen = set()
    for number, row in enumerate(_iterate_values(table)):
        if number and row == first_row:
            return
        first_row = first_row or row
        values = tuple(row[place] for place in places)
        key = repr(values)  # values may be lists, which a set cannot have
        if key not in seen:
            seen.add(key)
            yield number, values


def _iterate_values(table: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row of a table of the `datasets` library, in the columns' order."""
    for batch in table.iter(_BATCH_ROWS):
        yield from zip(*batch.values(), strict=True)


def library(module: str, what: str) -> Any:
    """Import a module of the extra `tasks`.

    Args:
        module: The name of the module.
        what: What needs it, for the ValueError that says that it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.replace("_", "-")
        raise ValueError(
            f"{what} needs the package {package}: pip install 'turngym[tasks]'"
        ) from None


def _call_datasets(name: str, path: str, function: str, *args: Any, **options: Any) -> Any:
    """Return the result of a function of the `datasets` library.

    Args:
        name: What needs the library, for the error that says that it is missing.
        path: The data set, its first argument.
        function: The name of the function.
        args: Its further arguments.
        options: Its keyword arguments.

    Raises:
        ValueError: The library is missing, or raises an error.
    """
    datasets = library("datasets", name)
    try:
        return getattr(datasets, function)(path, *args, **options)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"data set {path} cannot be loaded: {' '.join(str(error).split())}"
        ) from error
