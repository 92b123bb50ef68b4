"""Data sets of questions on the Hugging Face hub, read with the `datasets` library (extra `tasks`)."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .given import Given
from .rows import SHAPES, Fields, expected
from .tasks import ListTasks, kept, tasks_of

VALID = ("validation", "valid", "val", "dev")  # names of a split that is `valid` here
HOLDOUT = 0.05  # share of a train split that is `valid` where the data set has no such split


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub.

    Args:
        path: Its name there.
        fields: Where its rows hold problem and answer.
        splits: Which of its splits serves each of ours; without a `valid` it is a part of `train`. None: as they are
            called.
        configs: Its parts, read one after another; empty where it has one.
        repeats: Whether its rows come several times, in the same order: each is taken once, and a problem with two
            answers not at all.
    """

    path: str
    fields: Sequence[Fields] = SHAPES
    splits: Mapping[str, str] | None = None
    configs: Sequence[str] = ()
    repeats: bool = False


def is_hub_name(name: str) -> bool:
    """Return whether `name` could be a data set's: `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*(?<!\.jsonl)(?<!\.json)(?<!\.gz)", name) is not None


def load_hub(name: str, given: Given, known: Mapping[str, DataSet]) -> ListTasks:
    """Load a data set by its name in `known` or on the hub; the `datasets` library keeps what it has downloaded.

    Raises:
        ValueError: The library is missing, or the data set cannot be loaded, or has no such split, or a row of it
            cannot be used; the message names data set, split and row.
    """
    found = (one for one in known.values() if one.path == name)
    source = known.get(name) or next(found, DataSet(name, given.shapes))
    if given.config is not None:
        source = replace(source, configs=(given.config,))
    if given.fields is not None:
        source = replace(source, fields=(given.fields,))
    split, share = _place(source, name, given)
    tasks = tasks_of(
        _rows(source, name, split),
        f"split {split!r} of {source.path}",
        source.fields,
        check_gold=given.check_gold,
        bad_rows=given.bad_rows,
        make=given.make,
    )
    if source.repeats:
        times = Counter(task.prompt for task in tasks)
        tasks = [task for task in tasks if times[task.prompt] == 1]
    return ListTasks(kept(tasks, name, given.split, share), name, given.split)


def _place(source: DataSet, name: str, given: Given) -> tuple[str, float]:
    """Return the data set's split to read, and the share of it that is held out."""
    splits = _splits(source) if source.splits is None else source.splits
    if given.split in splits and (given.split == "test" or "valid" in splits):
        given.refuse(f"{name} has a split of its own for {given.split!r}", "holdout")
        return splits[given.split], 0.0
    if given.split == "test" or "train" not in splits:
        raise ValueError(
            f"{name} has no split for {given.split!r}; its rows serve {', '.join(splits) or 'none of ours'}"
        )
    share = HOLDOUT if given.holdout is None else given.holdout
    if given.split == "valid" and not share:
        raise ValueError(f"holdout is 0, but {name} has no split for 'valid'; hold out a share of train, such as 0.05")
    return splits["train"], share


def _splits(source: DataSet) -> dict[str, str]:
    datasets = _library(source.path)
    with _loading(datasets, source.path):
        found = datasets.get_dataset_split_names(source.path, *source.configs[:1])
    valid = next((name for name in VALID if name in found), "")
    return {ours: its for ours, its in (("train", "train"), ("valid", valid), ("test", "test")) if its in found}


def _rows(source: DataSet, name: str, split: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (where it is, a name for its task, the row) of all parts; the columns are those that are asked for."""
    datasets = _library(name)
    for config in source.configs or (None,):
        with _loading(datasets, source.path):
            data = datasets.load_dataset(source.path, config, split=split)
        columns = _columns(source, data.column_names)
        where = f"{source.path}{f' ({config})' if config else ''}, split {split!r}, row"
        part = "-".join(filter(None, (name, config if len(source.configs) > 1 else None, split)))
        rows = _once(data, columns) if source.repeats else enumerate(_values(data.select_columns(columns)))
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
            return columns + [field for field in (fields.aliases,) if field in found]
    raise ValueError(
        f"{source.path} has the fields {', '.join(found)}; it needs {expected(source.fields)}: name others with "
        "--option problem_field=NAME --option answer_field=NAME"
    )


def _values(data: Any) -> Iterator[tuple[Any, ...]]:
    # Row by row takes ten times as long.
    for batch in data.iter(1000):
        yield from zip(*batch.values(), strict=True)


def _library(name: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise ValueError(f"{name} needs the package datasets: pip install 'turngym[tasks]'") from None


@contextmanager
def _loading(datasets: Any, path: str) -> Iterator[None]:
    """Name the data set in what goes wrong."""
    try:
        yield
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(f"data set {path} cannot be loaded: {' '.join(str(error).split())}") from error
