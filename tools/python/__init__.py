"""The Python tool: an agent's code runs in its own process and comes back as a status and text.

Limits are enforced from outside that process. Nothing an agent writes raises an exception here;
only a session that cannot be opened does.

- `tool`: `PythonTool`, which an agent calls
- `session`: a live interpreter as the parent sees it; `try_levels` and `require` try the levels of
  this machine
- `server`: the processes that keep confined interpreters ready, and those that run programs
- `isolation`: what confines them
"""

from .isolation.levels import LEVELS
from .server.client import LevelRefused
from .session import CannotFork, memory_mode, require, try_levels
from .tool import PythonTool

__all__ = [
    "LEVELS",
    "CannotFork",
    "LevelRefused",
    "PythonTool",
    "memory_mode",
    "require",
    "try_levels",
]
