"""What holds between the things of the world, with all wordings of it: in passages, in questions, inside questions."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("relations.toml")
YEAR = "year"
SPOUSE, CAPITAL, COUNTRY = "spouse", "capital", "country"


@dataclass(frozen=True)
class Relation:
    """A relation gives each thing of a kind at most one other.

    Args:
        name: How it is called here.
        subject: The kind of thing that has it.
        object: The kind of thing that it leads to, or `YEAR`.
        words: What to search for beside the subject's name.
        asks: Questions about {x}.
        phrases: How a question names the object of {x} when it asks on; none for years.
        says: Sentences of the subject's passage, with {s} and {o}; none where the relation is another one's inverse.
        inverse: The relation that this one reads backwards: it holds where that one leads to {x} from one thing alone.
        after: The relation to the person in whose lifetime a year lies.
    """

    name: str
    subject: str
    object: str
    words: str
    asks: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    inverse: str = ""
    after: str = ""


def _load() -> dict[str, Relation]:
    rows = tomllib.loads(FILE.read_text("utf-8"))
    lists = ("says", "asks", "phrases")
    return {name: Relation(name, **row | {key: tuple(row.get(key, ())) for key in lists}) for name, row in rows.items()}


RELATIONS = _load()
