"""Files of tasks: JSON lines, JSON, CSV, TSV, Parquet, and folders in the hub's layout.

`load_file` picks the reader by the file's suffix. All files are read as data and within the limits
of `tools.files`. Parquet needs the package pyarrow (extra `parquet`), a folder the package datasets
(extra `tasks`).
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

from ..tools.files import MAX_UNPACKING_RATIO, MIN_UNPACKED_BYTES, TooMuch, open_plain, read_text
from .rows import SourceOptions, json_rows, load_jsonl, make_tasks_of_file, read_plain_lines
from .tasks import ListTasks

Rows = Iterator[tuple[int, Any]]
"""Rows of a file, each with the number of its line; in Parquet, of the row, from 1."""
_COMPRESSED = (".gz", ".xz")
# A table's first line is taken for a header if it has one of these names, or only identifiers.
_USUAL_COLUMNS = ("problem", "question", "prompt", "answer")
# Parts of a data file's name that lead out of its folder: URLs, chained file systems, parents.
_OUTSIDE_MARKS = ("://", "::", "..")
_BATCH_ROWS = 1000  # rows of a Parquet file that are in memory at a time


def load_file(path: str | Path, options: SourceOptions | None = None) -> ListTasks:
    """Read the tasks of a file in the format of its suffix.

    Formats are `.json`, `.csv` and `.tsv`, each also compressed (`.gz`, `.xz`), and `.parquet`. A
    file with any other suffix is read as JSON lines. A `.json` file is a list of objects, or JSON
    lines. The first line of a table names its columns. `load_jsonl` describes the rows.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file, or a row of it, cannot be used, or a package is missing. The message
            names file and row.
    """
    path = Path(path)
    options = options or SourceOptions()
    format_suffixes = [suffix.lower() for suffix in path.suffixes if suffix not in _COMPRESSED]
    if not format_suffixes or format_suffixes[-1] not in _READERS:
        return load_jsonl(path, options)
    read_rows = _READERS[format_suffixes[-1]]
    return make_tasks_of_file(path, read_rows(path), options)


def check_folder(folder: Path) -> None:
    """Check that a folder of data does not make the `datasets` library read files outside of it.

    The library would read, or download, any file that the card of the folder, its README.md, names.

    Raises:
        ValueError: The card names a file outside of the folder, or cannot be read.
    """
    card = folder / "README.md"
    if not card.is_file():
        return
    front_matter = _read_front_matter(card)
    for name in _iterate_config_texts(front_matter):
        is_outside = name.startswith(("/", "~")) or any(mark in name for mark in _OUTSIDE_MARKS)
        if is_outside:
            raise ValueError(
                f"{card} names the data file {name!r}, which is outside of {folder}; "
                "put it into the folder"
            )


def _read_front_matter(card: Path) -> Any:
    """Return the value of the YAML header of a card, between its first two `---`; None if none."""
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


def _iterate_config_texts(front_matter: Any) -> Iterator[str]:
    """Yield all texts in the entry `configs` of a card's front matter.

    The names of its data files are among them, but the entry has many forms, so all texts are
    checked.
    """
    if not isinstance(front_matter, Mapping):
        return
    unvisited = [front_matter["configs"]] if "configs" in front_matter else []
    while unvisited:
        value = unvisited.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            unvisited += value.values()
        elif isinstance(value, list):
            unvisited += value


def _read_json(path: Path) -> Rows:
    """Yield the rows of a file that is a JSON list of objects, or JSON lines.

    Numbers are returned as text, as they are written, so that 0.10 stays 0.10.

    Raises:
        ValueError: The file is empty, or it is neither.
    """
    text = "".join(line for _, line in _text_lines(path))
    if not text.strip():
        raise ValueError(f'{path} is empty; it needs a list, [{{"question": …, "answer": …}}, …]')
    try:
        rows = json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        # `json` says "Extra data" if something follows the first value, as in JSON lines.
        if error.msg == "Extra data":
            yield from json_rows(path, number_type=str)
            return
        raise ValueError(
            f"{path}:{error.lineno} is not JSON: {error.msg} at character {error.colno}"
        ) from None
    except RecursionError:
        raise ValueError(f"{path} is not JSON that can be read: it is nested too deeply") from None
    # One flat object is a row: JSON lines with a single line. A nested one is something else, such
    # as {"data": […]}.
    if isinstance(rows, dict):
        is_nested = any(isinstance(value, list | dict) for value in rows.values())
        if not is_nested:
            rows = [rows]
    if not isinstance(rows, list):
        raise ValueError(
            f"{path} holds a {type(rows).__name__}; "
            'it needs a list, [{"question": …, "answer": …}, …]'
        )
    yield from enumerate(rows, start=1)


def _read_csv(path: Path) -> Rows:
    """Yield the rows of a table whose cells are separated by commas."""
    return _read_table(path, delimiter=",")


def _read_tsv(path: Path) -> Rows:
    """Yield the rows of a table whose cells are separated by tabs."""
    return _read_table(path, delimiter="\t")


def _read_table(path: Path, delimiter: str) -> Rows:
    """Yield the rows of a table whose first line names its columns; skip empty lines.

    Args:
        path: The table.
        delimiter: The character between two cells, a comma or a tab.

    Yields:
        The number of the last line of each row, and its cells by column.
    """
    lines = (line for _, line in _text_lines(path))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        _check_header(path, header, delimiter)
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                separator = "a comma" if delimiter == "," else "a tab"
                raise ValueError(
                    f"{path}:{reader.line_num} has {len(cells)} cells for {len(header)} columns; "
                    f'write "…" around a cell that holds {separator}'
                )
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num} is not CSV: {error}") from None


def _check_header(path: Path, header: list[str], delimiter: str) -> None:
    """Raise ValueError if the first line of a table does not name its columns.

    Args:
        path: The table, for the error.
        header: The cells of its first line.
        delimiter: The character between two cells.
    """
    has_one_column = len(header) == 1 and delimiter == ","
    if has_one_column and any(other_delimiter in header[0] for other_delimiter in ";\t|"):
        raise ValueError(
            f"{path} has the one column {header[0]!r:.80}; put commas between the columns"
        )
    if len(set(header)) != len(header):
        raise ValueError(f"{path} has the columns {', '.join(header)}; give each another name")
    has_usual_column = any(name in header for name in _USUAL_COLUMNS)
    if not has_usual_column and not all(name.isidentifier() for name in header):
        raise ValueError(
            f"{path} begins with {', '.join(header)!r:.80}; "
            "its first line has to name the columns, such as question,answer"
        )


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file in UTF-8, each with its number, from 1."""
    line_number = 0
    try:
        for line_number, line in enumerate(read_plain_lines(path), start=1):
            yield line_number, line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{line_number} is not text in UTF-8: {error}; save the file as UTF-8"
        ) from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


