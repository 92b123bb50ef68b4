"""A program under other names: what it calls its own things must not matter to whoever contains it.

Only names whose other spelling cannot change what the program does are changed: those it binds itself, as a variable, a
function, a class or a parameter, and neither writes in a text nor uses as an attribute, a keyword or a module.
"""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import random
import re
import tokenize
from collections.abc import Iterator

LARGEST = 50_000  # characters; the longer programs are one line over and over


def renamed(code: str, rng: random.Random, kept: str = "") -> str:
    """Return `code` with its own names changed; unchanged where it is no Python, or too long, or has none to change.

    Args:
        code: The program.
        rng: Draws the names.
        kept: Text whose words stay as they are, such as what must be found in the output.
    """
    if len(code) > LARGEST:
        return code
    try:
        tree = ast.parse(code)
        names = sorted(_own(tree) - _fixed(tree) - set(_words(kept)))
        mapping = {name: f"{rng.choice('abcdefgh')}_{rng.getrandbits(32):08x}" for name in names}
        other = _spelled(code, mapping)
        ast.parse(other)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return code
    return other


def _own(tree: ast.AST) -> set[str]:
    """Return the names that a program binds outside of class bodies."""
    attributes = {
        id(node)
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for node in _body(owner)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in attributes:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler | ast.alias):
            found.add((node.name if isinstance(node, ast.ExceptHandler) else node.asname) or "")
    return {name for name in found if name.isidentifier() and not name.startswith("__")}


def _body(owner: ast.ClassDef) -> Iterator[ast.AST]:
    """Yield what is bound in a class: its names are attributes."""
    pending: list[ast.AST] = list(owner.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _fixed(tree: ast.AST) -> set[str]:
    """Return the names that mean something to others: attributes, keywords, modules, words of texts, builtins."""
    found = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist}
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            found |= {name for node in _body(owner) for name in _bound(node)}
        elif isinstance(owner, ast.Attribute):
            found.add(owner.attr)
        elif isinstance(owner, ast.keyword):
            found.add(owner.arg or "")
        elif isinstance(owner, ast.alias):
            found |= {*owner.name.split(".")} - {owner.asname}
        elif isinstance(owner, ast.ImportFrom):
            found |= set((owner.module or "").split("."))
        elif isinstance(owner, ast.Constant) and isinstance(owner.value, str | bytes):
            found |= set(
                _words(
                    owner.value if isinstance(owner.value, str) else owner.value.decode("latin-1")
                )
            )
        elif isinstance(owner, ast.FormattedValue):  # a token of its own only since Python 3.12
            found |= {node.id for node in ast.walk(owner) if isinstance(node, ast.Name)}
    return {str(name) for name in found}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _spelled(code: str, names: dict[str, str]) -> str:
    """Return `code` with each name token that is in `names` replaced, all else as it stands."""
    lines = io.StringIO(code, newline="").readlines()
    found = [
        token
        for token in tokenize.generate_tokens(iter(lines).__next__)
        if token.type == tokenize.NAME
    ]
    for token in reversed(found):
        if token.string in names:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + names[token.string] + line[start + len(token.string) :]
    return "".join(lines)
