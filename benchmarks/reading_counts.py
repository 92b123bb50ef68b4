"""How a code base is written, in counts: tokens of a line, habits of folded code, names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turngym.benchmarks.reading_sources import SourceFile

WIDE = 100  # columns
VAGUE = frozenset(
    (
        "found",
        "own",
        "what",
        "known",
        "parts",
        "held",
        "kept",
        "given",
        "made",
        "those",
        "these",
        "some",
        "one",
        "other",
    )
)
GLUE = frozenset(("what", "fix", "why"))  # variables that hold pieces of a message
IRREGULAR = (
    *(
        "begun",
        "built",
        "chosen",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "grown",
        "held",
        "kept",
        "known",
        "lost",
    ),
    *(
        "made",
        "met",
        "paid",
        "seen",
        "sent",
        "shown",
        "taken",
        "thrown",
        "told",
        "won",
        "worn",
        "written",
    ),
)
NOT_PARTICIPLES = frozenset(
    ("embed", "exceed", "feed", "hundred", "indeed", "need", "proceed", "seed", "speed")
)
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Counts:
    """Counts of some files, added up."""

    lines: int = 0  # that are not blank
    tokens: list[int] = field(default_factory=list)  # of each line of code
    habits: Counter[str] = field(default_factory=Counter)
    bindings: int = 0
    functions: int = 0

    @classmethod
    def of(cls, files: Sequence[SourceFile]) -> Counts:
        """Count the habits of some files."""
        counts = cls()
        for file in files:
            counts.add(file.text)
        return counts

    def add(self, text: str) -> None:
        """Add the counts of a file."""
        tree = ast.parse(text)
        lines = [line for line in text.splitlines() if line.strip()]
        self.lines += len(lines)
        self.habits["wide lines"] += sum(len(line) > WIDE for line in lines)
        self.tokens += tokens_of_lines(text, docstring_lines(tree))
        for node in ast.walk(tree):
            self.habits.update(habits_of(node))
            for name in names_bound(node):
                self.bindings += 1
                self.habits["vague names"] += name in VAGUE
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_special(
                node.name
            ):
                self.functions += 1
                self.habits["one-word functions"] += is_one_word(node.name)
                self.habits["participles"] += is_participle(node.name)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the title and the value of each count, as they are printed."""
        tokens = sorted(self.tokens)
        mean = sum(tokens) / max(len(tokens), 1)
        yield (
            "tokens a code line, mean / p90",
            f"{mean:.1f} / {tokens[int(0.9 * (len(tokens) - 1))] if tokens else 0}",
        )
        per_thousand = (
            (f"lines over {WIDE} columns", "wide lines"),
            ("walruses", "walruses"),
            ("tuple-to-tuple assignments", "tuple assignments"),
            ("comprehensions", "comprehensions"),
            ("... nested or with two `for`", "nested comprehensions"),
            ("conditional expressions", "conditional expressions"),
            ("messages glued from pieces", "glued messages"),
        )
        for title, habit in per_thousand:
            yield title, f"{1000 * self.habits[habit] / max(self.lines, 1):.1f}"
        yield (
            "vague names, % of bindings",
            f"{100 * self.habits['vague names'] / max(self.bindings, 1):.1f}",
        )
        for title, habit in (
            ("one-word functions, %", "one-word functions"),
            ("participles, %", "participles"),
        ):
            yield title, f"{100 * self.habits[habit] / max(self.functions, 1):.1f}"
        yield "non-blank lines", f"{self.lines:,}"


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines on which docstrings begin."""
    lines = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines.add(first.lineno)
    return lines


def tokens_of_lines(text: str, skipped: set[int]) -> list[int]:
    """Return the number of tokens that begin on each line, for lines that have any and are not `skipped`."""
    tokens = Counter[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE and token.start[0] not in skipped:
            tokens[token.start[0]] += 1
    return list(tokens.values())


def habits_of(node: ast.AST) -> Iterator[str]:
    """Yield the habits that a node shows."""
    if isinstance(node, ast.NamedExpr):
        yield "walruses"
    elif isinstance(node, ast.IfExp):
        yield "conditional expressions"
    elif isinstance(node, ast.Assign):
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield "tuple assignments"
    elif isinstance(node, ast.JoinedStr):
        if any(
            isinstance(part, ast.FormattedValue) and is_glue(part.value) for part in node.values
        ):
            yield "glued messages"
    elif isinstance(node, COMPREHENSIONS):
        yield "comprehensions"
        inner = any(
            isinstance(child, COMPREHENSIONS) for child in ast.walk(node) if child is not node
        )
        if inner or len(node.generators) > 1:
            yield "nested comprehensions"


def is_glue(value: ast.expr) -> bool:
    """Return whether a value in a message is a variable that holds a piece of one."""
    return isinstance(value, ast.Name) and value.id in GLUE


def names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds: a variable, an argument."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg


def is_special(name: str) -> bool:
    """Return whether Python gives a function its name, such as `__init__`."""
    return name.startswith("__") and name.endswith("__")


def is_one_word(name: str) -> bool:
    """Return whether a name is one word."""
    return "_" not in name.strip("_")


def is_participle(name: str) -> bool:
    """Return whether a name is one word, and a past participle."""
    word = name.strip("_")
    if not is_one_word(name) or word in NOT_PARTICIPLES:
        return False
    return word in IRREGULAR or re.fullmatch(r"[a-z]{2,}ed", word) is not None


def table(columns: Sequence[tuple[str, Counts]]) -> str:
    """Return a Markdown table with a column for each name and its counts."""
    lines = [
        f"| per 1,000 non-blank lines | {' | '.join(name for name, _ in columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for cells in zip(*(counts.rows() for _, counts in columns), strict=True):
        title = cells[0][0]
        lines.append(f"| {title} | {' | '.join(value for _, value in cells)} |")
    return "\n".join(lines)
