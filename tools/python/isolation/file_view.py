"""The files that programs see: a read-only tree of the interpreter and its libraries, and a small private file system.

The supervisor builds the file tree once, in a mount namespace of its own, and lives in it; every boundary gets a copy
of that namespace and adds what is private: a small file system at `/tmp`, and an empty `/proc`.
"""

import os
import site
import sys
from dataclasses import dataclass
from pathlib import Path

from . import linux
from .levels import USER

DISK = 64 * 2**20  # bytes of all files, in memory, of a session and its forks
INODES = 8192  # files and folders of a session and its forks
HOME = "/tmp/home"
DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"dev/shm": "/tmp/shm", "var/tmp": "/tmp"}
_FILES = {
    "etc/passwd": f"agent:x:{USER}:{USER}::{HOME}:/bin/sh\n",
    "etc/group": f"agent:x:{USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_OPTIONS = f"size={DISK},nr_inodes={INODES},mode=700,uid={USER},gid={USER}"
PACKAGES = "packages"  # the folder of the allowed packages, where there are no namespaces, in that of the server


@dataclass(frozen=True)
class FileView:
    """What programs see of the machine's files: a path is seen where the nearest of these, or itself, is shown."""

    shown: tuple[
        str, ...
    ]  # interpreter, libraries, the system's programs, allowed packages: files, folders, links
    hidden: tuple[str, ...]  # what lies below a shown folder and is not seen
    packages: dict[
        str, tuple[str, ...]
    ]  # the entries of installed folders that are shown, by folder
    prefix: str  # where the interpreter says that it is installed
    exec_prefix: str
    readable: tuple[str, ...]  # the largest files and folders of which everything is seen
    listed: tuple[
        str, ...
    ]  # folders of which something is hidden, and that an interpreter or programs have to list


visible: tuple[list[str], list[str]] = [], []
"""The files and folders that programs see without namespaces, and the folders that they only list."""


def take_packages(view: FileView, folder: str) -> None:
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
        visible[0][:], visible[1][:] = [*view.readable, places[0]], view.listed
    sys.path += places
    sys.prefix, sys.exec_prefix = view.prefix, view.exec_prefix
    for add in (
        site.setquit,
        site.setcopyright,
        site.sethelper,
    ):  # `exit`, `copyright`, `help` and the like
        add()


def _build_tree(view: FileView) -> None:
    """Make the tree and move into it; this process needs a user and a mount namespace of its own."""
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    base = next(
        folder for folder in ("/tmp", "/mnt", "/var/tmp", "/dev/shm") if Path(folder).is_dir()
    )
    # The tree is built under a mount, and `base` may lie above the interpreter: what is bound is opened before.
    sources = {path: os.open(path, os.O_PATH) for path in view.shown if not Path(path).is_symlink()}
    proc = os.open("/proc", os.O_PATH)
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    links = {path: str(Path(path).readlink()) for path in view.shown if path not in sources}
    flags, options = linux.MS_NOSUID | linux.MS_NODEV, "size=4m,nr_inodes=1024,mode=755"
    linux.mount("tmpfs", base, "tmpfs", flags, options)
    for folder in ("etc", "tmp", "var", ".old"):
        Path(base, folder).mkdir()
    masks = []
    for path in sorted([*sources, *view.hidden]):  # what is above another comes before it
        target = base + path
        if path.endswith(
            (".dist-info", ".egg-info")
        ):  # small, and a mount costs every boundary something
            Path(target).mkdir(parents=True)
            for name in ("METADATA", "PKG-INFO"):
                if (told := Path(f"/proc/self/fd/{sources[path]}/{name}")).is_file():
                    Path(target, name).write_bytes(told.read_bytes())
        elif path in sources:
            _bind(sources[path], target)
            linux.read_only(target, below=True)
        elif Path(target).is_dir():
            linux.mount("tmpfs", target, "tmpfs", flags, options)
            masks.append(target)
        elif Path(target).exists():
            _bind(devices["null"], target)
    _bind(proc, f"{base}/proc")
    for name, source in devices.items():
        _bind(source, f"{base}/dev/{name}")
    for path, target in {**links, **_LINKS}.items():
        if not (link := Path(base, path.lstrip("/"))).exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
    for path, text in _FILES.items():
        Path(base, path).write_text(text)
    for mask in masks:
        linux.read_only(mask, below=False)
    linux.pivot_root(base, f"{base}/.old")
    os.chdir("/")
    linux.unmount("/.old")
    Path("/.old").rmdir()
    linux.read_only("/", below=False)
    for source in (proc, *sources.values(), *devices.values()):
        os.close(source)


def mount_private() -> None:
    """Mount what is private to one boundary, as its first process."""
    covered = {f"/tmp/{name}": os.open(f"/tmp/{name}", os.O_PATH) for name in os.listdir("/tmp")}  # noqa: PTH208
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _OPTIONS)
    for path, source in covered.items():  # an interpreter that lives there
        _bind(source, path)
    flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("none", "/proc", "tmpfs", flags, "size=4k,nr_inodes=2,mode=755")


def _bind(source: int, target: str) -> None:
    if Path(path := f"/proc/self/fd/{source}").is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    linux.mount(path, target, "", linux.MS_BIND | linux.MS_REC)
