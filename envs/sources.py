"""Questions by name: a file, or a data set of the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from .given import Given
from .hub import DataSet, is_hub_name, load_hub
from .tasks import Tasks, load_jsonl

_FILE = re.compile(r"[/\\~]|^\.|\.(?:jsonl?|gz|csv|parquet|txt)$")


def load_tasks(source: str | Path, given: Given, known: Mapping[str, DataSet], others: str = "") -> Tasks:
    """Return the tasks that `source` names.

    Args:
        source: In this order: a file that exists; a name of `known`; `owner/name` on the hub.
        given: Further options; one that the source would ignore is refused.
        known: The data sets that have a short name.
        others: What else could have been named, for the error.

    Raises:
        FileNotFoundError: It is the name of a file, and there is none.
        ValueError: There is no such source, or it cannot be read; the message says what there is.
    """
    name, path = str(source), Path(source)
    if is_file(path):
        return _file(path, given)
    if isinstance(source, str) and (name in known or is_hub_name(name)):
        return load_hub(name, given, known)
    if isinstance(source, Path) or _FILE.search(name):
        return _file(path, given)
    near = get_close_matches(name, known, n=1)
    raise ValueError(
        f"unknown task set {name!r}; {f'did you mean {near[0]!r}? ' if near else ''}the data sets are "
        f"{', '.join(known)} and OWNER/NAME of the hub; or name a .jsonl file{others}"
    )


def is_file(source: str | Path) -> bool:
    """Return whether `source` is a file that exists; some names of task sets are too long for one."""
    try:
        return Path(source).is_file()
    except OSError:
        return False


def _file(path: Path, given: Given) -> Tasks:
    given.refuse(f"{path} is a file", "config")
    return load_jsonl(
        path,
        split=given.split,
        holdout=given.holdout or 0.0,
        shapes=given.shapes if given.fields is None else (given.fields,),
        check_gold=given.check_gold,
        bad_rows=given.bad_rows,
        make=given.make,
    )
