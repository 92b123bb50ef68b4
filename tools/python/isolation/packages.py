"""What programs see of the machine's files: the interpreter, its libraries, the system's programs, their packages.

The packages are a list made for them, by the records of what is installed. All else that is installed is hidden,
wherever this process finds it, as what makes or grades tasks, or trains: the nearest path that is shown or hidden
decides. The server does not import this file, since all it imports would be copied with every fork.
"""

import csv
import functools
import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from .file_view import FileView

DEFAULT = ("numpy", "sympy", "mpmath", "scipy", "pandas", "networkx")
"""Distributions that programs see where they are installed, with what they need."""

_OWN = __package__.split(".")[0]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r";.*\bextra\b")
# Top-level entries that no program imports by name.
_NO_MODULE = re.compile(r"\.\.|/|__pycache__|__editable__.*|.*\.pth|(site|user)customize\.py|")
_WHOLE = (".dist-info", ".egg-info", ".libs")
_ROOTS = ("", "/usr", "/usr/local")
_PROGRAMS, _LIBRARIES = ("bin", "sbin"), ("lib", "lib32", "lib64", "libx32")
_SHARED = ("locale", "misc", "perl", "terminfo", "zoneinfo")
_OTHERS = (
    "/etc/ld.so.cache",
    "/usr/include",
    "/usr/libexec",
    *(f"/usr/share/{name}" for name in _SHARED),
)
# Of a folder of libraries, those folders below it in which nobody installs packages of Python or keeps a checkout.
_OF_LIBRARIES = re.compile(
    r"[\w.]+-linux-\w+|python\d\.\d+t?|gcc|gconv|git-core|locale|ossl-modules|perl[\d.]*|pkgconfig|ssl|terminfo"
)
_PYTHON = re.compile(r"python\d\.\d+t?")
_PROGRAM = re.compile(r"python[\d.]*t?")


def check_packages(packages: str | Iterable[str]) -> tuple[str, ...]:
    """Return normal names of distributions, sorted; ValueError for one that is not installed, or cannot be given."""
    names = set(
        filter(None, map(str.strip, packages.split(",") if isinstance(packages, str) else packages))
    )
    for name in names:
        if _normal(name) not in (found := _closure([name])):
            raise ValueError(
                f"packages has {name!r}, which is not installed; install it or leave it out"
            )
        if _OWN in found:
            raise ValueError(
                f"packages has {name!r}, with which programs would see {_OWN} itself; leave it out"
            )
        if _sources(found[_normal(name)]):
            raise ValueError(
                f"packages has {name!r}, an editable install, which programs cannot see; install a wheel"
            )
    return tuple(sorted(map(_normal, names)))


