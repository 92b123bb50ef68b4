"""What programs see of the machine's files: interpreter, libraries, system programs, packages.

The packages are those on a list that was made for programs (`check_packages`), with what they need
and what their installation records name. All else that is installed is hidden, wherever this
process finds it, since it may make or grade tasks, or train: of the shown and the hidden paths the
nearest one at or above a path decides (`make_view`).

The server does not import this file, since all it imports would be copied with every fork.
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
    """Check the packages that programs shall see beside the default ones.

    Args:
        packages: Names of installed distributions, or one text with commas between them.

    Returns:
        The normal forms of the names, sorted.

    Raises:
        ValueError: A distribution is not installed, or cannot be shown to programs.
    """
    if isinstance(packages, str):
        packages = packages.split(",")
    names = set(map(str.strip, packages))
    names.discard("")
    for name in names:
        distributions = _with_requirements([name])
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
    """Find what programs see that were given the default packages and the `allowed` ones."""
    hidden = installed()
    shown = {path for path in _OTHER_PATHS if Path(path).exists()}
    shown |= _system_folders()
    shown |= _interpreter_paths()
    library_folders = list(_LIBRARY_FOLDERS)
    for base_prefix in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
        library_folders += [f"{base_prefix}/lib", f"{base_prefix}/lib64"]
    for folder in library_folders:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            _add_library_folder(folder, shown, hidden)
    # What is shown for its own sake stays so, even if something is imported from there.
    hidden -= shown
    packages = owned(allowed)
    for folder, entries in packages.items():
        shown |= {f"{folder}/{entry}" for entry in entries}

    # The fewest paths: no shown path below another one, nor a hidden path that nothing shows.
    shown_paths = tuple(
        sorted(
            path
            for path in shown
            if _nearest_length(path, shown - {path}) <= _nearest_length(path, hidden)
        )
    )
    hidden_paths = tuple(
        sorted(
            path
            for path in hidden
            if _nearest_length(path, shown) > _nearest_length(path, hidden - {path})
        )
    )
    readable: list[str] = []
    for path in shown_paths:
        readable += _wholly_visible(path, shown_paths, hidden_paths)
    return FileView(
        shown=shown_paths,
        hidden=hidden_paths,
        packages=packages,
        prefix=without_parent_steps(sys.prefix),
        exec_prefix=without_parent_steps(sys.exec_prefix),
        readable=tuple(readable),
        listed=_listed_folders(shown_paths, hidden_paths),
    )


def _system_folders() -> set[str]:
    """Return the folders with the system's programs, and the links among its top-level folders.

    Such as `/usr/bin`, and `/lib`, which is a link to `/usr/lib` on most systems.
    """
    shown = {folder for folder in _PROGRAM_FOLDERS if Path(folder).is_dir()}
    for folder in (*_PROGRAM_FOLDERS, *_LIBRARY_FOLDERS):
        if Path(folder).is_symlink():
            shown.add(folder)
    return shown


def _interpreter_paths() -> set[str]:
    """Return the interpreter's programs, the links to them, and the file of a virtual environment.

    Nothing else of an environment's folder is shown, as it may lie in somebody's project.
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
    """Add what is shown and what is hidden of a folder of libraries, in the fewest paths.

    Shown are links, shared libraries and the folders of `_SYSTEM_LIBRARY`. Other folders may be
    a checkout or an environment, and folders like `python3/dist-packages` have installed packages:
    these are hidden.
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
    if len(other_folders) < len(system_entries):
        shown.add(folder)
        hidden.update(str(path) for path in other_folders)
    else:
        shown.update(str(path) for path in system_entries)


def _is_system_library(folder: Path) -> bool:
    """Return whether a folder is a `_SYSTEM_LIBRARY` with more than installed packages in it."""
    if not _SYSTEM_LIBRARY.fullmatch(folder.name):
        return False
    return bool(set(folder.iterdir()) - set(folder.glob("*-packages")))


def _listed_folders(shown: tuple[str, ...], hidden: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that are listed although something in them is hidden.

    Those are `/usr`, and the folder of a standard library: the interpreter lists it to find
    modules, and installed packages are hidden in it.
    """
    listed = []
    for folder in {str(Path(path).parent) for path in hidden}:
        is_standard_library = _STANDARD_LIBRARY.fullmatch(Path(folder).name)
        if is_standard_library and _nearest_length(folder, shown) > _nearest_length(folder, hidden):
            listed.append(folder)
    if Path("/usr").is_dir():
        listed.append("/usr")
    return tuple(listed)


def _wholly_visible(path: str, shown: tuple[str, ...], hidden: tuple[str, ...]) -> Iterator[str]:
    """Yield the largest files and folders, from a visible path downwards, with nothing hidden.

    A link is not among them: a program sees its target if that is shown itself.
    """
    if path in hidden or Path(path).is_symlink():
        return
    if not any(hidden_path.startswith(f"{path}/") for hidden_path in hidden):
        yield path
        return
    for child in sorted(Path(path).iterdir()):
        if str(child) not in shown:
            yield from _wholly_visible(str(child), shown, hidden)


