"""Which worked examples of the sheets no test reproduces: `python -m turngym.tests.verify.methods.sheets FOLDER`.

A heading belongs to the methods whose cards name one of its papers. Examples that stand in test files of their own are
listed in `ELSEWHERE`.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from turngym.tests.verify.methods.field_examples import EXAMPLES
from turngym.training.methods import METHODS, describe

ELSEWHERE = {
    "treerl": "test_token_forks.py",
    "cure": "test_token_forks.py",
    "fr3e": "test_token_forks.py",
}
ELSEWHERE |= {"less": "test_less.py", "aepo-wang": "test_less.py", "clip-higher": "examples.py"}
UNNAMED = {
    "Estimators": ["kl"],
    "J4. MT-GRPO (turn-level credit)": ["mt-grpo"],
}  # headings without a paper
_PAPER = re.compile(r"\b\d{4}\.\d{5}\b")
_HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
SHEETS = ("advantage", "agentic", "clip_kl", "control", "objective", "sampling")


def sections(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield sheet, heading and text of each part of the sheets that has an example."""
    for sheet in SHEETS:
        parts = _HEADING.split((folder / f"{sheet}.md").read_text("utf-8"))
        for heading, text in zip(parts[1::2], parts[2::2]):
            if re.search(r"[Ee]xample", text):
                yield sheet, heading, text


def methods_of(heading: str, text: str) -> list[str]:
    """Return the methods whose cards name a paper of the heading, or else the first paper of its text."""
    if heading in UNNAMED:
        return UNNAMED[heading]
    papers = set(_PAPER.findall(heading)) or set(_PAPER.findall(text)[:1])
    return [name for name in METHODS if papers & papers_of(name)]


@cache
def papers_of(method: str) -> frozenset[str]:
    """Return the papers that the method's card names. A card is read from its source file, which takes long."""
    return frozenset(_PAPER.findall(describe(method)))


def rows(folder: Path) -> Iterator[tuple[str, str, list[str], int]]:
    """Yield sheet, heading, its methods, and how many examples of theirs are tested."""
    tested = Counter(example.method for example in EXAMPLES) + Counter(dict.fromkeys(ELSEWHERE, 1))
    for sheet, heading, text in sections(folder):
        found = methods_of(heading, text)
        yield sheet, heading, found, sum(tested[name] for name in found)


if __name__ == "__main__":
    for sheet, heading, found, count in rows(Path(sys.argv[1])):
        sys.stdout.write(
            f"{count or '-':>3}  {sheet}.md  {heading}  {', '.join(found) or 'no method'}\n"
        )