@functools.cache
def owned(packages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return what the default distributions, `packages` and those that they need own: entries, by folder."""
    found: dict[str, set[str]] = {}
    for distribution in _closure((*DEFAULT, *packages)).values():
        folder = _folder(distribution)
        found.setdefault(str(folder), set()).update(_entries(folder, _files(distribution)))
    order = {str(Path(entry).resolve()): position for position, entry in enumerate(sys.path)}
    ordered = sorted(found, key=lambda folder: order.get(folder, len(order)))
    return {folder: tuple(sorted(found[folder])) for folder in ordered}


def installed() -> set[str]:
    """Return the folders and archives from which this process imports anything but the standard library."""
    found = {
        Path(__file__).resolve().parents[3],
        *map(Path, [*site.getsitepackages(), site.getusersitepackages()]),
    }
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
        if (name := _normal(pending.pop())) in found or not _NAME.fullmatch(name):
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
        yield from (
            (entry.name,) for entry in _folder(distribution).glob(f"{name}*") if entry.stem == name
        )


def _entries(folder: Path, files: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a distribution's entries in a folder; of a package without `__init__`, which others share, its own."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in files:
        if not _NO_MODULE.fullmatch(first):
            below.setdefault(first, []).append(tuple(rest))
    for name, rests in below.items():
        if (
            (path := folder / name).is_dir()
            and not name.endswith(_WHOLE)
            and not any(path.glob("__init__.*"))
        ):
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


def make_view(allowed: tuple[str, ...] = ()) -> FileView:
    """Return what programs see that were given the default packages and those that are `allowed`."""
    packages = owned(allowed)
    shown, hidden = {path for path in _OTHERS if Path(path).exists()}, installed()
    folders = [f"{root}/{name}" for root in _ROOTS for name in (*_PROGRAMS, *_LIBRARIES)]
    shown |= {folder for folder in folders if Path(folder).is_symlink()}
    shown |= {
        f"{root}/{name}" for root in _ROOTS for name in _PROGRAMS if Path(f"{root}/{name}").is_dir()
    }
    libraries = [f"{root}/{name}" for root in _ROOTS for name in _LIBRARIES]
    for base in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        libraries += [f"{base}/lib", f"{base}/lib64"]
    for prefix in map(plain, {sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix}):
        *links, real = _followed(prefix)
        shown |= {
            *links,
            *(
                str(path)
                for path in Path(real, "bin").glob("python*")
                if _PROGRAM.fullmatch(path.name)
            ),
        }
        shown |= {str(path) for path in Path(real).glob("pyvenv.cfg")}
    shown.update(_followed(plain(sys.executable)))
    for folder in libraries:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            _look_into(folder, shown, hidden)
    hidden -= shown
    shown |= {f"{folder}/{entry}" for folder, entries in packages.items() for entry in entries}
    seen = tuple(
        sorted(path for path in shown if _nearest(path, shown - {path}) <= _nearest(path, hidden))
    )
    unseen = tuple(
        sorted(path for path in hidden if _nearest(path, shown) > _nearest(path, hidden - {path}))
    )
    above = [
        path
        for path in {str(Path(one).parent) for one in unseen}
        if _PYTHON.fullmatch(Path(path).name)
    ]
    listed = [path for path in above if _nearest(path, seen) > _nearest(path, unseen)]
    listed += filter(os.path.isdir, ["/usr"])
    readable = tuple(part for path in seen for part in _readable(path, seen, unseen))
    return FileView(
        seen, unseen, packages, plain(sys.prefix), plain(sys.exec_prefix), readable, tuple(listed)
    )


def plain(path: str) -> str:
    """Return a path without `..`, as in that of a Python that was called as `../bin/python`."""
    here = Path(path)
    return str(here.parent.resolve() / here.name) if ".." in here.parts else path


def _look_into(folder: str, shown: set[str], hidden: set[str]) -> None:
    """Add what is shown and hidden of a folder of libraries, in the fewest paths."""
    known, others = [], []
    for path in sorted(Path(folder).iterdir()):
        if path.is_symlink() or (path.is_file() and ".so" in path.name):
            known.append(path)
        elif (
            path.is_dir()
            and _OF_LIBRARIES.fullmatch(path.name)
            and {*path.iterdir()} - {*path.glob("*-packages")}
        ):
            known.append(path)
            hidden.update(map(str, path.glob("*-packages")))
        elif path.is_dir():
            others.append(path)
    if len(others) < len(known):
        shown.add(folder)
        hidden.update(map(str, others))
    else:
        shown.update(map(str, known))


def _readable(path: str, shown: tuple[str, ...], hidden: tuple[str, ...]) -> Iterator[str]:
    if (
        path in hidden or Path(path).is_symlink()
    ):  # what a link leads to is seen where it is shown itself
        return
    if not any(other.startswith(f"{path}/") for other in hidden):
        yield path
        return
    for child in sorted(Path(path).iterdir()):
        if str(child) not in shown:
            yield from _readable(str(child), shown, hidden)


def _nearest(path: str, among: Iterable[str]) -> int:
    """Return the length of the longest path among some that is this one or lies above it; 0 if there is none."""
    return max(
        (len(other) for other in among if path == other or path.startswith(f"{other}/")), default=0
    )


def _followed(path: str) -> Iterator[str]:
    """Yield the links, of files and of folders, that lead from a path to the place where it is, and that place."""
    here = Path(path)
    while link := next((one for one in (here, *here.parents) if one.is_symlink()), None):
        yield str(link)
        here = Path(os.path.normpath(link.parent / link.readlink() / here.relative_to(link)))
    yield str(here)
