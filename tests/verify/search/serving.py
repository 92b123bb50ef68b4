"""The real server in a process of its own: the same answers as without it, crowds, and its sudden end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

from turngym.agents.evaluation.scores import Episode, from_trees
from turngym.agents.players import GoldPlayer, play_all
from turngym.agents.trajectory import Tree
from turngym.envs import Outcome, TextEnv
from turngym.envs.qa import QATask, SearchEnv
from turngym.envs.tasks import ListTasks
from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.search.corpus import Benchmark
from turngym.tests.verify.search.faults import outcome
from turngym.tests.verify.search.strangers import stranger_rows
from turngym.tools import Search
from turngym.tools.http.failures import Fault, Limits
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import Retriever
from turngym.tools.subprocesses.deadlines import start_thread

CROWD = 200  # searches at once
DEPTH = 5  # passages a search
PATIENCE = 120.0  # seconds
BOUNDS = Limits(deadline=3.0, tries=2)
THREADS, SEARCHES, EPISODES = 16, 600, 200


@contextmanager
def server(corpus: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a corpus in a process of its own; yield the URL and the process.

    Raises:
        OSError: it does not say where it serves.
    """
    with tempfile.TemporaryDirectory() as cache:
        command = [
            sys.executable,
            "-m",
            "turngym",
            "serve-search",
            str(corpus),
            "--port",
            "0",
            "--cache",
            cache,
        ]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if (url := re.match(r"http://[\w.:]+", said)) is None:
                process.kill()
                raise OSError(
                    f"turngym serve-search {corpus} says {said!r}: {process.communicate()[1].strip()[-300:]}"
                )
            yield url[0], process
        finally:
            process.kill()
            process.communicate()


def serving_rows(data: Benchmark) -> Iterator[Row]:
    """Yield the rows of the same answers, of strangers, and of the server's end amid searches and amid episodes."""
    index = BM25(data.passages)
    with server(data.corpus) as (url, _):
        yield _same(data, index, url)
    with server(data.corpus) as (url, process):
        yield from stranger_rows(url, process.pid)
        yield _killed(data, index, url, process.kill)
    with server(data.corpus) as (url, process):
        yield _left(data, url, process.kill)


def _shown(retriever: Retriever, query: str) -> list[tuple[str, str, float]]:
    return [(passage.id, passage.text, passage.score) for passage in retriever.search(query, DEPTH)]


def _queries(data: Benchmark, count: int) -> list[str]:
    return [data.questions[i % len(data.questions)].text for i in range(count)]


def _same(data: Benchmark, index: Retriever, url: str) -> Row:
    """Compare the answers to many searches at once with those of the embedded index."""
    queries, wrong = _queries(data, CROWD), []
    wanted = [_shown(index, query) for query in queries]
    retriever = SearchR1(url)
    asked = [start_thread(partial(_shown, retriever, query), "a search") for query in queries]
    for query, expected, future in zip(queries, wanted, asked, strict=True):
        try:
            if future.result(PATIENCE) != expected:
                wrong.append(f"another answer to {query!r}")
        except Exception as error:  # whatever it is, it counts
            wrong.append(f"{type(error).__name__}: {error}")
    retriever.close()
    return Row(
        "searches at once over HTTP find what the index finds",
        CROWD - len(wrong),
        CROWD,
        first(wrong, 2),
    )


def _killed(data: Benchmark, index: Retriever, url: str, kill: Callable[[], None]) -> Row:
    """Kill the server when a third of the searches is done; count those that end right or with a fault."""
    wanted = {query: _shown(index, query) for query in set(_queries(data, SEARCHES))}
    retriever, done, lock = SearchR1(url, limits=BOUNDS), Counter[str](), Lock()

    def search(query: str) -> None:
        def compared() -> None:
            if _shown(retriever, query) != wanted[query]:
                raise ValueError("another answer")

        got = outcome(compared)
        with lock:
            done[got] += 1
            if done.total() == SEARCHES // 3:
                kill()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(search, _queries(data, SEARCHES)))
    retriever.close()
    good, failed = done["passages"], sum(done[fault] for fault in Fault)
    note = f"{good} found and {failed} failed of {SEARCHES}: {', '.join(f'{n} {c}' for n, c in done.items())}"
    held = good + failed if good and failed else 0
    return Row(
        "searches end right or with a fault when the server is killed amid them",
        held,
        SEARCHES,
        note,
    )


def _left(data: Benchmark, url: str, kill: Callable[[], None]) -> Row:
    """Kill the server when a third of the episodes is played; count those that earn their reward or none at all.

    The last third waits for that, so that some are under way then, however fast the others were.
    """
    tasks = [
        QATask(f"q{i}", text, "yes", queries=(text,))
        for i, text in enumerate(_queries(data, EPISODES))
    ]
    env = SearchEnv(ListTasks(tasks), [Search(SearchR1(url, limits=BOUNDS), DEPTH)])
    played, killed = list[Tree](), Event()

    def on_tree(tree: Tree) -> None:
        played.append(tree)
        if len(played) == EPISODES // 3:
            kill()
            killed.set()

    class Patient(GoldPlayer):
        def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
            if int(env.task_id.removeprefix("q")) >= EPISODES * 2 // 3:
                killed.wait(PATIENCE)
            return super().act(env, observation, info)

    player = Patient()
    trees = play_all(
        env, lambda task, seed: player, [(task, 0) for task in range(EPISODES)], on_tree
    )
    episodes = from_trees(trees)
    env.close()
    ends = Counter(str(episode.outcome) for episode in episodes)
    right = sum(map(_right, episodes)) if len(ends) == 2 else 0
    note = ", ".join(f"{name} {count}" for name, count in sorted(ends.items()))
    return Row(
        "episodes go on, paid or failed and never unpaid, when the server is killed",
        right,
        EPISODES,
        note,
    )


def _right(episode: Episode) -> bool:
    """Whether an episode was paid, or is a failure without a reward."""
    if episode.outcome is Outcome.TOOL_ERROR:
        return episode.score != episode.score  # NaN
    return episode.outcome is Outcome.DONE and episode.score == 1.0
