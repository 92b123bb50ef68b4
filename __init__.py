"""turngym: Gymnasium environments for LLM agents over many turns, and the trainer that goes with them.

Importing this package registers the environments and imports neither torch nor transformers.
"""

import os
import signal
import sys
import threading
from typing import Any


def _end_silently(number: int, frame: Any) -> None:
    os._exit(
        128 + number
    )  # as shells count; nothing is there yet that would have to be saved or removed


_started = sys.orig_argv[1:3] == ["-m", "turngym"] or os.path.basename(sys.argv[0]) == "turngym"  # noqa: PTH119
if _started and threading.current_thread() is threading.main_thread():
    # The command was started: Ctrl-C while its modules are imported shall end it without a traceback.
    signal.signal(signal.SIGINT, _end_silently)

from .envs import Outcome, Reply, StopReason, TextEnv, fork, register_all  # noqa: E402
from .tools import Tool, tool  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Outcome",
    "Reply",
    "StopReason",
    "TextEnv",
    "Tool",
    "__version__",
    "fork",
    "register_all",
    "tool",
]

register_all()
