"""The docstring of `module:name`, read from its source text without importing it.

It is for lists of plugins. Importing all of them would run code of every package that declares
one, and load torch if one of them does.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from inspect import cleandoc

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MOST_REEXPORTS = 8  # modules that are followed from `from .module import name` to the definition

# `Turn it over. Then stop.` -> `Turn it over`. The stops in `e.g. this` end no sentence.
_FIRST_SENTENCE = re.compile(r"(.+?)[.!?](?= [A-Z]|$)")


@dataclass(frozen=True)
class ModuleText:
    """The parsed source of a module.

    Args:
        name: Its full name.
        package: The package in which its relative imports begin.
        tree: Its syntax tree; None if it has no source text, as an extension module.
    """

    name: str
    package: str
    tree: ast.Module | None


def read_docstring(spec: str) -> str:
    """Return the docstring of a function or class, or else of its module; "" if neither has one.

    Args:
        spec: Where it is, in the form `package.module:name`.

    Raises:
        ValueError: The spec has another form, there is no such module, its text is not Python, or
            it does not define the name.
    """
    module, colon, name = spec.partition(":")
    if not (module and colon and name.isidentifier()):
        raise ValueError(f"{spec!r} is not of the form module:name")
    source = _read_module(module)
    if source.tree is None:
        return ""
    docstring = _find_docstring(source, name, MOST_REEXPORTS)
    if docstring:
        return docstring
    return cleandoc(ast.get_docstring(source.tree) or "")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring in one line, without its full stop."""
    first_paragraph = text.strip().partition("\n\n")[0]
    one_line = " ".join(first_paragraph.split())
    sentence = _FIRST_SENTENCE.match(one_line)
    return sentence[1] if sentence else one_line


def _find_docstring(source: ModuleText, name: str, most_reexports: int) -> str:
    """Return the docstring of the function or class that a module calls `name`.

    A name that is imported from another module is followed there.

    Args:
        source: The module.
        name: The name in that module.
        most_reexports: How many modules may still be followed, as two could import from each other.

    Returns:
        The docstring; "" if there is none, or if the name is bound in another way, for instance by
        an assignment.

    Raises:
        ValueError: The module, or one that is followed, cannot be read or does not define the name.
    """
    if source.tree is None or most_reexports == 0:
        return ""
    is_bound = False
    for statement in _module_statements(source.tree.body):
        if isinstance(statement, Definition) and statement.name == name:
            return ast.get_docstring(statement) or ""
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    origin = _read_module(_imported_module(source, statement))
                    return _find_docstring(origin, alias.name, most_reexports - 1)
        if name in _bound_names(statement) or _may_bind_any_name(statement):
            is_bound = True
    if not is_bound:
        raise ValueError(f"the module {source.name} has no {name}")
    return ""


def _may_bind_any_name(statement: ast.stmt) -> bool:
    """Return whether a statement may give its module names that do not appear in the text.

    These are `from … import *` and a function `__getattr__`.
    """
    if isinstance(statement, ast.ImportFrom):
        return any(alias.name == "*" for alias in statement.names)
    return isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__"


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment, a loop or an `import` binds in its module."""
    if isinstance(statement, Definition):
        return  # the names inside of it are local
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top_package = alias.name.partition(".")[0]
            yield alias.asname or top_package


def _module_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those inside of `if`, `try` and `with` blocks."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.With):
            yield from _module_statements(statement.body)
        elif isinstance(statement, ast.If):
            yield from _module_statements(statement.body)
            yield from _module_statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _module_statements(statement.body)
            for handler in statement.handlers:
                yield from _module_statements(handler.body)
            yield from _module_statements(statement.orelse)
            yield from _module_statements(statement.finalbody)


def _imported_module(source: ModuleText, statement: ast.ImportFrom) -> str:
    """Return the full name of the module that a `from … import` of `source` names."""
    if not statement.level:
        return statement.module or ""
    # One dot is the package itself, and each further dot the package around it.
    packages = source.package.split(".")
    base = packages[: len(packages) - (statement.level - 1)]
    if statement.module:
        base.append(statement.module)
    return ".".join(base)


def _read_module(name: str) -> ModuleText:
    """Find and parse the source of a module without importing it.

    Raises:
        ValueError: There is no such module, or its text is not Python.
    """
    spec = _find_spec(name)
    get_source = getattr(spec.loader, "get_source", None)
    is_package = spec.submodule_search_locations is not None
    package = name if is_package else name.rpartition(".")[0]
    try:
        text = get_source(name) if get_source else None
        tree = None if text is None else ast.parse(text)
    except SyntaxError as error:
        raise ValueError(
            f"the module {name} is not Python: {error.msg} (line {error.lineno})"
        ) from error
    except (ImportError, OSError, ValueError) as error:
        raise ValueError(f"the module {name} cannot be read: {error}") from error
    return ModuleText(name, package, tree)


def _find_spec(module: str) -> ModuleSpec:
    """Return where a module is. `importlib.util.find_spec` would import the packages around it.

    Raises:
        ValueError: There is no such module.
    """
    search_path: list[str] | None = None  # of the package so far; None is Python's path
    name = ""
    spec: ModuleSpec | None = None
    for part in module.split("."):
        name = f"{name}.{part}".removeprefix(".")
        spec = _ask_finders(name, search_path)
        if spec is None:
            raise ValueError(f"there is no module {name}")
        search_path = list(spec.submodule_search_locations or [])
    assert spec is not None, "a module has a name"
    return spec


def _ask_finders(name: str, search_path: list[str] | None) -> ModuleSpec | None:
    """Return the spec of the first of Python's finders that knows a module; None if none does."""
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, search_path) if find_spec else None
        if spec is not None:
            return spec
    return None
