"""The child process that scores answers with reasoning-gym.

Some of its scorers evaluate text. While an answer is scored, this process compiles nothing but texts of the entry that
it answers, so that no answer becomes code, whatever a scorer does with it, and none changes what a later one earns.

It runs as a script and imports nothing of the package: its first argument is the path of the file with `serve`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import runpy
import sys
from collections.abc import Iterator
from typing import Any

# What makes code of data, or has another program run it.
_MAKING_CODE = frozenset(
    {"compile", "code.__new__", "function.__new__", "marshal.loads", "pickle.find_class"}
)
_RUNNING = frozenset(
    {"exec", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen"}
)


class Refused(RuntimeError):
    """A scorer was about to make code of a text that is not its task's."""


class CodeWatch:
    """Refuses code that is made while an answer is scored; the interpreter asks it about all that is."""

    def __init__(self) -> None:
        self.scoring = False
        self.texts: frozenset[str] = frozenset()  # those of the entry, which a scorer may evaluate
        self.ours = 0  # how many texts of the entry were compiled, and not run yet

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.scoring or event not in _MAKING_CODE | _RUNNING:
            return
        if event == "compile" and _source(arguments[0]) in self.texts:
            self.ours += 1
        elif event == "exec" and self.ours:
            self.ours -= 1
        else:
            raise Refused(f"{event} of what is no text of the task")

    def begin(self, entry: Any) -> None:
        self.texts, self.ours, self.scoring = frozenset(map(_source, _texts(entry))), 0, True

    def end(self) -> None:
        self.scoring = False


watch = CodeWatch()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer `{dataset, seed, size, index, answer}` with `{score}`, and an `error` where there is no score."""
    if not request:
        importlib.import_module("reasoning_gym")  # the slow part of the first request
        return {}
    tasks = _tasks(request["dataset"], request["seed"], request["size"])
    entry = copy.deepcopy(
        _entry(request["dataset"], request["seed"], request["size"], request["index"])
    )
    watch.begin(entry)
    try:
        return {"score": float(tasks.score_answer(request["answer"], entry))}
    except (Exception, MemoryError) as error:
        return {"score": 0.0, "error": type(error).__name__}
    finally:
        watch.end()


@functools.lru_cache(maxsize=64)
def _tasks(dataset: str, seed: int, size: int) -> Any:
    return importlib.import_module("reasoning_gym").create_dataset(dataset, seed=seed, size=size)


@functools.lru_cache(maxsize=64)  # the answers of a group are to one task
def _entry(dataset: str, seed: int, size: int, index: int) -> Any:
    """Return an entry whose scorer has imported what it needs, as its own answer was scored."""
    tasks = _tasks(dataset, seed, size)
    entry = tasks[index]
    with contextlib.suppress(Exception):  # its scorer may have no verdict on it
        tasks.score_answer(entry["answer"], copy.deepcopy(entry))
    return entry


def _source(text: Any) -> str:
    """Return a text as it is compiled: `eval` leaves out blanks at the beginning."""
    return (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).lstrip(" \t")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts within an entry."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


if __name__ == "__main__":
    sys.addaudithook(watch)
    runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
