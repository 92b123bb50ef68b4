"""The site of the docs: every public name has a docstring and a place in the API reference, and the build is strict."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

from turngym.tests.support.pages import PAGES, ROOT

DIRECTIVE = re.compile(r"^::: ([\w.]+)\n((?:    .*\n?)*)", re.M)
API = {
    page: DIRECTIVE.findall(text) for page, text in PAGES.items() if page.startswith("docs/api/")
}
PUBLIC = ("turngym", "turngym.tools", "turngym.tools.python", "turngym.envs")
PUBLIC += tuple(f"turngym.envs.{name}" for name in ("math", "qa", "household"))


def documented(module: str, options: str) -> list[str]:
    """The names that a directive shows: its members, those of `__all__`, or the public ones that the module defines."""
    members = re.search(r"members: \[(.*?)\]", options)
    if members:
        return members[1].split(", ")
    loaded = importlib.import_module(module)
    own = [
        name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module
    ]
    names = getattr(loaded, "__all__", [name for name in own if not name.startswith("_")])
    return [name for name in names if f'"!^{name}$"' not in options]


def constant_has_docstring(module: str, name: str) -> bool:
    """Whether a text follows the assignment of a constant, in its module or in one from which that imports it."""
    for node in (body := ast.parse(inspect.getsource(importlib.import_module(module))).body):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            base = "." * node.level + (node.module or "")
            return constant_has_docstring(
                importlib.util.resolve_name(base, package_of(module)), name
            )
    targets = [{part.id for part in ast.walk(node) if isinstance(part, ast.Name)} for node in body]
    places = [
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in targets[i]
    ]
    after = body[places[0] + 1]
    return (
        isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    )


def package_of(module: str) -> str:
    """The package that relative imports of a module begin at."""
    return importlib.import_module(module).__spec__.parent


@pytest.mark.parametrize("page", API)
def test_every_name_of_the_reference_has_a_docstring(page):
    assert API[page]
    for module, options in API[page]:
        for name in documented(module, options):
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or inspect.isroutine(value):
                assert value.__doc__, (module, name)
            elif name != "__version__":
                assert constant_has_docstring(module, name), (module, name)


def test_every_public_name_is_in_the_reference():
    shown = {
        name
        for found in API.values()
        for module, options in found
        for name in documented(module, options)
    }
    for module in PUBLIC:
        assert set(importlib.import_module(module).__all__) <= shown, module


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert (
        len(listed) == len(set(listed))
        and set(listed) - {"SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"} == pages
    )


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "92"}
    )
    assert done.returncode == 0, done.stderr
    for page, found in API.items():
        html = (tmp_path / "site" / page.removeprefix("docs/").replace(".md", ".html")).read_text()
        for module, options in found:
            for name in documented(module, options):
                assert name == "__version__" or re.search(rf'id="{module}.{name}"', html), (
                    module,
                    name,
                )
    commands = (tmp_path / "site" / "commands.html").read_text()
    assert "--prompts INT" in commands and "--episodes INT" in commands