def _read_parquet(path: Path) -> Rows:
    """Yield the rows of a Parquet file, each with its number, from 1.

    Raises:
        TooMuch: The rows take too much memory for the size of the file: a few compressed bytes can
            expand to very many.
        ValueError: The package pyarrow is missing, or the file is not Parquet.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{path} needs the package pyarrow: pip install 'turngym[parquet]'"
        ) from None
    row_number = 0
    unpacked_bytes = 0
    with open_plain(path, follow=True) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        max_unpacked_bytes = max(MIN_UNPACKED_BYTES, MAX_UNPACKING_RATIO * file_bytes)
        try:
            for batch in parquet.ParquetFile(file).iter_batches(_BATCH_ROWS):
                unpacked_bytes += batch.nbytes
                if unpacked_bytes > max_unpacked_bytes:
                    raise TooMuch(
                        f"{path} has {file_bytes >> 10} KiB "
                        f"and holds more than {max_unpacked_bytes >> 20} MiB"
                    )
                for row in batch.to_pylist():
                    row_number += 1
                    yield row_number, row
        except (pyarrow.ArrowException, OSError) as error:
            message_on_one_line = " ".join(str(error).split())
            raise ValueError(
                f"{path} is no Parquet file that can be read: {message_on_one_line}"
            ) from None


_READERS: Mapping[str, Callable[[Path], Rows]] = {
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
