"""Which installed packages programs of an agent see: a list made for them, by the records of what is installed.

Everything else that is installed is hidden, wherever this process finds it: what makes or grades tasks, what trains.
"""

import csv
import functools
import json
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

DEFAULT = ("numpy", "sympy", "mpmath", "scipy", "pandas", "networkx")
"""Distributions that programs see where they are installed, with what they need."""

_OWN = __package__.split(".")[0]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r";.*\bextra\b")
# Top-level entries that no program imports by name.
_NO_MODULE = re.compile(r"\.\.|/|__pycache__|__editable__.*|.*\.pth|(site|user)customize\.py|")
_WHOLE = (".dist-info", ".egg-info", ".libs")


def check_packages(packages: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of distributions, in a text separated by commas, in a normal form, sorted.

    Raises ValueError where one is not installed, is installed from a folder of sources, or needs turngym itself.
    """
    names = set(filter(None, map(str.strip, packages.split(",") if isinstance(packages, str) else packages)))
    for name in names:
        found = _closure([name])
        if _normal(name) not in found:
            raise ValueError(f"packages has {name!r}, which is not installed; install it or leave it out")
        if _OWN in found:
            raise ValueError(f"packages has {name!r}, with which programs would see {_OWN} itself; leave it out")
        if _sources(found[_normal(name)]):
            raise ValueError(f"packages has {name!r}, an editable install, which programs cannot see; install a wheel")
    return tuple(sorted(map(_normal, names)))


@functools.cache
def owned(packages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return what the default distributions, `packages` and those that they need own: entries, by folder."""
    found: dict[str, set[str]] = {}
    for distribution in _closure((*DEFAULT, *packages)).values():
        folder = _folder(distribution)
        found.setdefault(str(folder), set()).update(_entries(folder, _files(distribution)))
    order = {str(Path(entry).resolve()): position for position, entry in enumerate(sys.path)}
    return {
        folder: tuple(sorted(found[folder])) for folder in sorted(found, key=lambda one: order.get(one, len(order)))
    }


def installed() -> set[str]:
    """Return the folders and archives from which this process imports anything but the standard library."""
    found = {Path(__file__).resolve().parents[2], *map(Path, [*site.getsitepackages(), site.getusersitepackages()])}
    found.update(Path(entry).resolve() for entry in sys.path)
    for distribution in metadata.distributions():
        found.add(_folder(distribution))
        if sources := _sources(distribution):
            found.add(sources)
    standard = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
    return {str(path) for path in map(Path.resolve, found) if not _within(path, standard)}


def _within(path: Path, standard: list[Path]) -> bool:
    """Return whether a path belongs to the standard library, below which packages are installed too."""
    parts = [path.relative_to(folder).parts for folder in standard if path.is_relative_to(folder)]
    return any(not part or not part[0].endswith("-packages") for part in parts)


def _closure(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Return the installed distributions among `names` and all that they need, without extras."""
    found: dict[str, metadata.Distribution] = {}
    pending = list(names)
    while pending:
        name = _normal(pending.pop())
        if name in found or not _NAME.fullmatch(name):
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        needed = [line for line in found[name].requires or () if not _EXTRA.search(line)]
        pending += [match[0] for line in needed if (match := _NAME.match(line))]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _folder(distribution: metadata.Distribution) -> Path:
    return Path(str(distribution.locate_file(""))).resolve()


def _files(distribution: metadata.Distribution) -> Iterator[tuple[str, ...]]:
    if record := distribution.read_text("RECORD"):
        yield from (tuple(row[0].split("/")) for row in csv.reader(record.splitlines()) if row)
        return
    for file in distribution.files or ():
        yield file.parts
    for name in (distribution.read_text("top_level.txt") or distribution.name).split():
        yield from ((entry.name,) for entry in _folder(distribution).glob(f"{name}*") if entry.stem == name)


def _entries(folder: Path, files: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the entries of a folder that belong to a distribution with these files.

    A package without an `__init__` may belong to several distributions: of it, only its own entries.
    """
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in files:
        if not _NO_MODULE.fullmatch(first):
            below.setdefault(first, []).append(tuple(rest))
    for name, rests in below.items():
        path = folder / name
        if path.is_dir() and not name.endswith(_WHOLE) and not any(path.glob("__init__.*")):
            yield from (f"{name}/{entry}" for entry in _entries(path, filter(None, rests)))
        elif path.exists():
            yield name


def _sources(distribution: metadata.Distribution) -> Path | None:
    """Return the folder from which a distribution is installed, where it is imported from there."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    editable = origin.get("dir_info", {}).get("editable", False)
    return Path(unquote(urlparse(origin["url"]).path)) if editable and "url" in origin else None
