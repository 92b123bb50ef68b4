"""The files that programs see: a read-only tree of interpreter and libraries, and a private folder.

The server builds the file tree once, in its own mount namespace, and moves into it
(`build_file_tree`). Every boundary gets a copy of that namespace and adds its private mounts
(`mount_private`): a small file system at `/tmp`, and an empty `/proc`.

Without namespaces there is no tree: Landlock lets programs read `visible.readable` instead.
"""

import os
import site
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from . import linux
from .levels import SANDBOX_USER

DISK = 64 * 2**20  # bytes of all files, in memory, of a session and its forks
INODES = 8192  # files and folders of a session and its forks
HOME = "/tmp/home"
DEVICES = ("null", "zero", "full", "random", "urandom")
PACKAGES_FOLDER = (
    "packages"  # name, in a server's folder, of the folder with links to allowed packages
)
_LINKS = {"dev/shm": "/tmp/shm", "var/tmp": "/tmp"}
_FILES = {
    "etc/passwd": f"agent:x:{SANDBOX_USER}:{SANDBOX_USER}::{HOME}:/bin/sh\n",
    "etc/group": f"agent:x:{SANDBOX_USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_TREE_OPTIONS = "size=4m,nr_inodes=1024,mode=755"  # of the file system that carries the tree
_PRIVATE_OPTIONS = f"size={DISK},nr_inodes={INODES},mode=700,uid={SANDBOX_USER},gid={SANDBOX_USER}"
_METADATA_FOLDERS = (".dist-info", ".egg-info")
_METADATA_FILES = ("METADATA", "PKG-INFO")


@dataclass(frozen=True)
class FileView:
    """What programs see of the machine's files; `packages.make_view` finds it.

    A path is visible if it, or else the nearest path above it that is listed here, is in `shown`
    rather than in `hidden`.
    """

    # Interpreter, libraries, the system's programs, allowed packages: files, folders and links.
    shown: tuple[str, ...]
    # Paths below a shown folder that are not visible.
    hidden: tuple[str, ...]
    # By folder with installed packages, those of its entries that are shown.
    packages: dict[str, tuple[str, ...]]
    # Where the interpreter says that it is installed.
    prefix: str
    exec_prefix: str
    # The largest files and folders of which everything is visible.
    readable: tuple[str, ...]
    # Folders of which something is hidden, and that an interpreter or programs have to list.
    listed: tuple[str, ...]


class VisiblePaths(NamedTuple):
    """What programs may access without namespaces."""

    readable: list[str]  # files and folders that they can read
    listed: list[str]  # folders that they can only list


visible_paths = VisiblePaths(readable=[], listed=[])
"""The visible paths of this server, which `take_packages` fills in."""


def take_packages(view: FileView, folder: str) -> None:
    """Set the import path of this process to the standard library and the packages of `view`.

    Args:
        view: What programs see.
        folder: The server's folder if there are no namespaces, else "".
    """
    import_folders = list(view.packages)
    if folder:
        # With Landlock, whoever may list a folder may also read the files in it. To keep other
        # installed packages hidden, the allowed ones are imported from a folder of links to them.
        links_folder = f"{folder}/{PACKAGES_FOLDER}"
        for package_folder, entries in view.packages.items():
            for entry in entries:
                link = Path(links_folder, entry)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(f"{package_folder}/{entry}")
        import_folders = [links_folder]
        visible_paths.readable[:] = [*view.readable, links_folder]
        visible_paths.listed[:] = view.listed
    sys.path += import_folders
    sys.prefix = view.prefix
    sys.exec_prefix = view.exec_prefix
    # The names that module `site` adds to a plain interpreter: `exit`, `copyright`, `help` and so
    # on. The server runs without that module, which would also load what is installed.
    site.setquit()
    site.setcopyright()
    site.sethelper()


def build_file_tree(view: FileView) -> None:
    """Build the read-only tree of the files that programs see, and make it this process's root.

    This process needs its own user and mount namespaces, in which it may mount.
    """
    # Mounts of this namespace must not appear in that of the machine.
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    # The tree is built in a new file system, which is mounted on some folder that exists.
    base = next(
        folder for folder in ("/tmp", "/mnt", "/var/tmp", "/dev/shm") if Path(folder).is_dir()
    )
    # The mount at `base` may hide the interpreter and other sources, so they are opened before it
    # is made, and bound by their descriptors.
    source_fds = {
        path: os.open(path, os.O_PATH) for path in view.shown if not Path(path).is_symlink()
    }
    proc_fd = os.open("/proc", os.O_PATH)
    device_fds = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    links = {path: str(Path(path).readlink()) for path in view.shown if path not in source_fds}

    linux.mount("tmpfs", base, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _TREE_OPTIONS)
    for folder in ("etc", "tmp", "var", ".old"):
        Path(base, folder).mkdir()
    covers = _place_sources(base, source_fds, view.hidden, empty_file=device_fds["null"])
    _bind(proc_fd, f"{base}/proc")
    for name, device_fd in device_fds.items():
        _bind(device_fd, f"{base}/dev/{name}")
    _make_links(base, {**links, **_LINKS})
    for path, text in _FILES.items():
        Path(base, path).write_text(text)
    # Not earlier, since shown files and links below a hidden folder are placed in its cover.
    for cover in covers:
        linux.make_read_only(cover, recursive=False)

    # Make the tree the root directory, and remove all else from this namespace.
    linux.pivot_root(base, f"{base}/.old")
    os.chdir("/")
    linux.unmount("/.old")
    Path("/.old").rmdir()
    linux.make_read_only("/", recursive=False)
    for opened_fd in (proc_fd, *source_fds.values(), *device_fds.values()):
        os.close(opened_fd)


def _make_links(base: str, links: dict[str, str]) -> None:
    """Make symbolic links below `base`, given as path and target, unless the path exists."""
    for path, link_target in links.items():
        link = Path(base, path.lstrip("/"))
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(link_target)


def _place_sources(
    base: str, sources: dict[str, int], hidden: tuple[str, ...], *, empty_file: int
) -> list[str]:
    """Bind the shown paths below `base`, and cover the hidden ones.

    Args:
        base: The folder in which the tree is built.
        sources: Descriptors of the shown files and folders, by path.
        hidden: Paths to cover, folders with an empty file system and files with `empty_file`.
        empty_file: Descriptor of a file that reads as empty.

    Returns:
        The paths of the empty file systems, which are still writable.
    """
    covers = []
    # When sorted, a folder comes before the paths in it, which have to be mounted on top of it.
    for path in sorted([*sources, *hidden]):
        target = base + path
        if path.endswith(_METADATA_FOLDERS):
            # It is small, and a mount would have to be copied for every boundary.
            _copy_package_metadata(sources[path], target)
        elif path in sources:
            _bind(sources[path], target)
            linux.make_read_only(target, recursive=True)
        elif Path(target).is_dir():
            linux.mount("tmpfs", target, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _TREE_OPTIONS)
            covers.append(target)
        elif Path(target).exists():
            _bind(empty_file, target)
    return covers


def _copy_package_metadata(source: int, target: str) -> None:
    """Copy the files in which `importlib.metadata` finds the version of a package.

    Args:
        source: Descriptor of the package's metadata folder.
        target: The path of the copy of the folder.
    """
    Path(target).mkdir(parents=True)
    for name in _METADATA_FILES:
        metadata_file = Path(f"/proc/self/fd/{source}/{name}")
        if metadata_file.is_file():
            Path(target, name).write_bytes(metadata_file.read_bytes())


def mount_private() -> None:
    """Mount a private `/tmp` and an empty `/proc` for one boundary, as its first process."""
    # The interpreter may be below `/tmp`, so what the tree has there is bound on the new mount
    # again.
    covered = {f"/tmp/{name}": os.open(f"/tmp/{name}", os.O_PATH) for name in os.listdir("/tmp")}  # noqa: PTH208
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _PRIVATE_OPTIONS)
    for path, source in covered.items():
        _bind(source, path)
    proc_flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("none", "/proc", "tmpfs", proc_flags, "size=4k,nr_inodes=2,mode=755")


def _bind(source: int, target: str) -> None:
    """Bind-mount an open file or folder, with the mounts below it.

    Args:
        source: Descriptor of the file or folder.
        target: The path to mount at, which is made if it does not exist.
    """
    source_path = f"/proc/self/fd/{source}"
    if Path(source_path).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    linux.mount(source_path, target, "", linux.MS_BIND | linux.MS_REC)
