"""What programs see of the machine's files: interpreter, libraries, system programs, packages.

Programs see the default packages and those that `check_packages` accepts, with their requirements.
All other installed packages are hidden, as they may generate or grade tasks. `make_view` lists the
shown and the hidden paths: a path is visible if the nearest listed path at or above it is shown.

The server does not import this module, since every fork would copy what it imports.
"""

import csv
import functools
import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from .file_view import FileView

DEFAULT = ("numpy", "sympy", "mpmath", "scipy", "pandas", "networkx")
"""Distributions that programs see if they are installed, with what they need."""

_OWN_PACKAGE = __package__.split(".")[0]

_DISTRIBUTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ONLY_FOR_EXTRA = re.compile(r";.*\bextra\b")  # of a requirement: `pytest; extra == "test"`
# Top-level entries of a distribution that no program imports by name.
_NO_MODULE = re.compile(r"\.\.|/|__pycache__|__editable__.*|.*\.pth|(site|user)customize\.py|")
# Folders that belong to one distribution as a whole, although they have no `__init__`.
_OWNED_FOLDERS = (".dist-info", ".egg-info", ".libs")

_SYSTEM_ROOTS = ("", "/usr", "/usr/local")
_PROGRAM_FOLDERS = tuple(f"{root}/{name}" for root in _SYSTEM_ROOTS for name in ("bin", "sbin"))
_LIBRARY_FOLDERS = tuple(
    f"{root}/{name}" for root in _SYSTEM_ROOTS for name in ("lib", "lib32", "lib64", "libx32")
)
_OTHER_PATHS = (
    "/etc/ld.so.cache",
    "/usr/include",
    "/usr/libexec",
    "/usr/share/locale",
    "/usr/share/misc",
    "/usr/share/perl",
    "/usr/share/terminfo",
    "/usr/share/zoneinfo",
)
# Folders in a folder of libraries in which nobody installs Python packages or keeps a checkout.
_SYSTEM_LIBRARY = re.compile(
    r"[\w.]+-linux-\w+|python\d\.\d+t?|gcc|gconv|git-core|locale|ossl-modules|perl[\d.]*|pkgconfig"
    r"|ssl|terminfo"
)
_STANDARD_LIBRARY = re.compile(r"python\d\.\d+t?")  # the name of its folder
_INTERPRETER = re.compile(r"python[\d.]*t?")  # names of its programs


def check_packages(packages: str | Iterable[str]) -> tuple[str, ...]:
    """Check the packages that programs will see in addition to the default ones.

    Args:
        packages: Names of installed distributions, or one text with commas between them.

    Returns:
        The normal forms of the names, sorted.

    Raises:
        ValueError: A distribution is not installed, or cannot be shown to programs.
    """
    given_names = packages.split(",") if isinstance(packages, str) else packages
    names = set(map(str.strip, given_names))
    names.discard("")
    for name in names:
        # Each package brings its requirements, which are seen as well.
        distributions = _find_with_requirements([name])
        if _normalize(name) not in distributions:
            raise ValueError(
                f"packages has {name!r}, which is not installed; install it or leave it out"
            )
        if _OWN_PACKAGE in distributions:
            raise ValueError(
                f"packages has {name!r}, with which programs would see {_OWN_PACKAGE} itself; "
                "leave it out"
            )
        if _editable_source(distributions[_normalize(name)]):
            raise ValueError(
                f"packages has {name!r}, an editable install, which programs cannot see; "
                "install a wheel"
            )
    return tuple(sorted(_normalize(name) for name in names))


