"""Reading a corpus of passages from a file, and choosing the rows with the highest scores.

A line of a corpus file is the JSON object `{"id", "title", "text"}`, or `{"id", "contents"}` as in
the corpora of Search-R1 (Jin et al., 2025, arXiv:2503.09516), whose contents are the title in
quotes, a line break and the text.
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

from ..files import read_data_lines
from ..progress import track
from .retriever import Passage, split_contents


def read_corpus(path: str | Path) -> list[Passage]:
    """Read the passages of a `.jsonl` or `.jsonl.gz` file (UTF-8), in its order.

    Blank lines are skipped.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not a passage in JSON, two lines have the same id, there are no
            passages, or a gzip file is not complete. The message names the lines.
    """
    path = Path(path)
    passages: list[Passage] = []
    line_of_id: dict[str, int] = {}
    for line_number, row in track(_read_rows(path), f"reading {path}"):
        passage = _parse_passage(row, location=f"{path}:{line_number}")
        if passage.id in line_of_id:
            raise ValueError(
                f"{path}: lines {line_of_id[passage.id]} and {line_number} "
                f"have the same id {passage.id!r}"
            )
        line_of_id[passage.id] = line_number
        passages.append(passage)
    if not passages:
        raise ValueError(f"the corpus {path} holds no passages")
    return passages


def rank_top_k(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Return the indices of the `k` highest scores, highest first; ties keep their order."""
    # First pick candidates in linear time, so that only these few are sorted.
    if k < len(scores):
        kth_highest = np.partition(scores, -k)[-k]
        candidates = np.flatnonzero(scores >= kth_highest)  # more than k if scores are equal
    else:
        candidates = np.flatnonzero(scores >= -np.inf)  # all but NaN
    descending = np.argsort(-scores[candidates], kind="stable")
    return candidates[descending[:k]]


def content_digest(path: Path) -> str:
    """Return the sha256 of a corpus file; raises FileNotFoundError if there is none."""
    _check_is_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_is_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"the corpus {path} does not exist or is no file; give a .jsonl or .jsonl.gz file"
        )


def _read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line number (from 1) and the JSON value of each line that is not blank.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not JSON in UTF-8, or a gzip file is not complete.
    """
    _check_is_file(path)
    line_number = 0
    try:
        for line_number, line in enumerate(read_data_lines(path), start=1):
            if not line.strip():
                continue
            # Some editors put a byte order mark in front of the first line.
            encoding = "utf-8-sig" if line_number == 1 else "utf-8"
            yield line_number, json.loads(line.decode(encoding))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}:{line_number} is not UTF-8: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}:{line_number} is not JSON: {error}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}") from None


def _parse_passage(row: Any, location: str) -> Passage:
    """Return the passage that a line of a corpus describes.

    Args:
        row: The JSON value of the line.
        location: The line as `path:number`, for error messages.

    Raises:
        ValueError: The row is not an object with an id and a text, or its title is not a string.
    """
    if not isinstance(row, dict):
        raise ValueError(
            f"{location} holds {_shorten_repr(row)}; a row is an object with id and text"
        )
    passage_id = row.get("id")
    # In Python, True and False are ints, too.
    is_text_or_number = isinstance(passage_id, str | int) and not isinstance(passage_id, bool)
    if not is_text_or_number or passage_id == "":
        raise ValueError(
            f"{location} has the id {_shorten_repr(passage_id)}; an id is a text or a whole number"
        )
    title = row.get("title", "")
    text = row.get("text")
    if "text" not in row and isinstance(row.get("contents"), str):
        title, text = split_contents(row["contents"])
    if not isinstance(title, str):
        raise ValueError(f"{location} has the title {_shorten_repr(title)}; a title is a text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{location} has no text: its text is {_shorten_repr(text)}")
    try:
        # JSON can spell half of a surrogate pair ("\ud83d"), which is not a character.
        f"{passage_id}{title}{text}".encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{location} holds half a character, which no UTF-8 can write: {error}"
        ) from None
    return Passage(str(passage_id), title, text)


def _shorten_repr(value: Any, max_chars: int = 80) -> str:
    """Return the repr of a value, cut after `max_chars` characters and ended by `…` if longer."""
    full_repr = repr(value)
    return full_repr if len(full_repr) <= max_chars else f"{full_repr[:max_chars]}…"