def _nearest_length(path: str, candidates: Iterable[str]) -> int:
    """Return the length of the longest candidate that is the path or above it; 0 if none is.

    Of two sets, the one with the greater length has the nearer path.
    """
    lengths = [
        len(candidate)
        for candidate in candidates
        if path == candidate or path.startswith(f"{candidate}/")
    ]
    return max(lengths, default=0)


@functools.cache
def owned(packages: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the entries of installed folders that programs may import, by folder.

    They belong to the default distributions, to `packages`, and to what these need. The folders
    are in the order in which this process searches them.
    """
    entries_by_folder: dict[str, set[str]] = {}
    for distribution in _with_requirements((*DEFAULT, *packages)).values():
        folder = _install_folder(distribution)
        entries = entries_by_folder.setdefault(str(folder), set())
        entries.update(_importable_entries(folder, _installed_files(distribution)))
    search_order = {str(Path(entry).resolve()): place for place, entry in enumerate(sys.path)}
    folders = sorted(
        entries_by_folder, key=lambda folder: search_order.get(folder, len(search_order))
    )
    return {folder: tuple(sorted(entries_by_folder[folder])) for folder in folders}


def installed() -> set[str]:
    """Return the folders and archives from which this process imports anything non-standard.

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

    Below its folders packages are installed too, in a folder such as `site-packages`.
    """
    for folder in standard_folders:
        if path.is_relative_to(folder):
            below = path.relative_to(folder).parts
            if not below or not below[0].endswith("-packages"):
                return True
    return False


def _with_requirements(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Return distributions and all that they need, without extras, if installed, by normal name."""
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
            required_name = _DISTRIBUTION_NAME.match(requirement)
            if required_name and not _ONLY_FOR_EXTRA.search(requirement):
                pending.append(required_name[0])
    return distributions


def _normalize(name: str) -> str:
    """Return the normal form of a distribution's name: `Ruamel_Yaml` -> `ruamel-yaml`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _install_folder(distribution: metadata.Distribution) -> Path:
    return Path(str(distribution.locate_file(""))).resolve()


def _installed_files(distribution: metadata.Distribution) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a distribution's files, in parts: `("numpy", "fft", "helper.py")`."""
    record = distribution.read_text("RECORD")
    if record:
        # Not by `distribution.files`, which would make an object of every row.
        for row in csv.reader(record.splitlines()):
            if row:
                yield tuple(row[0].split("/"))
        return
    # An older kind of installation lists files elsewhere, or only the names of modules.
    for file in distribution.files or ():
        yield file.parts
    folder = _install_folder(distribution)
    for module in (distribution.read_text("top_level.txt") or distribution.name).split():
        for entry in folder.glob(f"{module}*"):
            if entry.stem == module:
                yield (entry.name,)


def _importable_entries(folder: Path, files: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the entries of a folder that belong to a distribution, by its files in that folder.

    A folder without `__init__` is a namespace package, which distributions share: of that, only
    the entries of this distribution, as `google/protobuf`.
    """
    files_by_entry: dict[str, list[tuple[str, ...]]] = {}
    for entry, *below in files:
        if not _NO_MODULE.fullmatch(entry):
            files_by_entry.setdefault(entry, []).append(tuple(below))
    for entry, files_below in files_by_entry.items():
        path = folder / entry
        is_shared = (
            path.is_dir()
            and not entry.endswith(_OWNED_FOLDERS)
            and not any(path.glob("__init__.*"))
        )
        if is_shared:
            for entry_below in _importable_entries(path, filter(None, files_below)):
                yield f"{entry}/{entry_below}"
        elif path.exists():
            yield entry


def _editable_source(distribution: metadata.Distribution) -> Path | None:
    """Return the folder with the sources of an editable install; None for an ordinary one."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    is_editable = origin.get("dir_info", {}).get("editable", False)
    if is_editable and "url" in origin:
        return Path(unquote(urlparse(origin["url"]).path))
    return None


def without_parent_steps(path: str) -> str:
    """Return a path without `..`, as that of a Python that was called as `../bin/python` has.

    The last part may be a link, which is kept: it tells the interpreter its environment.
    """
    as_path = Path(path)
    if ".." not in as_path.parts:
        return path
    return str(as_path.parent.resolve() / as_path.name)


def _follow_links(path: str) -> Iterator[str]:
    """Yield the links, of files and folders, that lead from a path to its target; then that."""
    current = Path(path)
    while True:
        link = next((place for place in (current, *current.parents) if place.is_symlink()), None)
        if link is None:
            break
        yield str(link)
        below_link = current.relative_to(link)
        current = Path(os.path.normpath(link.parent / link.readlink() / below_link))
    yield str(current)
