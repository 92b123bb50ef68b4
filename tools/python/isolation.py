"""What confines the Python tool: three levels, limits on resources, user namespaces and the file tree.

namespaces
    A user, process, network, mount, IPC and host-name namespace for every session, a read-only file tree without
    anyone's files, a file system in memory of 64 MiB, a system-call filter, limits. The default.
landlock
    Files are out of reach by the kernel's Landlock, the network and other processes by a system-call filter; process
    numbers and what the machine tells of itself are seen.
rlimits-only
    Limits on resources alone: the code can read what the user can read, and reach the network. Unsafe.

The supervisor builds the file tree once, in a mount namespace of its own, and lives in it; every boundary gets a copy
of that namespace and adds what is private: a small file system at `/tmp`, and an empty `/proc`.
"""

import contextlib
import errno
import functools
import os
import resource
import site
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from .. import messages
from . import linux

LEVELS = ("namespaces", "landlock", "rlimits-only")
"""The isolation levels, the strongest first."""

LIBRARIES = ("numpy", "sympy")  # what a zygote may have preloaded for programs of its kind
KINDS = ("", *LIBRARIES, "+".join(LIBRARIES))
SOURCE_CAP = 2**20  # bytes of a program
OUTPUT_CAP = 2**20  # bytes of output that are read; a program that writes more is stopped
DISK = 64 * 2**20  # bytes of all files, in memory, of a session and its forks
INODES = 8192  # files and folders of a session and its forks
_CLOSED = 512  # entries that a folder counts as that its owner has closed
PROCESSES = 64  # processes and threads of a session and its forks
FILE = 16 * 2**20  # bytes of one file
OPEN_FILES = 128  # open files of a process

USER = 1000  # the user and group that sandboxed code runs as, in its own user namespace
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
_NOBODY = 65534
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


def remove_folder(folder: str | Path) -> None:
    """Remove a work folder, whatever a program made of it: `shutil.rmtree` fails where folders are deep or closed."""
    pending = [
        top := Path(folder)
    ]  # what is in a folder within it is moved up, so that no path is long
    while pending:
        with contextlib.suppress(OSError):
            (place := pending.pop()).chmod(0o700)
            for path in place.iterdir():
                with contextlib.suppress(OSError):
                    if path.is_symlink() or not path.is_dir():
                        path.unlink()
                    else:
                        path.chmod(0o700)
                        pending.append(path.rename(top / os.urandom(8).hex()))
            if place != top:
                place.rmdir()
    with contextlib.suppress(OSError):
        top.rmdir()


def count_entries(folder: str | Path, most: int) -> int:
    """Return the number of files, folders and links below a folder, or more than `most` if there are more.

    A folder that cannot be listed counts as `_CLOSED`. One whose path is too long for the kernel is too many.
    """
    entries, pending = 0, [str(folder)]
    while pending and entries <= most:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if entries > most:
                        break
        except PermissionError:
            entries += _CLOSED
        except OSError as error:  # it may also have gone
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
    return entries


def set_limits() -> None:
    limits = {
        resource.RLIMIT_FSIZE: FILE,
        resource.RLIMIT_NOFILE: open_files(),
        resource.RLIMIT_NPROC: PROCESSES,
    }
    limits |= dict.fromkeys(
        (resource.RLIMIT_CORE, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK), 0
    )
    for what, value in (limits | {resource.RLIMIT_SIGPENDING: 16 * PROCESSES}).items():
        messages.limit(what, value)


def open_files() -> int:
    """Return how many files a session's process may have open: `OPEN_FILES`, or fewer where the machine says so."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)


def enter_namespaces(view: FileView) -> None:
    """Move this process into a user namespace in which it may make others, and into the file tree.

    A privileged process maps a second user for its boundaries, since limits on processes do not bind the first one.
    """
    maps = {name: _maps(f"/proc/self/{name}", identity) for name, identity in _identities().items()}
    ours, theirs = messages.pair()
    pid, helper = os.getpid(), os.fork()
    if not helper:
        # From outside, where the privilege to map is.
        try:
            ours.close()
            messages.receive(theirs)
            if os.geteuid():
                Path(f"/proc/{pid}/setgroups").write_text("deny")
            for name, text in maps.items():
                Path(f"/proc/{pid}/{name}").write_text(text)
        except (EOFError, OSError):
            os._exit(1)
        os._exit(0)
    theirs.close()
    try:
        linux.unshare(linux.NEWUSER | linux.NEWNS | linux.NEWUTS)
        socket.sethostname("sandbox")  # which boundaries inherit
        messages.send(ours, {})
    finally:
        ours.close()
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the users of a user namespace cannot be mapped")
    _build_tree(view)


def map_users(pid: int) -> None:
    """Give the user namespace of an init process its one user and group."""
    for name, text in _agents_maps().items():
        with open(f"/proc/{pid}/{name}", "wb", buffering=0) as file:  # noqa: PTH123 - pathlib has the kernel copy pages
            file.write(text)


@functools.cache
def _agents_maps() -> dict[str, bytes]:
    lines = {name: Path(f"/proc/self/{name}").read_text().splitlines() for name in _identities()}
    return {
        name: b"%d %d 1\n" % (USER, 0 if len(own) == 1 else USER) for name, own in lines.items()
    }


def _identities() -> dict[str, int]:
    return {"uid_map": os.geteuid(), "gid_map": os.getegid()}


def _maps(path: str, identity: int) -> str:
    """Return the map of a user namespace: this process's own user as 0 and, where it may, nobody as the agent."""
    ranges = [
        [int(number) for number in line.split()] for line in Path(path).read_text().splitlines()
    ]
    nobody = any(first <= _NOBODY < first + count for first, _, count in ranges)
    return f"0 {identity} 1\n" + (f"{USER} {_NOBODY} 1\n" if nobody and not os.geteuid() else "")


def become_agent() -> None:
    """Take on the agent's user and group, in a user namespace that has no other."""
    try:  # noqa: SIM105 - a context manager has the kernel copy many pages
        os.setgroups([])
    except PermissionError:
        pass  # an ordinary user may not, and has only its own groups
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


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
