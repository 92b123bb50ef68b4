"""Programs a Python tool must survive, and what must hold of each, read from a JSONL file.

A row has `id, category, code, must_hold`; `code` may be made longer by `repeat` (times), `fill` (bytes for its first
`%s`) or `parts` (pairs of a text and how often it stands there), and `requires` names a module it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENIGN = "ok"  # the category of programs that do no harm
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}


@dataclass(frozen=True)
class Promise:
    """A predicate of the vocabulary, with what stands behind its `=`."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        """Return the predicate as it is written."""
        return f"{self.name}={self.value}" if self.value else self.name


@dataclass(frozen=True)
class Program:
    """A program with its placeholders still in it; `requires` is a module without which it cannot be tried."""

    id: str
    category: str
    code: str
    promises: tuple[Promise, ...]
    requires: str | None = None


def read_programs(path: Path, known: Collection[str]) -> list[Program]:
    """Read a corpus whose predicates must be among `known`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row lacks something, an id comes twice, or a predicate is not known.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; --corpus names a JSONL file of programs")
    programs: dict[str, Program] = {}
    for number, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n"), 1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
            program = Program(
                row["id"],
                row["category"],
                full_text(row),
                promises(row["must_hold"], known, where),
                row.get("requires"),
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(
                f"{where} is no program ({error}); a row has id, category, code and must_hold"
            ) from None
        if programs.setdefault(program.id, program) is not program:
            raise ValueError(
                f"{where}: the id {program.id!r} stands there for the second time; give it another"
            )
    return list(programs.values())


def full_text(row: Mapping[str, Any]) -> str:
    """Return the program of a row in its full length."""
    if "parts" in row:
        return "".join(text * times for text, times in row["parts"])
    code = str(row["code"]) * int(row.get("repeat", 1))
    return code.replace("%s", "x" * int(row["fill"]), 1) if "fill" in row else code


def promises(text: str, known: Collection[str], where: str) -> tuple[Promise, ...]:
    r"""Read a list of predicates, `U; status=ok; out_eq=7\n`; ValueError names the first that is not known."""
    found = []
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, value = part.partition("=")
        if name not in known:
            raise ValueError(
                f"{where}: the predicate {name!r} is unknown; the known ones are {', '.join(known)}"
            )
        found.append(Promise(name, re.sub(r"\\[ntr\\]", lambda escape: _ESCAPES[escape[0]], value)))
    return tuple(found)


def placed(code: str, values: Mapping[str, str]) -> str:
    """Return `code` with its placeholders filled in; ValueError names one that has no value."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise ValueError(
                f"the placeholder {found[0]} has no value; those that have are {', '.join(values)}"
            )
        return values[found[1]]

    return re.sub(r"\{\{([A-Z_]+)\}\}", value, code)
