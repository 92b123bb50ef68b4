"""A corpus of passages: read line by line from a file, named by its content, and its best rows by score.

A row of a corpus file is `{"id", "title", "text"}`, or `{"id", "contents"}` as in the corpora of Search-R1 (Jin et al.,
2025, arXiv:2503.09516), whose contents are the title in quotes, a line break and the text.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import data_lines
from ..progress import track
from .retriever import Passage, split_contents


def read_corpus(path: str | Path) -> list[Passage]:
    """Return the passages of a `.jsonl` or `.jsonl.gz` file (UTF-8), in its order; blank lines are skipped.

    Raises FileNotFoundError where there is no such file; ValueError where the file, or a line of it, is not as
    described, or two rows have the same id; the message names the lines.
    """
    path = Path(path)
    passages, lines = [], dict[str, int]()
    for number, row in track(_rows(path), f"reading {path}"):
        if (passage := _passage(row, f"{path}:{number}")).id in lines:
            raise ValueError(
                f"{path}: lines {lines[passage.id]} and {number} have the same id {passage.id!r}"
            )
        lines[passage.id] = number
        passages.append(passage)
    if not passages:
        raise ValueError(f"the corpus {path} holds no passages")
    return passages


def best(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Return the places of the `k` highest scores, highest first; of equal ones the first come first."""
    floor = np.partition(scores, -k)[-k] if k < len(scores) else -np.inf
    places = np.flatnonzero(scores >= floor)
    return places[np.argsort(-scores[places], kind="stable")[:k]]


def content_digest(path: Path) -> str:
    _check_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"the corpus {path} does not exist or is no file; give a .jsonl or .jsonl.gz file"
        )


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    _check_file(path)
    number = 0
    try:
        for number, line in enumerate(data_lines(path), start=1):
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
    if isinstance(key := row.get("id"), bool) or not isinstance(key, str | int) or key == "":
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
        raise ValueError(
            f"{where} holds half a character, which no UTF-8 can write: {error}"
        ) from None
    return Passage(str(key), title, text)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
