"""Other people's code by name: `module:name`, and the entry points of installed packages.

Nothing is imported before it is asked for, so what is broken is an error only where it is used. Data (a journal, a run
folder, a recipe) may not ask: what `is_foreign` has to be named by the present command.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_NOT_OWN = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package: its name, the `module:name` behind it, the package and its summary."""

    name: str
    spec: str
    package: str
    summary: str = ""


def declared(group: str) -> tuple[Plugin, ...]:
    """Return what installed packages declare in a group of entry points, by name and package; nothing is imported."""
    return tuple(sorted(map(_plugin, metadata.entry_points(group=group)), key=lambda one: (one.name, one.package)))


def find(name: str, group: str) -> Plugin | None:
    """Return what declares a name; None where nothing does.

    Raises:
        ValueError: several packages do.
    """
    found = [one for one in declared(group) if one.name == name]
    if len(found) > 1:
        packages = " and ".join(one.package for one in found)
        raise ValueError(f"{name} is declared by the packages {packages}; uninstall all but one")
    return found[0] if found else None


def is_foreign(name: str, group: str) -> bool:
    """Return whether a name stands for code that no data may ask for.

    That is `module:name`, which could be any function of any module, and what another package declares in `group`, as
    long as its module is not imported.
    """
    return ":" in name or any(
        one.name == name and one.spec.partition(":")[0] not in sys.modules for one in declared(group)
    )


def load(spec: str, what: str) -> Any:
    """Return what `module:name` stands for; a module that Python's path does not have may be in the current folder.

    Args:
        spec: `module:name`.
        what: What it is to be, and who says so, in errors: `environment`, `method epo2 of the package other`.

    Raises:
        ValueError: it is written otherwise, there is no such module or name, or the module cannot be imported.
    """
    module, colon, name = spec.partition(":")
    if not (module and colon and name.isidentifier()):
        raise ValueError(f"the {what} is {spec!r}; write module:name")
    found = load_module(module, f"the {what} {spec!r}")
    try:
        return getattr(found, name)
    except AttributeError:
        where = getattr(found, "__file__", None) or "part of Python"
        hint = _nearest(name, (one for one in vars(found) if not one.startswith("_")))
        if (own := Path.cwd() / f"{module}.py").is_file() and str(own) != where:
            hint = f"; it has the name of your {module}.py: rename that"
        raise ValueError(f"the {what} {spec!r}: the module {module} ({where}) has no {name}{hint}") from None


def load_module(name: str, where: str) -> ModuleType:
    """Return a module, as `load` finds it; `where` begins the error.

    Raises:
        ValueError: it is not there, or it cannot be imported.
    """
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts) or parts[-1] == "py":
        plain = ".".join(Path(name.removesuffix(".py")).parts)
        raise ValueError(f"{where}: {name!r} is no module; write what Python imports, such as {plain!r}")
    here = str(Path.cwd())
    if here not in sys.path and parts[0] not in sys.modules and find_spec(parts[0]) is None:
        sys.path.append(here)  # at the end: a file there takes the place of no other module
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{where}: importing {name} raises {raised(error)}") from error
        hint = _nearest(name, (path.stem for path in Path(here).glob("*.py")))
        raise ValueError(f"{where}: there is no module {error.name}, nor a file of it in {here}{hint}") from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where}: importing {name} raises {raised(error)}") from error


def raised(error: BaseException) -> str:
    """Return what was raised, in one line with its place in the user's code, if it came from there."""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place(error)


def place(error: BaseException) -> str:
    """Return ` (FILE, line N)`, the last in a traceback of neither turngym, Python nor an installed package, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_OWN) and "-packages" not in frame.filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _plugin(point: metadata.EntryPoint) -> Plugin:
    if point.dist is None:  # never so for an installed package
        return Plugin(point.name, point.value, "?")
    return Plugin(point.name, point.value, point.dist.name, str(point.dist.metadata.json.get("summary", "")))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
