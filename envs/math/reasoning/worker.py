"""The child process that scores answers with reasoning-gym.

Some of its scorers evaluate text. While an answer is scored, this process compiles only texts of
the entry that is answered. So no answer becomes code, whatever a scorer does with it, and no answer
changes the score of a later one.

It runs as a script and imports nothing of the package: its first argument is the path of the file
that defines `serve`.
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

# Audit events of the interpreter: what makes code of data, and what runs code or another program.
_MAKING_CODE = frozenset(
    {"compile", "code.__new__", "function.__new__", "marshal.loads", "pickle.find_class"}
)
_RUNNING = frozenset(
    {"exec", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen"}
)
_WATCHED_EVENTS = _MAKING_CODE | _RUNNING


class Refused(RuntimeError):
    """A scorer was about to make code of a text that is not its task's."""


class CodeWatch:
    """An audit hook that refuses code which is made or run while an answer is scored.

    Texts of the entry that is answered are an exception: a scorer may evaluate the task itself.
    """

    def __init__(self) -> None:
        self.scoring = False
        self.allowed_texts: frozenset[str] = frozenset()
        self.allowed_runs = 0  # allowed texts that were compiled and have not run yet

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge an audit event, before the interpreter does what it announces.

        Raises:
            Refused: If it is not allowed; the interpreter then raises this from the scorer's call.
        """
        if not self.scoring or event not in _WATCHED_EVENTS:
            return
        if event == "compile" and _as_compiled(arguments[0]) in self.allowed_texts:
            self.allowed_runs += 1
        elif event == "exec" and self.allowed_runs:
            self.allowed_runs -= 1
        else:
            raise Refused(f"{event} of what is no text of the task")

    def begin(self, entry: Any) -> None:
        """Begin to refuse code that is not of this entry of a data set."""
        self.allowed_texts = frozenset(map(_as_compiled, _texts_of(entry)))
        self.allowed_runs = 0
        self.scoring = True

    def end(self) -> None:
        """Allow all code again, until the next answer is scored."""
        self.scoring = False


watch = CodeWatch()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Score an answer.

    Args:
        request: `dataset`, `seed` and `size` of a data set, the `index` of an entry and an
            `answer` to it. An empty request only prepares the process.

    Returns:
        The `score`, and an `error` with the exception's name if the scorer raised one. The reply
        to an empty request is empty.
    """
    if not request:
        importlib.import_module("reasoning_gym")  # the slow part of the first request
        return {}
    dataset, seed, size = request["dataset"], request["seed"], request["size"]
    scorer = _make_data_set(dataset, seed, size)
    # A copy, as a scorer could change the cached entry.
    entry = copy.deepcopy(_make_entry(dataset, seed, size, request["index"]))
    watch.begin(entry)
    try:
        return {"score": float(scorer.score_answer(request["answer"], entry))}
    except (Exception, MemoryError) as error:
        return {"score": 0.0, "error": type(error).__name__}
    finally:
        watch.end()


@functools.lru_cache(maxsize=64)
def _make_data_set(dataset: str, seed: int, size: int) -> Any:
    """Return a data set, which has the entries and the method that scores answers to them."""
    return importlib.import_module("reasoning_gym").create_dataset(dataset, seed=seed, size=size)


@functools.lru_cache(maxsize=64)  # a group of answers is to one task
def _make_entry(dataset: str, seed: int, size: int, index: int) -> Any:
    """Return an entry of a data set, after its own answer was scored once.

    Scorers import what they need at their first answer, and `watch` would refuse that.
    """
    data_set = _make_data_set(dataset, seed, size)
    entry = data_set[index]
    with contextlib.suppress(Exception):  # a scorer may fail at its own answer
        data_set.score_answer(entry["answer"], copy.deepcopy(entry))
    return entry


def _as_compiled(source: Any) -> str:
    """Return a source as the `compile` event shows it: `eval` strips leading blanks and tabs."""
    text = source.decode(errors="replace") if isinstance(source, bytes) else str(source)
    return text.lstrip(" \t")


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the texts anywhere within an entry's dicts, lists and tuples; keys are left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_of(item)


if __name__ == "__main__":
    sys.addaudithook(watch)
    runpy.run_path(sys.argv[1])["serve"](handle, sized=True)
