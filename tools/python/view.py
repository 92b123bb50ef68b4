"""What programs see of the machine's files: the interpreter, its libraries, the system's programs, their packages.

What makes or grades tasks, or trains, is hidden, wherever it is installed: the nearest path that is shown or hidden
decides.
"""

import os
import re
import site
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOTS = ("", "/usr", "/usr/local")
_PROGRAMS = ("bin", "sbin")
_LIBRARIES = ("lib", "lib32", "lib64", "libx32")
_OTHERS = (
    "/etc/ld.so.cache",
    "/usr/include",
    "/usr/libexec",
    *(f"/usr/share/{name}" for name in ("locale", "misc", "perl", "terminfo", "zoneinfo")),
)
# Of a folder of libraries, those folders below it in which nobody installs packages of Python or keeps a checkout.
_OF_LIBRARIES = re.compile(
    r"[\w.]+-linux-\w+|python\d\.\d+t?|gcc|gconv|git-core|locale|ossl-modules|perl[\d.]*|pkgconfig|ssl|terminfo"
)
_PYTHON = re.compile(r"python\d\.\d+t?")
_PROGRAM = re.compile(r"python[\d.]*t?")
PACKAGES = "packages"  # the folder of the allowed packages, where there are no namespaces, in that of the server


@dataclass(frozen=True)
class View:
    """What programs see of the machine's files: a path is seen where the nearest of these, or itself, is shown."""

    shown: tuple[str, ...]  # interpreter, libraries, the system's programs, allowed packages: files, folders, links
    hidden: tuple[str, ...]  # what lies below a shown folder and is not seen
    packages: dict[str, tuple[str, ...]]  # the entries of installed folders that are shown, by folder
    prefix: str  # where the interpreter says that it is installed
    exec_prefix: str

    def readable(self) -> Iterator[str]:
        """Yield the largest files and folders of which everything is seen."""
        for path in self.shown:
            yield from self._readable(path)

    def listed(self) -> Iterator[str]:
        """Yield folders of which something is hidden and that are listed: an interpreter has to, and programs do."""
        yield from (folder for folder in ("/usr",) if Path(folder).is_dir())
        for path in {str(Path(hidden).parent) for hidden in self.hidden}:
            if _PYTHON.fullmatch(Path(path).name) and _nearest(path, self.shown) > _nearest(path, self.hidden):
                yield path

    def _readable(self, path: str) -> Iterator[str]:
        if path in self.hidden or Path(path).is_symlink():  # what a link leads to is seen where it is shown itself
            return
        if not any(hidden.startswith(f"{path}/") for hidden in self.hidden):
            yield path
            return
        for child in sorted(Path(path).iterdir()):
            if str(child) not in self.shown:
                yield from self._readable(str(child))


def make_view(allowed: tuple[str, ...] = ()) -> View:
    """Return what programs see that were given the default packages and those that are `allowed`."""
    from . import packages  # here, for what it imports would be copied with every fork of the server

    owned = packages.owned(allowed)
    shown, hidden = {path for path in _OTHERS if Path(path).exists()}, packages.installed()
    folders = [f"{root}/{name}" for root in _ROOTS for name in (*_PROGRAMS, *_LIBRARIES)]
    shown |= {folder for folder in folders if Path(folder).is_symlink()}
    shown |= {f"{root}/{name}" for root in _ROOTS for name in _PROGRAMS if Path(f"{root}/{name}").is_dir()}
    libraries = [f"{root}/{name}" for root in _ROOTS for name in _LIBRARIES]
    for base in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        libraries += [f"{base}/lib", f"{base}/lib64"]
    for prefix in map(plain, {sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix}):
        *links, real = _followed(prefix)
        shown |= {*links, *(str(path) for path in Path(real, "bin").glob("python*") if _PROGRAM.fullmatch(path.name))}
        shown |= {str(path) for path in Path(real).glob("pyvenv.cfg")}
    shown.update(_followed(plain(sys.executable)))
    for folder in libraries:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            _look_into(folder, shown, hidden)
    hidden -= shown
    shown |= {f"{folder}/{entry}" for folder, entries in owned.items() for entry in entries}
    return View(
        tuple(sorted(path for path in shown if _nearest(path, shown - {path}) <= _nearest(path, hidden))),
        tuple(sorted(path for path in hidden if _nearest(path, shown) > _nearest(path, hidden - {path}))),
        owned,
        plain(sys.prefix),
        plain(sys.exec_prefix),
    )


def plain(path: str) -> str:
    """Return a path without `..`, as in that of a Python that was called as `../bin/python`."""
    here = Path(path)
    return str(here.parent.resolve() / here.name) if ".." in here.parts else path


visible: tuple[list[str], list[str]] = [], []
"""The files and folders that programs see without namespaces, and the folders that they only list."""


def take_packages(view: View, folder: str) -> None:
    """Import from the standard library and the packages of `view` only, without namespaces by way of `folder`.

    Landlock cannot let a folder be listed without what is in it: there the packages stand in a folder of links.
    """
    places = list(view.packages)
    if folder:
        places = [f"{folder}/{PACKAGES}"]
        for source, entries in view.packages.items():
            for entry in entries:
                link = Path(places[0], entry)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(f"{source}/{entry}")
        visible[0][:], visible[1][:] = [*view.readable(), places[0]], view.listed()
    sys.path += places
    sys.prefix, sys.exec_prefix = view.prefix, view.exec_prefix
    for add in (site.setquit, site.setcopyright, site.sethelper):  # `exit`, `copyright`, `help` and the like
        add()


def _look_into(folder: str, shown: set[str], hidden: set[str]) -> None:
    """Add what is shown and hidden of a folder of libraries, in the fewest paths."""
    known, others = [], []
    for path in sorted(Path(folder).iterdir()):
        if path.is_symlink() or (path.is_file() and ".so" in path.name):
            known.append(path)
        elif path.is_dir() and _OF_LIBRARIES.fullmatch(path.name) and any(map(_is_no_packages, path.iterdir())):
            known.append(path)
            hidden.update(str(child) for child in path.iterdir() if not _is_no_packages(child))
        elif path.is_dir():
            others.append(path)
    if len(others) < len(known):
        shown.add(folder)
        hidden.update(map(str, others))
    else:
        shown.update(map(str, known))


def _is_no_packages(path: Path) -> bool:
    return not path.name.endswith("-packages")


def _followed(path: str) -> Iterator[str]:
    """Yield the links, of files and of folders, that lead from a path to the place where it is, and that place."""
    here = Path(path)
    while link := next((one for one in (here, *here.parents) if one.is_symlink()), None):
        yield str(link)
        here = Path(os.path.normpath(link.parent / link.readlink() / here.relative_to(link)))
    yield str(here)


def _nearest(path: str, among: Iterable[str]) -> int:
    """Return the length of the longest path among some that is this one or lies above it; 0 if there is none."""
    return max((len(other) for other in among if path == other or path.startswith(f"{other}/")), default=0)
