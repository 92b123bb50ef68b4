"""Completions that a grader or a tool loop must not be fooled by, read from a JSONL file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVS = ("math", "math_tool")


@dataclass(frozen=True)
class Answer:
    """A completion, its gold, and the predicates that must hold for it."""

    id: str
    env: str
    text: str
    gold: str
    must_hold: tuple[str, ...]


def answers(path: Path) -> tuple[list[Answer], Counter[str]]:
    """Read the rows of `ENVS`; return them and how many rows there are of other environments.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not such a row; the message names it.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; --answers names a JSONL file of hostile completions"
        )
    found: list[Answer] = []
    others = Counter[str]()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if row["env"] in ENVS:
                wanted = tuple(part.strip() for part in row["must_hold"].split(";"))
                found.append(Answer(row["id"], row["env"], full_text(row), row["gold"], wanted))
            else:
                others[row["env"]] += 1
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{path}:{number} is no row with id, env, text, gold and must_hold: {fault}"
            ) from None
    if len({answer.id for answer in found}) < len(found):
        raise ValueError(f"{path} has two rows with one id; each row needs its own")
    return found, others


def full_text(row: Mapping[str, Any]) -> str:
    """Return the text of a row: its parts joined, or `text` filled and repeated as the row says."""
    if "parts" in row:
        return "".join(text * times for text, times in row["parts"])
    text: str = row["text"]
    if "fill" in row:
        text = text.replace("%s", "A" * int(row["fill"]), 1)
    return text * int(row.get("repeat", 1))
