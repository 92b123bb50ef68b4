"""The docstring of `module:name`, read from its source text without importing it.

Commands that list plugins use it. Importing the plugins would run code of every package that
declares one, and would load torch if one of them does.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from inspect import cleandoc

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MAX_REEXPORTS = 8  # how many `from .module import name` are followed to reach a definition

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
        spec: The function or class, in the form `package.module:name`.

    Raises:
        ValueError: The spec has another form, there is no such module, its source is not valid
            Python, or it does not define the name.
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name.isidentifier()):
        raise ValueError(f"{spec!r} is not of the form module:name")
    source = _read_module(module_name)
    if source.tree is None:
        return ""
    docstring = _find_docstring(source, name, MAX_REEXPORTS)
    if docstring:
        return docstring
    return cleandoc(ast.get_docstring(source.tree) or "")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring in one line, without its full stop."""
    first_paragraph = text.strip().partition("\n\n")[0]
    one_line = " ".join(first_paragraph.split())
    sentence = _FIRST_SENTENCE.match(one_line)
    return sentence[1] if sentence else one_line


def _find_docstring(source: ModuleText, name: str, reexports_left: int) -> str:
    """Return the docstring of the function or class that a module calls `name`.

    If the module imports the name from another module, the definition is searched for there.

    Args:
        source: The module.
        name: The name in that module.
        reexports_left: How many more imports are followed. It is limited because two modules could
            import the name from each other.

    Returns:
        The docstring. It is "" if there is none, if the name is bound in another way, for instance
        by an assignment, or if the definition cannot be reached.

    Raises:
        ValueError: A module cannot be read or does not define the name.
    """
    if source.tree is None or reexports_left == 0:
        return ""
    is_bound = False
    for statement in _walk_statements(source.tree.body):
        if isinstance(statement, Definition) and statement.name == name:
            return ast.get_docstring(statement) or ""
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                local_name = alias.asname or alias.name
                if local_name == name:
                    origin = _read_module(_resolve_imported_module(source, statement))
                    return _find_docstring(origin, alias.name, reexports_left - 1)
        if name in _find_bound_names(statement) or _may_bind_any_name(statement):
            is_bound = True
    if not is_bound:
        raise ValueError(f"the module {source.name} has no {name}")
    return ""


def _may_bind_any_name(statement: ast.stmt) -> bool:
    """Return whether a statement may define names in its module that it does not mention.

    `from … import *` does, and so does a function `__getattr__`.
    """
    if isinstance(statement, ast.ImportFrom):
        return any(alias.name == "*" for alias in statement.names)
    return isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__"


def _find_bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement other than a `def` or `class` binds in its module.

    These are the targets of assignments and loops, and the names of `import` statements.
    """
    if isinstance(statement, Definition):
        return  # the names that its body binds are local
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top_package = alias.name.partition(".")[0]  # `import a.b` binds `a`
            yield alias.asname or top_package


def _walk_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module body, including those in `if`, `try` and `with` blocks."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.With):
            yield from _walk_statements(statement.body)
        elif isinstance(statement, ast.If):
            yield from _walk_statements(statement.body)
            yield from _walk_statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from _walk_statements(statement.body)
            for handler in statement.handlers:
                yield from _walk_statements(handler.body)
            yield from _walk_statements(statement.orelse)
            yield from _walk_statements(statement.finalbody)


def _resolve_imported_module(source: ModuleText, statement: ast.ImportFrom) -> str:
    """Return the full name of the module from which a `from … import` in `source` imports.

    In a module of the package `a.b`, `from .c import x` -> `a.b.c`, and `from ..c import x` ->
    `a.c`.
    """
    dot_count = statement.level
    if dot_count == 0:
        return statement.module or ""
    # One dot is the package itself, and each further dot the package around it.
    package_parts = source.package.split(".")
    name_parts = package_parts[: len(package_parts) - (dot_count - 1)]
    if statement.module:
        name_parts.append(statement.module)
    return ".".join(name_parts)


def _read_module(name: str) -> ModuleText:
    """Find and parse the source of a module without importing it.

    Args:
        name: The full name of the module.

    Raises:
        ValueError: There is no such module, or its source cannot be read or is not valid Python.
    """
    spec = _find_spec(name)
    is_package = spec.submodule_search_locations is not None
    package = name if is_package else name.rpartition(".")[0]
    get_source = getattr(spec.loader, "get_source", None)  # not every loader has the method
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
    """Find a module without importing anything; returns its spec.

    `importlib.util.find_spec` would import the packages that contain the module.

    Args:
        module: The full name of the module.

    Raises:
        ValueError: There is no such module.
    """
    # The folders in which the next part of the name is searched for; None stands for `sys.path`.
    search_path: list[str] | None = None
    name = ""
    spec: ModuleSpec | None = None
    for part in module.split("."):
        name = f"{name}.{part}".removeprefix(".")
        spec = _find_spec_in_path(name, search_path)
        if spec is None:
            raise ValueError(f"there is no module {name}")
        search_path = list(spec.submodule_search_locations or [])
    assert spec is not None, "a module has a name"
    return spec


def _find_spec_in_path(name: str, search_path: list[str] | None) -> ModuleSpec | None:
    """Ask Python's finders, one after another, for the spec of a module.

    Args:
        name: The full name of the module.
        search_path: The folders of the package that contains it; None for `sys.path`.

    Returns:
        The first spec that a finder returns; None if no finder finds the module.
    """
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, search_path) if find_spec else None
        if spec is not None:
            return spec
    return None
