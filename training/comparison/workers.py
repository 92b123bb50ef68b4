"""Tasks done in processes of their own, several at a time; one whose process dies is begun again.

A process may be killed by the machine, as when memory runs out. Its task is then begun again, so a task must be able to
go on from what it left behind, as a training run does. The processes end with the one that began them, killed or not.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Generic, TypeVar

T = TypeVar("T")

TICK = 2.0  # seconds between looks at how far the tasks are
DEATHS = 5  # of the process of one task, after which the task is given up
_CONTEXT = get_context("spawn")  # torch's threads do not survive a fork


class WorkerDied(RuntimeError):
    """The process of a task died each time that the task was begun."""


@dataclass(frozen=True)
class TaskResult(Generic[T]):
    """What a task came to."""

    result: T
    raised: Exception | None = None


@dataclass(frozen=True)
class Begun(Generic[T]):
    """A task in a process of its own; `deaths` is how often its process has died before."""

    index: int
    task: Callable[[], T]
    deaths: int
    process: BaseProcess
    results: Connection

    def answer(self) -> TaskResult[T] | None:
        """Return what the task came to; None where its process has died before it had sent all of it."""
        try:
            answer: TaskResult[T] | None = self.results.recv() if self.results.poll() else None
        except (EOFError, OSError):
            answer = None
        self.results.close()
        self.process.join()
        return answer

    @property
    def end(self) -> str:
        """How the process ended, such as `was killed by SIGKILL` or `ended with status 1`."""
        status = self.process.exitcode
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}"


def in_processes(
    tasks: Sequence[Callable[[], T]],
    workers: int,
    look: Callable[[], object] = lambda: None,
    say: Callable[[int, str], object] = lambda index, line: None,
    given_up: Callable[[int, str], T] | None = None,
) -> Iterator[T]:
    """Do each task in a process of its own and yield the results as they come.

    Args:
        tasks: What is done; each can be pickled, and can be begun again after its process has died.
        workers: Processes at a time.
        look: Called at least every `TICK` seconds.
        say: Called with the number of a task and a line when its process has died and it is begun again.
        given_up: Returns the result of a task, by its number and the reason, after `DEATHS` deaths.

    Raises:
        WorkerDied: A task was given up, and there is no `given_up`.
        Exception: What a task has raised.
    """
    waiting = [(index, task, 0) for index, task in enumerate(tasks)]
    running = list[Begun[T]]()
    # Each process holds one end and follows it: when this process is gone, the other end is closed.
    watched, held = _CONTEXT.Pipe(duplex=False)
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_begin(*waiting.pop(0), watched))
            wait([one.results for one in running], TICK)
            look()
            for one in [one for one in running if one.results.poll() or not one.process.is_alive()]:
                running.remove(one)
                answer = one.answer()
                if answer is not None:
                    if answer.raised is not None:
                        raise answer.raised
                    yield answer.result
                    continue
                deaths = one.deaths + 1
                if deaths < DEATHS:
                    say(
                        one.index,
                        f"its process {one.end}; begun again ({deaths} of at most {DEATHS - 1} times)",
                    )
                    waiting.insert(0, (one.index, one.task, deaths))
                    continue
                why = f"its process {one.end}, the last of {deaths} times; is there memory for {workers} at a time?"
                if given_up is None:
                    raise WorkerDied(why)
                yield given_up(one.index, why)
    finally:
        held.close()
        for one in running:
            one.process.join()
        watched.close()


def _begin(index: int, task: Callable[[], T], deaths: int, watched: Connection) -> Begun[T]:
    results, sending = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_work, args=(watched, sending, task))
    process.start()
    sending.close()  # the process alone holds it, so that its death is seen
    return Begun(index, task, deaths, process, results)


def _work(watched: Connection, sending: Connection, task: Callable[[], object]) -> None:
    """Do a task in this process, which ends when the one that began it does, and shows nothing."""
    from transformers.utils.logging import disable_progress_bar

    def follow() -> None:
        try:
            watched.recv()
        except (EOFError, OSError):
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that began this one is told, too
    threading.Thread(target=follow, daemon=True).start()
    disable_progress_bar()
    try:
        result = task()
    except Exception as error:
        sending.send(TaskResult(None, _sendable(error)))
    else:
        sending.send(TaskResult(result))


def _sendable(error: Exception) -> Exception:
    """Return an error with its traceback in this process as a note; one that cannot be pickled as a RuntimeError."""
    text = traceback.format_exc()
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(text)
    return error
