"""What of this process a program must leave as it was: folder, environment, signals, descriptors, memory."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path


def state() -> dict[str, object]:
    """Return what no call may change at all."""
    status = Path("/proc/self/status").read_text()
    kept = re.findall(
        r"^(Umask|SigBlk|SigIgn|SigCgt|NoNewPrivs|Seccomp):\s*(\S+)", status, re.MULTILINE
    )
    return {
        "working directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "process group": (os.getpgrp(), os.getsid(0)),
        **dict(kept),
    }


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Return the names of what is not as it was."""
    return [name for name in before if before[name] != after.get(name)]


def descriptors() -> Counter[str]:
    """Count the open descriptors of this process by kind: a path, or what stands before the colon of `pipe:[7]`."""
    kinds: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # the one that lists them
            continue
        kinds[
            re.sub(r":\[\d+\]$", "", target) if not target.startswith("/") else _plain(target)
        ] += 1
    return kinds


def _plain(path: str) -> str:
    """Return a path without what is other each time a temporary file is made."""
    return "a deleted file" if path.endswith(" (deleted)") else path
