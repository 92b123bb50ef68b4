"""The docstring of `module:name`, read from the source text: nothing is imported, so nothing of it runs.

A list of plugins has a line for each of them. Importing them for it would run the code of every installed package, and
import torch where one of them does.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from inspect import cleandoc
from re import match

MOST_REEXPORTS = 8  # modules that are followed from `from .module import name` to the definition


@dataclass(frozen=True)
class ModuleText:
    """The parsed text of a module; of one that has no text, as an extension has none, there is no tree."""

    name: str
    package: str  # that relative imports begin in
    tree: ast.Module | None


def read_docstring(spec: str) -> str:
    """Return the docstring of a function or class, or else that of its module; "" if neither has one.

    Args:
        spec: Where it is, as in `package.module:name`.

    Raises:
        ValueError: The spec has another form, there is no such module, its text is not Python, or it lacks the name.
    """
    module, colon, name = spec.partition(":")
    if not (module and colon and name.isidentifier()):
        raise ValueError(f"{spec!r} is not of the form module:name")
    source = _read_module(module)
    if source.tree is None:
        return ""
    return _docstring(source, name, MOST_REEXPORTS) or cleandoc(
        ast.get_docstring(source.tree) or ""
    )


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring in one line, without its full stop."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence = match(r"(.+?)[.!?](?= [A-Z]|$)", paragraph)
    return sentence[1] if sentence else paragraph


def _docstring(source: ModuleText, name: str, reexports: int) -> str:
    """Return the docstring of what a module calls `name`; "" if it is made in another way. Raises as above."""
    if source.tree is None or reexports == 0:
        return ""
    bound = False
    for node in _statements(source.tree.body):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        ):
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _docstring(
                        _read_module(_imported_from(source, node)), alias.name, reexports - 1
                    )
        bound = bound or name in _names_bound_by(node) or _may_bind_any(node)
    if not bound:
        raise ValueError(f"the module {source.name} has no {name}")
    return ""


def _may_bind_any(node: ast.stmt) -> bool:
    """Return whether a statement may give a module names that its text does not have."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    return isinstance(node, ast.FunctionDef) and node.name == "__getattr__"


def _names_bound_by(node: ast.stmt) -> Iterator[str]:
    """Yield the names that an assignment, a loop or an import binds in its module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
    if isinstance(node, ast.Import):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those under `if`, `try` and `with`, but not those of functions."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            handlers = [handler.body for handler in getattr(node, "handlers", ())]
            for inner in (
                node.body,
                *handlers,
                getattr(node, "orelse", ()),
                getattr(node, "finalbody", ()),
            ):
                yield from _statements(inner)


def _imported_from(source: ModuleText, node: ast.ImportFrom) -> str:
    """Return the module that a `from … import` names."""
    if not node.level:
        return node.module or ""
    parts = source.package.split(".")
    parent = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parent, *filter(None, [node.module])])


def _read_module(module: str) -> ModuleText:
    """Return a module's text, parsed. Raises ValueError if there is no such module, or its text is not Python."""
    spec = _find_spec(module)
    get_source = getattr(spec.loader, "get_source", None)
    is_package = spec.submodule_search_locations is not None
    package = module if is_package else module.rpartition(".")[0]
    try:
        text = get_source(module) if get_source else None
        tree = None if text is None else ast.parse(text)
    except SyntaxError as error:
        raise ValueError(
            f"the module {module} is not Python: {error.msg} (line {error.lineno})"
        ) from error
    except (ImportError, OSError, ValueError) as error:
        raise ValueError(f"the module {module} cannot be read: {error}") from error
    return ModuleText(module, package, tree)


def _find_spec(module: str) -> ModuleSpec:
    """Return where a module is, as `importlib.util.find_spec` does, which imports the packages around it."""
    path = None
    name, spec = "", None
    for part in module.split("."):
        name = f"{name}.{part}".removeprefix(".")
        spec = _ask_finders(name, path)
        if spec is None:
            raise ValueError(f"there is no module {name}")
        path = (
            [*spec.submodule_search_locations]
            if spec.submodule_search_locations is not None
            else []
        )
    assert spec is not None, "a module has a name"
    return spec


def _ask_finders(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, path) if find_spec else None
        if spec is not None:
            return spec
    return None
