"""How a run is launched over several processes, as torchrun tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

MEETING = ("MASTER_ADDR", "MASTER_PORT")  # where processes that train together meet


@dataclass(frozen=True)
class Launch:
    """One of `size` processes that were started with the same command; `local` is its number on its machine."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        return self.rank == 0

    def device(self, name: str) -> str:
        """Return this process's device in a run on `name`. Raises ValueError where each cannot have one."""
        if self.size == 1 or name == "cpu":
            return name
        if name != "cuda":
            fix = "use cuda, where each process takes the GPU of its number on the machine, or cpu"
            raise ValueError(f"device is {name!r}, which {self.size} processes cannot share; {fix}")
        return f"cuda:{self.local}"


def launched(environ: Mapping[str, str] = os.environ) -> Launch:
    """Return which process this is; without RANK and WORLD_SIZE it is alone. Raises ValueError if it cannot be."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return Launch()
    rank, size = _count(environ, "RANK"), _count(environ, "WORLD_SIZE")
    local = _count(environ, "LOCAL_RANK") if "LOCAL_RANK" in environ else rank
    if rank >= size:
        raise ValueError(
            f"RANK is {rank} and WORLD_SIZE {size}; ranks count from 0, so let torchrun set both"
        )
    missing = [name for name in MEETING if not environ.get(name)]
    if size > 1 and missing:
        fix = "start with torchrun --nproc-per-node N -m turngym …, or unset WORLD_SIZE for one process"
        raise ValueError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set, so the processes cannot connect: {fix}"
        )
    return Launch(rank, size, local)


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"{name} is {text!r}; it must be a number: let torchrun set it, or unset it for one process"
        )
    return int(text)
