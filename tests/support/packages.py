"""Code of other people, as if it were installed or lay in the current folder."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def working_in(folder: Path) -> Iterator[Path]:
    """Work in a folder that Python's path does not have; what is imported there is forgotten again."""
    modules = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(folder))])
        importlib.invalidate_caches()
        yield folder
        for name in set(sys.modules) - modules:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]
    importlib.invalidate_caches()


def install(folder: Path, package: str, group: str, **points: str) -> None:
    """Write what an installed package in `folder`, which Python's path has to have, declares in a group."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: Of {package}.\n"
    )
    (info / "entry_points.txt").write_text(
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items())
    )
    importlib.invalidate_caches()
