"""The child process that scores answers with reasoning-gym, some of whose scorers evaluate the agent's text.

It runs as a script and imports nothing of the package: its first argument is the path of the file with `serve`.
"""

from __future__ import annotations

import copy
import functools
import importlib
import runpy
import sys
from typing import Any


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer `{dataset, seed, size, index, answer}` with `{score}`, and an `error` where there is no score."""
    if not request:
        importlib.import_module("reasoning_gym")  # the slow part of the first request
        return {}
    tasks = _tasks(request["dataset"], request["seed"], request["size"])
    entry = _entry(request["dataset"], request["seed"], request["size"], request["index"])
    try:
        return {"score": float(tasks.score_answer(request["answer"], copy.deepcopy(entry)))}
    except (Exception, MemoryError) as error:
        return {"score": 0.0, "error": type(error).__name__}


@functools.lru_cache(maxsize=64)
def _tasks(dataset: str, seed: int, size: int) -> Any:
    return importlib.import_module("reasoning_gym").create_dataset(dataset, seed=seed, size=size)


@functools.lru_cache(maxsize=64)  # the answers of a group are to one task
def _entry(dataset: str, seed: int, size: int, index: int) -> Any:
    return _tasks(dataset, seed, size)[index]


if __name__ == "__main__":
    runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
