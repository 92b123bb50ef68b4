"""Making several runs at a time, each in a process with one thread."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from ...tools.progress import Work
from .measure import Measured
from .plan import Trial

T = TypeVar("T")
TICK = 2.0  # seconds between looks at how far the runs are


def carry_out(
    trials: Sequence[Trial],
    workers: int,
    say: Callable[[str], object],
    report: Callable[[], object] = lambda: None,
    make: Callable[[Trial], str] | None = None,
) -> None:
    """Make the trials that are not finished, with `train` or as `make` does, say how each ended, and `report` then."""
    left = [trial for trial in trials if not trial.finished]
    with Work("all steps", sum(trial.config.schedule.steps for trial in left)) as work:

        def look() -> None:
            work.reach(sum(trial.steps for trial in left))

        look()
        # Each seed in new processes: the memory of one grows by some 100 MB with every run.
        for seed, group in groupby(left, lambda trial: trial.config.seed):
            work.text = f"seed {seed}"
            for line in in_processes([partial(make or train, trial) for trial in group], workers, look):
                say(line)
                report()


def train(trial: Trial) -> str:
    """Train, or continue, measure the trained policy, and return a line on it."""
    from ..loop import Refusals

    try:
        for _ in trial.records():
            pass
    except (Refusals, FloatingPointError) as error:
        return f"{trial} failed: {error}"
    if not trial.final.episodes:
        return f"{trial}: {trial.steps} steps"
    result = trial.result()
    found = Measured(**result["sampled"])
    how = "solved" if trial.final.solved(found) else "not solved"
    return f"{trial}: {100 * found.success:.1f} %, {how}; {result['seconds']:.0f} s"


def in_processes(
    tasks: Sequence[Callable[[], T]], workers: int, look: Callable[[], object] = lambda: None
) -> Iterator[T]:
    """Do tasks in processes that end with this one, killed or not; yield results as they come, and `look` at times."""
    if not tasks:
        return
    context = get_context("spawn")  # torch's threads do not survive a fork
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _enter, (watched,))
    try:
        left = {pool.submit(task) for task in tasks}
        while left:
            ended, left = wait(left, TICK, "FIRST_COMPLETED")
            look()
            yield from [future.result() for future in ended]
        pool.shutdown()
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)


def _enter(watched: Connection) -> None:
    """Make this process one that works for another: it ends when the other does, and shows nothing."""
    from transformers.utils.logging import disable_progress_bar

    def follow() -> None:
        try:
            watched.recv()
        except (EOFError, OSError):
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process is told, too
    threading.Thread(target=follow, daemon=True).start()
    disable_progress_bar()
