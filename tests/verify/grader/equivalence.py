r"""A corpus of pairs of answers that other graders call equal or different, and where we say otherwise on purpose.

A prediction with a `\boxed{}` is a completion as it stands. One that is prose is a completion whose answer is its last
formula or number. Any other is what a box holds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turngym.tests.verify.grader.disagreements import REASONS

_BOX = r"\boxed"
_COMMAND = re.compile(r"\\(?:text|mbox|mathrm|begin|end)\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{4,}|####")  # what a formula has none of


@dataclass(frozen=True)
class Pair:
    """A gold and a prediction, whether the corpus calls them equal, and the key by which the policy lists them."""

    key: str
    gold: str
    pred: str
    equal: bool

    @property
    def completion(self) -> str:
        """The prediction as a completion."""
        return (
            self.pred if _BOX in self.pred or self.extract == "last" else rf"\boxed{{{self.pred}}}"
        )

    @property
    def extract(self) -> str:
        """How a grader is to find the answer in it: the last box, or the last formula or number."""
        return (
            "last" if _BOX not in self.pred and _WORD.search(_COMMAND.sub("", self.pred)) else "box"
        )


def pairs(path: Path) -> list[Pair]:
    """Read the corpus.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is no such row; the message names it.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; --equiv names a JSONL file of golds and predictions"
        )
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
                made = key(row["gold"], row["pred"], row.get("config"))
                found.append(Pair(made, row["gold"], row["pred"], bool(row["expected_equal"])))
            except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                fault = f"{type(error).__name__}: {error}"
                raise ValueError(
                    f"{path}:{number} is no row with gold, pred and expected_equal: {fault}"
                ) from None
    return found


def key(gold: str, pred: str, config: object = None) -> str:
    """Return what names a row of the corpus, wherever it stands in its file."""
    return hashlib.sha256(json.dumps([gold, pred, config], sort_keys=True).encode()).hexdigest()[:8]


def judged(rows: Sequence[Pair], pays: Callable[[Pair], bool]) -> Iterator[tuple[Pair, str]]:
    """Yield each row with what is wrong with it: empty where we agree, or disagree as the policy says."""
    for row in rows:
        agrees, listed = pays(row) == row.equal, row.key in LISTED
        fault = (
            "is listed and agrees" if agrees else "" if listed else "disagrees and is not listed"
        )
        yield row, fault if listed or not agrees else ""


LISTED = {key: reason for reason, keys in REASONS.items() for key in keys}
