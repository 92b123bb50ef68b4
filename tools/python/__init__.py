"""The Python tool: code in, status and text out.

- `tool`: `PythonTool`, the tool itself
- `session`: a live interpreter as the parent sees it; `probe` and `require` try the levels of this machine
- `server`: the parent's handle on the server process, and on the group of a session and its forks
- `supervisor`: the server process, which keeps boundaries ready and watches their memory
- `cgroup`: the kernel's limit on the memory of a session, where it can be had
- `boundary`: what confines a session and its forks, and ends with one process
- `zygote`: a warm interpreter that forks workers
- `worker`: the process of a session: it confines itself, and forks itself
- `interpreter`: runs programs in one namespace
- `isolation`: levels, limits, user namespaces, and the file tree that programs see
- `packages`: which files of the machine, and which installed packages, that are
- `seccomp`: the filters on system calls, and the judge whom they ask: calls that name processes, changes of files
- `linux`: system calls that Python does not wrap, Landlock, and what `/proc` tells
"""

from .isolation import LEVELS
from .server import LevelRefused
from .session import CannotFork, memory_mode, probe, require
from .tool import PythonTool

__all__ = ["LEVELS", "CannotFork", "LevelRefused", "PythonTool", "memory_mode", "probe", "require"]
