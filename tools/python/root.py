"""The file tree that sandboxed code sees: the interpreter and the system's programs, read-only, and nothing else.

The server builds it once, in a mount namespace of its own, and lives in it; every boundary gets a copy of that
namespace and adds what is private: a small file system in memory at `/tmp`, and `/proc` with its own processes only.
"""

import functools
import os
import sys
from pathlib import Path

from . import linux
from .limits import DISK, INODES

USER = 1000
"""The user and group that sandboxed code runs as, in its own user namespace."""
HOME = "/tmp/home"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_PREFIX = ("bin", "lib", "lib64", "include", "pyvenv.cfg")
DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "dev/fd": "/proc/self/fd",
    "dev/stdin": "/proc/self/fd/0",
    "dev/stdout": "/proc/self/fd/1",
    "dev/stderr": "/proc/self/fd/2",
    "dev/shm": "/tmp/shm",
    "var/tmp": "/tmp",
}
_FILES = {
    "etc/passwd": f"agent:x:{USER}:{USER}::{HOME}:/bin/sh\n",
    "etc/group": f"agent:x:{USER}:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def build() -> None:
    """Make the tree and move into it; this process needs a user and a mount namespace of its own."""
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    base = next(folder for folder in ("/tmp", "/mnt", "/var/tmp", "/dev/shm") if Path(folder).is_dir())
    # The tree is built under a mount, and `base` may lie above the interpreter: what is bound is opened before.
    sources = {path: os.open(path, os.O_PATH) for path in visible()}
    proc = os.open("/proc", os.O_PATH)
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    links = {path: str(Path(path).readlink()) for path in _SYSTEM if Path(path).is_symlink()}
    linux.mount("tmpfs", base, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,nr_inodes=1024,mode=755")
    for path, source in sources.items():
        _bind(source, base + path)
        linux.read_only(base + path, below=True)
    _bind(proc, f"{base}/proc")
    for name, source in devices.items():
        _bind(source, f"{base}/dev/{name}")
    for folder in ("etc", "tmp", "var", ".old"):
        Path(base, folder).mkdir(exist_ok=True)
    for path, target in {**links, **_LINKS}.items():
        if not Path(base, path.lstrip("/")).exists():
            Path(base, path.lstrip("/")).symlink_to(target)
    for path, text in _FILES.items():
        Path(base, path).write_text(text)
    linux.pivot_root(base, f"{base}/.old")
    os.chdir("/")
    linux.unmount("/.old")
    Path("/.old").rmdir()
    linux.read_only("/", below=False)
    for source in (proc, *sources.values(), *devices.values()):
        os.close(source)


def furnish() -> bool:
    """Mount what is private to one boundary, as its first process; False when `/proc` cannot be had."""
    covered = {path: os.open(path, os.O_PATH) for path in visible() if path.startswith("/tmp/")}
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _OPTIONS)
    for path, source in covered.items():  # an interpreter that lives there
        _bind(source, path)
    linux.set_host_name("sandbox")
    flags = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    try:
        linux.mount("proc", "/proc", "proc", flags, "subset=pid")
    except PermissionError:
        # Where parts of the machine's own /proc are covered, the kernel gives out no other. The server's is no business
        # of the agent's.
        linux.mount("none", "/proc", "tmpfs", flags, "size=4k,nr_inodes=2,mode=755")
        return False
    return True


_OPTIONS = f"size={DISK},nr_inodes={INODES},mode=700,uid={USER},gid={USER}"


@functools.cache
def visible() -> tuple[str, ...]:
    """The paths that hold the interpreter, its libraries and the system's programs; no links."""
    paths = [path for path in _SYSTEM if Path(path).is_dir() and not Path(path).is_symlink()]
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix):
        if not prefix.startswith("/usr/") and prefix not in ("/usr", "/"):
            paths += [f"{prefix}/{name}" for name in _OF_PREFIX]
    return tuple(path for path in dict.fromkeys([*paths, "/etc/ld.so.cache"]) if Path(path).exists())


def _bind(source: int, target: str) -> None:
    """Show the file or folder behind a descriptor at `target` too."""
    path = f"/proc/self/fd/{source}"
    if Path(path).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    linux.mount(path, target, "", linux.MS_BIND | linux.MS_REC)