def make_view(allowed: tuple[str, ...] = ()) -> FileView:
    """Find what programs see of the machine's files.

    Args:
        allowed: Normal names of the packages that they may import beside the default ones.
    """
    hidden = find_import_locations()
    shown = {path for path in _OTHER_PATHS if Path(path).exists()}
    shown |= _find_system_folders()
    shown |= _find_interpreter_paths()
    library_folders = list(_LIBRARY_FOLDERS)
    for base_prefix in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        library_folders += [f"{base_prefix}/lib", f"{base_prefix}/lib64"]
    for folder in library_folders:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            _add_library_folder(folder, shown, hidden)
    # A path that the steps above show is not hidden, even if packages are imported from it.
    hidden -= shown
    packages = find_importable_entries(allowed)
    for folder, entries in packages.items():
        shown |= {f"{folder}/{entry}" for entry in entries}

    # Leave out the paths that change nothing: shown ones that are visible without being listed, and
    # hidden ones that nothing would show.
    shown_paths = sorted(path for path in shown if not _is_visible(path, shown - {path}, hidden))
    hidden_paths = sorted(path for path in hidden if _is_visible(path, shown, hidden - {path}))
    readable: list[str] = []
    for path in shown_paths:
        readable += _find_wholly_visible(path, shown_paths, hidden_paths)
    return FileView(
        shown=tuple(shown_paths),
        hidden=tuple(hidden_paths),
        packages=packages,
        prefix=without_parent_steps(sys.prefix),
        exec_prefix=without_parent_steps(sys.exec_prefix),
        readable=tuple(readable),
        listed=_find_listed_folders(shown_paths, hidden_paths),
    )


def _find_system_folders() -> set[str]:
    """Return the system's program folders, and those of its library folders that are links.

    For example `/usr/bin`, and `/lib`, which is a link to `/usr/lib` on most systems.
    """
    shown = {folder for folder in _PROGRAM_FOLDERS if Path(folder).is_dir()}
    for folder in (*_PROGRAM_FOLDERS, *_LIBRARY_FOLDERS):
        if Path(folder).is_symlink():
            shown.add(folder)
    return shown


def _find_interpreter_paths() -> set[str]:
    """Return the interpreter's programs, the links to them, and `pyvenv.cfg` of an environment.

    Nothing else in the folder of a virtual environment is shown, as that may be in a project.
    """
    shown: set[str] = set()
    for prefix in {sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix}:
        *links, real_prefix = _follow_links(without_parent_steps(prefix))
        shown.update(links)
        for program in Path(real_prefix, "bin").glob("python*"):
            if _INTERPRETER.fullmatch(program.name):
                shown.add(str(program))
        environment_file = Path(real_prefix, "pyvenv.cfg")
        if environment_file.exists():
            shown.add(str(environment_file))
    shown.update(_follow_links(without_parent_steps(sys.executable)))
    return shown


def _add_library_folder(folder: str, shown: set[str], hidden: set[str]) -> None:
    """Add the shown and the hidden paths of a folder of libraries to two sets.

    Shown are links, shared libraries and the folders of `_SYSTEM_LIBRARY`. Other folders are
    hidden, as they may be a checkout or an environment, and so are folders with installed packages
    such as `python3/dist-packages`.

    Args:
        folder: The folder, such as `/usr/lib`.
        shown: Shown paths are added to this.
        hidden: Hidden paths are added to this.
    """
    system_entries: list[Path] = []
    other_folders: list[Path] = []
    for path in sorted(Path(folder).iterdir()):
        if path.is_symlink() or (path.is_file() and ".so" in path.name):
            system_entries.append(path)
        elif path.is_dir() and _is_system_library(path):
            system_entries.append(path)
            hidden.update(str(package_folder) for package_folder in path.glob("*-packages"))
        elif path.is_dir():
            other_folders.append(path)
    # Whichever takes fewer paths: to show the folder but for some, or only its system libraries.
    if len(other_folders) < len(system_entries):
        shown.add(folder)
        hidden.update(str(path) for path in other_folders)
    else:
        shown.update(str(path) for path in system_entries)


def _is_system_library(folder: Path) -> bool:
    """Return whether a folder is a `_SYSTEM_LIBRARY` with more than installed packages in it."""
    if not _SYSTEM_LIBRARY.fullmatch(folder.name):
        return False
    package_folders = set(folder.glob("*-packages"))
    return not package_folders.issuperset(folder.iterdir())


