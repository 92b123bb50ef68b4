"""Many threads that grade at once, and the seconds that hostile answers take over their limit."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from turngym.envs.math import MathGrader
from turngym.tests.verify.grader.right import Written
from turngym.tests.verify.rows import Row, first

OVERRUN = 0.05  # seconds that a hostile answer may take over its limit
SHARE = 20  # plain completions a thread
PATIENCE = 60.0  # seconds for plain answers: a loaded machine is no wrong verdict
Verdict = tuple[float, str | None]


def together(
    written: Sequence[Written],
    hostile: Sequence[tuple[str, str]],
    threads: int,
    limit: float,
    seed: int,
) -> Row:
    """Count the completions that get from many threads at once, among hostile ones, what they get alone."""
    drawn = random.Random(f"crowd {seed}")
    plain = [
        (one.gold, one.text) for one in drawn.sample(written, min(SHARE * threads, len(written)))
    ]
    graders = {PATIENCE: MathGrader(PATIENCE), limit: MathGrader(limit)}
    jobs = [(PATIENCE, *job) for job in plain] + [
        (limit, *job) for job in drawn.sample(hostile, len(hostile) // 2)
    ]
    drawn.shuffle(jobs)

    def verdict(job: tuple[float, str, str]) -> Verdict:
        grade = graders[job[0]].grade(completion=job[2], gold=job[1])
        return grade.score, grade.answer

    alone = [verdict(job) for job in jobs]
    crowded, raised = _crowd([partial(verdict, job) for job in jobs], threads)
    wrong = [
        f"{job[1]!r:.40} and {job[2]!r:.60}"
        for job, a, b in zip(jobs, alone, crowded, strict=True)
        if a != b
    ]
    note = (
        first([*raised, *wrong])
        or f"{len(plain)} plain completions, {len(jobs) - len(plain)} hostile ones"
    )
    return Row(
        f"completions graded by {threads} threads at once as when alone",
        len(jobs) - len(wrong),
        len(jobs),
        note,
    )


def overruns(hostile: Sequence[tuple[str, str]], limit: float) -> Row:
    """Count the hostile completions whose grading ends within `limit` and 50 ms."""
    grader, late, worst, hows = MathGrader(limit), [], 0.0, Counter[str]()
    for gold, text in hostile:
        over, how = _least(grader, gold, text)
        hows[how] += 1
        worst = max(worst, over)
        if over > OVERRUN:
            late.append(f"{1000 * over:.0f} ms over: {text!r:.60}")
    decided = ", ".join(f"{how} {count}" for how, count in hows.most_common())
    note = "; ".join(
        [*filter(None, [first(late)]), f"worst overrun {1000 * worst:.1f} ms", decided]
    )
    what = f"hostile answers end within {limit:g} s + {1000 * OVERRUN:.0f} ms"
    return Row(what, len(hostile) - len(late), len(hostile), note)


def _least(grader: MathGrader, gold: str, text: str) -> tuple[float, str]:
    """Return the seconds over the limit of grading once, and what decided; where they are too many, the least of three.

    A worker is ready each time: what is measured is the grading, not the start of a process.
    """
    over, how = float("inf"), ""
    for _ in range(3):
        grader.grade(completion=r"\boxed{\sqrt{8}}", gold=r"2\sqrt{2}")
        began = time.monotonic()
        how = grader.grade(completion=text, gold=gold).how
        over = min(over, max(time.monotonic() - began - grader.deadline, 0.0))
        if over <= OVERRUN:
            break
    return over, how


def _crowd(
    jobs: Sequence[Callable[[], Verdict]], threads: int
) -> tuple[list[Verdict | None], list[str]]:
    """Return what each job gives, None where it raises, and what was raised; all threads begin at once."""
    raised: list[str] = []
    begin = threading.Barrier(min(threads, len(jobs)))

    def share(mine: Sequence[Callable[[], Verdict]]) -> list[Verdict | None]:
        begin.wait()
        return [_tried(job, raised) for job in mine]

    with ThreadPoolExecutor(begin.parties) as pool:
        shares = list(pool.map(share, [jobs[i :: begin.parties] for i in range(begin.parties)]))
    found: list[Verdict | None] = [None] * len(jobs)
    for i, mine in enumerate(shares):
        found[i :: begin.parties] = mine
    return found, raised


def _tried(job: Callable[[], Verdict], raised: list[str]) -> Verdict | None:
    try:
        return job()
    except Exception as error:  # whatever it is, it counts
        raised.append(f"raised {type(error).__name__}: {error}")
        return None
