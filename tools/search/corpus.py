"""Corpora: passages from a JSONL file, checked line by line.

A row is `{"id", "title", "text"}`, or `{"id", "contents"}` as in the corpora of Search-R1 (Jin et al., 2025,
arXiv:2503.09516), whose contents are the title in quotes, a line break and the text.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .core import Passage


def read_corpus(path: str | Path) -> list[Passage]:
    """Return the passages of a `.jsonl` or `.jsonl.gz` file (UTF-8), in its order; blank lines are skipped.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file, or a line of it, is not as described, or two rows have the same id; the message names the
            lines.
    """
    path = Path(path)
    passages, lines = [], dict[str, int]()
    for number, row in _rows(path):
        passage = _passage(row, f"{path}:{number}")
        if passage.id in lines:
            raise ValueError(f"{path}: lines {lines[passage.id]} and {number} have the same id {passage.id!r}")
        lines[passage.id] = number
        passages.append(passage)
    if not passages:
        raise ValueError(f"the corpus {path} holds no passages")
    return passages


def split_contents(contents: str) -> tuple[str, str]:
    """Return the title and the text of Search-R1's `"title"\\ntext`; what has no such first line has no title."""
    first, broken, rest = contents.partition("\n")
    if broken and len(first) > 1 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


def join_contents(title: str, text: str) -> str:
    """Return what `split_contents` takes apart."""
    return f'"{title}"\n{text}'


def check_file(path: Path) -> None:
    """Raise FileNotFoundError where there is no such file."""
    if not path.is_file():
        raise FileNotFoundError(f"the corpus {path} does not exist or is no file; give a .jsonl or .jsonl.gz file")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    check_file(path)
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}:{number} is not UTF-8: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}:{number} is not JSON: {error}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}") from None


def _passage(row: Any, where: str) -> Passage:
    if not isinstance(row, dict):
        raise ValueError(f"{where} holds {_short(row)}; a row is an object with id and text")
    key = row.get("id")
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        raise ValueError(f"{where} has the id {_short(key)}; an id is a text or a whole number")
    title, text = row.get("title", ""), row.get("text")
    if "text" not in row and isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
    if not isinstance(title, str):
        raise ValueError(f"{where} has the title {_short(title)}; a title is a text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where} has no text: its text is {_short(text)}")
    try:
        f"{key}{title}{text}".encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} holds half a character, which no UTF-8 can write: {error}") from None
    return Passage(str(key), title, text)


def _short(value: Any) -> str:
    """Return how a value of a row looks in a message."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