def _find_listed_folders(shown: Sequence[str], hidden: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that can be listed although something in them is hidden.

    These are `/usr` and the folders of a standard library. The interpreter lists the latter to find
    modules, and there may be a hidden folder with installed packages in them.
    """
    listed = []
    for folder in {str(Path(path).parent) for path in hidden}:
        is_standard_library = _STANDARD_LIBRARY.fullmatch(Path(folder).name)
        if is_standard_library and _is_visible(folder, shown, hidden):
            listed.append(folder)
    if Path("/usr").is_dir():
        listed.append("/usr")
    return tuple(listed)


def _find_wholly_visible(path: str, shown: Sequence[str], hidden: Sequence[str]) -> Iterator[str]:
    """Yield the largest files and folders, at and below a shown path, in which nothing is hidden.

    Links are left out: a program sees the target of a link only if the target is shown itself.

    Args:
        path: The path.
        shown: All shown paths.
        hidden: All hidden paths.
    """
    if path in hidden or Path(path).is_symlink():
        return
    if not any(hidden_path.startswith(f"{path}/") for hidden_path in hidden):
        yield path
        return
    for child in sorted(Path(path).iterdir()):
        if str(child) not in shown:  # else the caller passes it as a path itself
            yield from _find_wholly_visible(str(child), shown, hidden)


def _is_visible(path: str, shown: Iterable[str], hidden: Iterable[str]) -> bool:
    """Return whether the nearest shown path, at or above `path`, is nearer than any hidden path."""
    return _length_of_nearest(path, shown) > _length_of_nearest(path, hidden)


def _length_of_nearest(path: str, candidates: Iterable[str]) -> int:
    """Return the length of the longest candidate that is the path or above it; 0 if none is."""
    lengths = [
        len(candidate)
        for candidate in candidates
        if path == candidate or path.startswith(f"{candidate}/")
    ]
    return max(lengths, default=0)


@functools.cache
def find_importable_entries(packages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Find which entries of folders with installed packages programs may import.

    These are the entries of the default distributions, of `packages`, and of their requirements.

    Args:
        packages: Normal names of distributions.

    Returns:
        By folder, the names of the entries, such as `numpy` or `google/protobuf`. The folders are
        in the order in which this process searches them for modules.
    """
    entries_by_folder: dict[str, set[str]] = {}
    for distribution in _find_with_requirements((*DEFAULT, *packages)).values():
        folder = _install_folder(distribution)
        entries = entries_by_folder.setdefault(str(folder), set())
        entries.update(_find_entries_of_distribution(folder, _installed_files(distribution)))
    search_order = {str(Path(entry).resolve()): index for index, entry in enumerate(sys.path)}
    folders = sorted(
        entries_by_folder, key=lambda folder: search_order.get(folder, len(search_order))
    )
    return {folder: tuple(sorted(entries_by_folder[folder])) for folder in folders}


def find_import_locations() -> set[str]:
    """Return the folders and archives from which this process can import non-standard modules.

    These are the folder of this package, those of `site`, all of `sys.path`, and the folders and
    editable sources of installed distributions.
    """
    paths = {Path(__file__).resolve().parents[3]}
    paths.update(Path(folder) for folder in site.getsitepackages())
    paths.add(Path(site.getusersitepackages()))
    paths.update(Path(entry).resolve() for entry in sys.path)
    for distribution in metadata.distributions():
        paths.add(_install_folder(distribution))
        editable_source = _editable_source(distribution)
        if editable_source:
            paths.add(editable_source)
    standard_folders = [
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")
    ]
    resolved = {path.resolve() for path in paths}
    return {str(path) for path in resolved if not _is_standard(path, standard_folders)}


def _is_standard(path: Path, standard_folders: list[Path]) -> bool:
    """Return whether a path belongs to the standard library.

    Other packages are installed in its folders as well, below a folder such as `site-packages`.
    """
    for folder in standard_folders:
        if path.is_relative_to(folder):
            relative_parts = path.relative_to(folder).parts
            if not relative_parts or not relative_parts[0].endswith("-packages"):
                return True
    return False


def _find_with_requirements(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Find distributions and all their requirements, but for those of extras.

    Args:
        names: Names of distributions in any form.

    Returns:
        The installed ones of these distributions, by normal name.
    """
    distributions: dict[str, metadata.Distribution] = {}
    pending = list(names)
    while pending:
        name = _normalize(pending.pop())
        if name in distributions or not _DISTRIBUTION_NAME.fullmatch(name):
            continue
        try:
            distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for requirement in distributions[name].requires or ():
            # A requirement is like `numpy>=1.26; python_version > "3"`.
            name_match = _DISTRIBUTION_NAME.match(requirement)
            if name_match and not _ONLY_FOR_EXTRA.search(requirement):
                pending.append(name_match[0])
    return distributions


def _normalize(name: str) -> str:
    """Return the normal form of a distribution's name: `Ruamel_Yaml` -> `ruamel-yaml`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _install_folder(distribution: metadata.Distribution) -> Path:
    return Path(str(distribution.locate_file(""))).resolve()


def _installed_files(distribution: metadata.Distribution) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a distribution's files, as parts like `("numpy", "fft", "helper.py")`.

    The paths are relative to the folder in which the distribution is installed.
    """
    record = distribution.read_text("RECORD")
    if record:
        # Faster than `distribution.files`, which makes an object of every row.
        for row in csv.reader(record.splitlines()):
            if row:
                yield tuple(row[0].split("/"))
        return
    # Older installers wrote no RECORD, but another list of files, or only the names of modules.
    for file in distribution.files or ():
        yield file.parts
    folder = _install_folder(distribution)
    module_names = distribution.read_text("top_level.txt") or distribution.name
    for module in module_names.split():
        for entry in folder.glob(f"{module}*"):
            if entry.stem == module:
                yield (entry.name,)


def _find_entries_of_distribution(folder: Path, files: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the entries of a folder that belong to a distribution, such as `numpy`.

    Several distributions can share a namespace package, that is a folder without `__init__`. Its
    entries that belong to this distribution are yielded instead, such as `google/protobuf`.

    Args:
        folder: The folder in which the distribution is installed.
        files: The paths, as parts relative to the folder, of the distribution's files.
    """
    files_by_entry: dict[str, list[tuple[str, ...]]] = {}
    for entry, *parts_below in files:
        if not _NO_MODULE.fullmatch(entry):
            files_by_entry.setdefault(entry, []).append(tuple(parts_below))
    for entry, files_below in files_by_entry.items():
        path = folder / entry
        is_namespace_package = (
            path.is_dir()
            and not entry.endswith(_OWNED_FOLDERS)
            and not any(path.glob("__init__.*"))
        )
        if is_namespace_package:
            # Without the path of the entry itself, of which no part is left.
            files_in_package = [parts for parts in files_below if parts]
            for entry_below in _find_entries_of_distribution(path, files_in_package):
                yield f"{entry}/{entry_below}"
        elif path.exists():
            yield entry


def _editable_source(distribution: metadata.Distribution) -> Path | None:
    """Return the folder with the sources of an editable install; None for an ordinary install."""
    try:
        # PEP 610: like `{"url": "file:///home/me/project", "dir_info": {"editable": true}}`.
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    is_editable = origin.get("dir_info", {}).get("editable", False)
    if is_editable and "url" in origin:
        return Path(unquote(urlparse(origin["url"]).path))
    return None


def without_parent_steps(path: str) -> str:
    """Return a path without `..`: `/venv/../bin/python` -> `/bin/python`.

    The last part is kept even if it is a link, by which an interpreter finds its environment.
    """
    original = Path(path)
    if ".." not in original.parts:
        return path
    return str(original.parent.resolve() / original.name)


def _follow_links(path: str) -> Iterator[str]:
    """Yield the links that lead from a path to its target, and at last the target.

    A link may also be a folder above the path: for `/bin/python`, if `/bin` is a link to `usr/bin`,
    it yields `/bin`, then the links that lead on from `/usr/bin/python`.
    """
    current = Path(path)
    while True:
        links = [folder for folder in (current, *current.parents) if folder.is_symlink()]
        if not links:
            break
        link = links[0]  # the nearest
        yield str(link)
        below_link = current.relative_to(link)
        current = Path(os.path.normpath(link.parent / link.readlink() / below_link))
    yield str(current)
