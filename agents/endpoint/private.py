"""Files that their owner alone may read."""

import os
from pathlib import Path


def make_private(path: Path) -> None:
    """Make sure that a file exists and that others cannot read it. Raises OSError where it is a link, or no file."""
    handle = os.open(
        path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
    )
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
