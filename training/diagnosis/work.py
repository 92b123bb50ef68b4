"""Making what a diagnosis is made of, several runs at a time, each in a process with one thread."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ...agents.journal import write_file
from ...tools.progress import Work, track
from .begin import FILE, begin
from .cases import Case
from .measure import curve, play, solved
from .plan import RESULT, Diagnosis, Job

T = TypeVar("T")
PROBED = 8  # steps in which a method that acts is to differ
TICK = 2.0  # seconds between looks at how far the runs are


def carry_out(diagnosis: Diagnosis, workers: int) -> Iterator[str]:
    """Make all starts, then all runs, and yield a line on each that ended. One that fails is named; others continue.

    Raises:
        ValueError: a start is outside its gates; no run has begun then.
    """
    starts, jobs = diagnosis.starts, [job for job in diagnosis.jobs if not job.done]
    whole = sum(job.total for job in diagnosis.jobs)
    kept = whole - sum(job.total for job in jobs)
    made = [start for start in starts if (start[2] / FILE).is_file()]
    lines = _done([partial(make_start, *start) for start in starts if start not in made], lambda: "", workers)
    yield from track(chain((make_start(*start) for start in made), filter(None, lines)), "starts", len(starts))
    yield from _probes(diagnosis, workers)
    with Work("steps", whole) as work:
        work.reach(kept + sum(job.steps for job in jobs))
        for seed in diagnosis.seeds:  # each in new processes: the memory of one grows by some 100 MB with every run
            for line in _done([partial(train, job) for job in jobs if job.seed == seed], lambda: "", workers):
                work.reach(kept + sum(job.total if job.done else job.steps for job in jobs))
                if line:
                    yield line


def _probes(diagnosis: Diagnosis, workers: int) -> Iterator[str]:
    """Say which methods take the same steps as the reference, of those whose first run has not begun."""
    first = [job for job in diagnosis.jobs if job.seed == diagnosis.seeds[0]]
    new = {job.case.name for job in first if not (job.trial.begun or job.trial.method == diagnosis.reference)}
    jobs = [job for job in first if job.case.name in new]
    found = filter(None, _done([partial(probe, job) for job in jobs], lambda: None, workers))
    seen = {(name, method): steps for name, method, steps in track(found, "probes", len(jobs))}
    for (name, method), steps in seen.items():
        if method != (peer := diagnosis.reference) and steps == seen[name, peer]:
            yield f"{method} took the same {len(steps)} first steps as {peer} in {name}: it may not act there at all"


def probe(job: Job) -> tuple[str, str, list[Any]]:
    """Return world, method, and entropy and norm of the gradient in each of the first steps of a run."""
    with TemporaryDirectory() as folder:
        trial = replace(job.trial, config=replace(job.trial.config, out=folder))
        with closing(trial.records()) as records:
            taken = islice((one.metrics for one in records if one.metrics), min(PROBED, job.total))
            steps = [[metrics["entropy"], metrics["grad_norm"]] for metrics in taken]
    return job.case.name, job.trial.method, steps


def make_start(case: Case, seed: int, folder: Path) -> str:
    """Make the policy that a seed begins with, and return a line on it. Raises as `begin` does."""
    found = begin(case, seed, folder)
    shares = (f"{name} {100 * getattr(found, name):.1f} %" for name in case.start.expects(case.world))
    return f"{case.name}, seed {seed} begins with {', '.join(shares)}"


def train(job: Job) -> str:
    """Train, or continue, measure the trained policy, and return a line on it."""
    from ..loop import Refusals

    began, case, folder = time.process_time(), job.case, job.trial.folder
    try:
        if not job.trial.finished:
            for _ in job.trial.records():
                pass
    except (Refusals, FloatingPointError) as error:
        return f"{job} failed: {error}"
    sampled, greedy = play(case, folder, job.seed), play(case, folder, job.seed, samples=1, temperature=0.0)
    seconds = time.process_time() - began
    found = {"sampled": asdict(sampled), "greedy": asdict(greedy), "seconds": seconds, "curve": curve(case, folder)}
    write_file(folder / RESULT, json.dumps(found) + "\n")
    shutil.rmtree(folder / "trees", ignore_errors=True)  # 15 MB or more, which the curve has counted
    how = "solved" if solved(case, sampled) else "not solved"
    return f"{job}: {100 * sampled.success:.1f} %, {how}; {seconds:.0f} s"


def _done(tasks: Sequence[Callable[[], T]], idle: Callable[[], T], workers: int) -> Iterator[T]:
    """Do tasks in other processes and yield their results as they come, and `idle()` now and then.

    The processes end with this one, also where it is killed: then their end of a pipe is closed. What they were doing
    can be killed at any instant.
    """
    if not tasks:
        return
    context = get_context("spawn")  # torch's threads do not survive a fork
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, _enter, (watched,))
    try:
        left = {pool.submit(task) for task in tasks}
        while left:
            ended, left = wait(left, TICK, "FIRST_COMPLETED")
            yield from [future.result() for future in ended] or [idle()]
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
