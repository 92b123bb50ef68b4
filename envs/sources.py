"""Where questions come from: a file, or a data set of the Hugging Face hub or in a folder of its layout.

Data sets are read with the `datasets` library (extra `tasks`).
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

from .rows import KINDS, SHAPES, Fields, SourceOptions, apply_holdout, expected, tasks_of
from .splits import ALL
from .task_files import check_folder, load_file
from .tasks import ListTasks, Tasks, did_you_mean

_FILE = re.compile(r"[/\\~]|^\.|\.(?:jsonl?|gz|xz|csv|tsv|parquet|txt)$")
VALID = ("validation", "valid", "val", "dev")  # names of a split that is `valid` here
HOLDOUT = 0.05  # share of a train split that is `valid` where the data set has no such split


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub."""

    path: str  # its name there
    fields: Sequence[Fields] = SHAPES  # where its rows hold problem and answer
    splits: Mapping[str, str] | None = (
        None  # which serves each of ours; no `valid`: a part of `train`; None: as called
    )
    configs: Sequence[str] = ()  # its parts, read one after another; empty where it has one
    repeats: bool = False  # whether rows come again in the same order: each is taken once, none with two answers


def read_data_sets(
    file: Path, shapes: Sequence[Fields], *makers: Callable[[Any], Any]
) -> dict[str, DataSet]:
    """Return the data sets of a table by name, with `shapes` unless they name fields; `makers` make prompt and gold."""
    named = {maker.__name__: maker for maker in makers}

    def made(row: dict[str, Any]) -> Fields:
        return Fields(**(row | {key: named[row[key]] for key in ("prompt", "gold") if key in row}))

    rows = tomllib.loads(file.read_text("utf-8"))
    return {
        name: DataSet(**row | {"fields": [*map(made, row.get("fields", ()))] or shapes})
        for name, row in rows.items()
    }


def load_tasks(
    source: str | Path,
    options: SourceOptions = SourceOptions(),  # noqa: B008 (immutable)
    known: Mapping[str, DataSet] = MappingProxyType({}),
    others: str = "",
) -> Tasks:
    """Return the tasks that `source` names.

    source: In this order: a file that exists, as `load_file` reads it; a name of `known`; a folder in the layout of the
        hub (`data/train-00000-of-00001.parquet`, `train.jsonl`, …); `owner/name` on the hub.
    options: Further options; one that the source would ignore is refused.
    known: The data sets that have a short name.
    others: What else could have been named, for the error.

    Raises FileNotFoundError where it is the name of a file, and there is none; ValueError where there is no such
    source, or it cannot be read; the message says what there is.
    """
    name, path = str(source), Path(source)
    if is_file(path):
        return load_file(path, options)
    is_known = name in known or any(data_set.path == name for data_set in known.values())
    if not is_known and is_folder(path):
        return load_folder(path, options)
    if isinstance(source, str) and (is_known or is_hub_name(name)):
        return load_hub(name, options, known)
    if isinstance(source, Path) or _FILE.search(name):
        return load_file(path, options)
    sets = (
        f"{did_you_mean(name, known)}the data sets are {', '.join(known)} and OWNER/NAME of the hub"
    )
    raise ValueError(f"unknown task set {name!r}; {sets}; or name a .jsonl file{others}")


def load_folder(folder: Path, options: SourceOptions) -> Tasks:
    """Load the data set in a folder of the hub's layout. Raises as `load_hub` and `check_folder` do."""
    library("datasets", f"the folder {folder}")
    check_folder(folder)
    return _load(DataSet(str(folder), options.shapes), folder.resolve().name, options)


def is_file(source: str | Path) -> bool:
    """Return whether `source` is a file that exists; some names of task sets are too long for one."""
    try:
        return Path(source).is_file()
    except OSError:
        return False


def is_folder(source: str | Path) -> bool:
    """Return whether `source` is a folder that exists."""
    try:
        return Path(source).is_dir()
    except OSError:
        return False


