"""Files of tasks: JSON lines, JSON, CSV, TSV, Parquet, and folders in the layout of the Hugging Face hub.

All of them are read as data and within the limits of `tools.files`. Parquet needs the package pyarrow (extra
`parquet`), a folder the package datasets (extra `tasks`).
"""

import csv
import gzip
import importlib
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..tools.files import LEAST, MOST_RATIO, TooMuch, open_plain, read_text
from .rows import SourceOptions, json_rows, load_jsonl, plain_lines, make_tasks_of_file
from .tasks import ListTasks

Rows = Iterator[tuple[int, Any]]
"""Rows of a file, each with the number of its line; of Parquet with its own number, from 1."""
_PACKED = (".gz", ".xz")
_HEADERS = ("problem", "question", "prompt", "answer")
_FAR = ("://", "::", "..")  # parts of a path that leads out of a folder of data


def load_file(path: str | Path, options: SourceOptions | None = None) -> ListTasks:
    """Read the tasks of a `.json`, `.csv`, `.tsv` (each also `.gz`, `.xz`) or `.parquet` file; any other is JSON lines.

    A `.json` file holds a list of objects, or JSON lines. The first line of a CSV names its columns. `load_jsonl`
    describes the rows.

    Raises FileNotFoundError if there is no such file; ValueError if the file, or a row of it, cannot be used, or a
    package is missing; the message names file and row.
    """
    path, options = Path(path), options or SourceOptions()
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix not in _PACKED]
    read = _READERS.get(suffixes[-1] if suffixes else "")
    if read is None:
        return load_jsonl(path, options)
    return make_tasks_of_file(path, read(path), options)


def check_folder(folder: Path) -> None:
    """Check that the card of a folder of data, its README.md, names no data outside of the folder.

    Raises ValueError if it does, or cannot be read.
    """
    card = folder / "README.md"
    if not card.is_file():
        return
    for name in _data_files(_front_matter(card)):
        if name.startswith(("/", "~")) or any(part in name for part in _FAR):
            raise ValueError(
                f"{card} names the data file {name!r}, which is outside of {folder}; put it into the folder"
            )


def _front_matter(card: Path) -> Any:
    """Return what stands between the first two `---` of a card."""
    yaml = importlib.import_module("yaml")  # it comes with the package datasets
    text = read_text(card)
    if not text.startswith("---"):
        return None
    try:
        return yaml.safe_load(text.split("---", 2)[1])
    except yaml.YAMLError as error:
        raise ValueError(
            f"{card} has a header that is not YAML: {' '.join(str(error).split())}"
        ) from None


def _data_files(value: Any) -> Iterator[str]:
    """Yield the texts below `configs` of a card, which name its data files."""
    left = [value.get("configs")] if isinstance(value, Mapping) else []
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            left += item.values()
        elif isinstance(item, list):
            left += item


def _read_json(path: Path) -> Rows:
    """Yield the rows of a file that holds a list of objects, or JSON lines."""
    text = "".join(line for _, line in _text_lines(path))
    if not text.strip():
        raise ValueError(f'{path} is empty; it needs a list, [{{"question": …, "answer": …}}, …]')
    try:
        rows = json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # JSON lines
            yield from json_rows(path, number_type=str)
            return
        raise ValueError(
            f"{path}:{error.lineno} is not JSON: {error.msg} at character {error.colno}"
        ) from None
    except RecursionError:
        raise ValueError(f"{path} is not JSON that can be read: it is nested too deeply") from None
    if isinstance(rows, dict) and not any(
        isinstance(value, list | dict) for value in rows.values()
    ):
        rows = [rows]  # JSON lines with one line
    if not isinstance(rows, list):
        raise ValueError(
            f'{path} holds a {type(rows).__name__}; it needs a list, [{{"question": …, "answer": …}}, …]'
        )
    yield from enumerate(rows, start=1)


def _read_csv(path: Path) -> Rows:
    return _read_table(path, ",")


def _read_tsv(path: Path) -> Rows:
    return _read_table(path, "\t")


def _read_table(path: Path, delimiter: str) -> Rows:
    """Yield the rows of a table whose first line names its columns."""
    reader = csv.reader((line for _, line in _text_lines(path)), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        _check_header(path, header, delimiter)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                fix = f'write "…" around a cell that holds {"a comma" if delimiter == "," else "a tab"}'
                raise ValueError(
                    f"{path}:{reader.line_num} has {len(cells)} cells for {len(header)} columns; {fix}"
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num} is not CSV: {error}") from None


def _check_header(path: Path, header: list[str], delimiter: str) -> None:
    """Raise ValueError if the first line of a table can be no header of it."""
    if len(header) == 1 and delimiter == "," and any(sign in header[0] for sign in ";\t|"):
        raise ValueError(
            f"{path} has the one column {header[0]!r:.80}; put commas between the columns"
        )
    if len(set(header)) != len(header):
        raise ValueError(f"{path} has the columns {', '.join(header)}; give each another name")
    if (
        header
        and not any(name in header for name in _HEADERS)
        and not all(name.isidentifier() for name in header)
    ):
        fix = "its first line has to name the columns, such as question,answer"
        raise ValueError(f"{path} begins with {', '.join(header)!r:.80}; {fix}")


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text in UTF-8, with their numbers."""
    number = 0
    try:
        for number, line in enumerate(plain_lines(path), start=1):
            yield number, line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number} is not text in UTF-8: {error}; save the file as UTF-8"
        ) from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


def _read_parquet(path: Path) -> Rows:
    """Yield the rows of a Parquet file, within the limit for packed files."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{path} needs the package pyarrow: pip install 'turngym[parquet]'"
        ) from None
    number = 0
    with open_plain(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        left = most = max(LEAST, MOST_RATIO * size)
        try:
            for batch in parquet.ParquetFile(file).iter_batches(1000):
                left -= batch.nbytes
                if left < 0:
                    raise TooMuch(
                        f"{path} has {size >> 10} KiB and holds more than {most >> 20} MiB"
                    )
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(
                f"{path} is no Parquet file that can be read: {' '.join(str(error).split())}"
            ) from None


_READERS: Mapping[str, Callable[[Path], Rows]] = {
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
