"""The signature of a method's function from the text of its module, which needs torch to be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from . import parameters


def read_signature(path: Path, function: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, annotation and default of each argument."""
    names = _Names(path)
    found = next(node for node in names.nodes if isinstance(node, ast.FunctionDef) and node.name == function)
    of = found.args
    for argument, default in zip(of.args + of.kwonlyargs, of.defaults + of.kw_defaults):
        yield argument.arg, names.value(argument.annotation), names.value(default)


class _Names(dict[str, Any]):
    """What a module calls something, found out when it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(vars(parameters))
        self.path, self.nodes = path, ast.parse(path.read_text("utf-8")).body

    def value(self, node: ast.expr | None) -> Any:
        """Return what an expression of the module's text stands for."""
        code = compile(ast.Expression(node or ast.Constant(None)), str(self.path), "eval")
        return eval(code, {}, self)  # noqa: S307 (this package's own text)

    def __missing__(self, name: str) -> Any:
        for node in self.nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return self.value(node.value)
            if isinstance(node, ast.ImportFrom) and node.module and name in (alias.name for alias in node.names):
                if not node.level:
                    return getattr(import_module(node.module), name)
                folder = self.path.parents[node.level - 1]
                return _Names(folder / f"{node.module.replace('.', '/')}.py")[name]
        raise KeyError(name)