def is_hub_name(name: str) -> bool:
    """Return whether `name` could be a data set's: `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*(?<!\.jsonl)(?<!\.json)(?<!\.gz)", name) is not None


def load_hub(name: str, options: SourceOptions, known: Mapping[str, DataSet]) -> ListTasks:
    """Load a data set by its name in `known` or on the hub; the `datasets` library keeps what it has downloaded.

    Raises ValueError where the library is missing, or the data set cannot be loaded, or has no such split, or a row of
    it cannot be used; the message names data set, split and row.
    """
    found = (one for one in known.values() if one.path == name)
    return _load(known.get(name) or next(found, DataSet(name, options.shapes)), name, options)


def _load(source: DataSet, name: str, options: SourceOptions) -> ListTasks:
    if options.config is not None:
        source = replace(source, configs=(options.config,))
    if options.fields is not None:
        source = replace(source, fields=(options.fields,))
    splits, share = _place(source, name, options)
    rows = chain.from_iterable(_rows(source, name, split) for split in splits)
    where = f"split {splits[0]!r} of {source.path}" if len(splits) == 1 else source.path
    tasks = tasks_of(rows, where, source.fields, options)
    if source.repeats:
        times = Counter(task.prompt for task in tasks)
        tasks = [task for task in tasks if times[task.prompt] == 1]
    return ListTasks(apply_holdout(tasks, name, options.split, share), name, options.split)


def _place(source: DataSet, name: str, options: SourceOptions) -> tuple[Sequence[str], float]:
    """Return the data set's splits to read, and the share of them that is held out."""
    splits = _splits(source) if source.splits is None else source.splits
    if options.split == ALL and splits:
        return list(dict.fromkeys(splits.values())), 0.0
    if options.split in splits and (options.split == "test" or "valid" in splits):
        options.refuse(f"{name} has a split of its own for {options.split!r}", "holdout")
        return [splits[options.split]], 0.0
    if options.split == "test" or "train" not in splits:
        served = ", ".join(splits) or "none of ours"
        raise ValueError(
            f"{name} has no split for {options.split!r}; its rows serve {served}; name one with --split, or all"
        )
    share = HOLDOUT if options.holdout is None else options.holdout
    if options.split == "valid" and not share:
        raise ValueError(
            f"holdout is 0, but {name} has no split for 'valid'; hold out a share of train, such as 0.05"
        )
    return [splits["train"]], share


def _splits(source: DataSet) -> dict[str, str]:
    found = _hub(source.path, source.path, "get_dataset_split_names", *source.configs[:1])
    valid = next((name for name in VALID if name in found), "")
    return {
        ours: its
        for ours, its in (("train", "train"), ("valid", valid), ("test", "test"))
        if its in found
    }


def _rows(source: DataSet, name: str, split: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (where it is, a name for its task, the row) of all parts; the columns are those that are asked for."""
    for config in source.configs or (None,):
        data = _hub(name, source.path, "load_dataset", config, split=split)
        columns = _columns(source, data.column_names)
        where = f"{source.path}{f' ({config})' if config else ''}, split {split!r}, row"
        part = "-".join(filter(None, (name, config if len(source.configs) > 1 else None, split)))
        rows = (
            _once(data, columns)
            if source.repeats
            else enumerate(_values(data.select_columns(columns)))
        )
        for i, values in rows:
            yield f"{where} {i}", f"{part}-{i}", dict(zip(columns, values, strict=True))


def _once(data: Any, columns: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield index and values of the rows up to where the first one comes again, without what came before."""
    places = [data.column_names.index(column) for column in columns]
    first, seen = None, set()
    for i, row in enumerate(_values(data)):
        if i and row == first:
            return
        first = first or row
        values = tuple(row[place] for place in places)
        if (key := repr(values)) not in seen:
            seen.add(key)
            yield i, values


def _columns(source: DataSet, found: list[str]) -> list[str]:
    """Return the columns of the first fields that the data set has."""
    for fields in source.fields:
        columns = [field.split(".")[0] for field in (fields.problem, fields.answer)]
        if set(columns) <= set(found):
            more = (fields.aliases, *KINDS, fields.category)
            return columns + [field for field in more if field in found and field not in columns]
    needed = f"{expected(source.fields)}: name others with --option problem_field=NAME --option answer_field=NAME"
    raise ValueError(f"{source.path} has the fields {', '.join(found)}; it needs {needed}")


def _values(data: Any) -> Iterator[tuple[Any, ...]]:
    for batch in data.iter(1000):  # row by row takes ten times as long
        yield from zip(*batch.values(), strict=True)


def library(module: str, what: str) -> Any:
    """Return a module of the extra `tasks`, which `what` needs; ValueError where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.replace("_", "-")
        raise ValueError(f"{what} needs the package {name}: pip install 'turngym[tasks]'") from None


def _hub(name: str, path: str, function: str, *args: Any, **options: Any) -> Any:
    """Return what a function of the library gives for a data set; an error of it is a ValueError that names the set."""
    datasets = library("datasets", name)
    try:
        return getattr(datasets, function)(path, *args, **options)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"data set {path} cannot be loaded: {' '.join(str(error).split())}"
        ) from error
