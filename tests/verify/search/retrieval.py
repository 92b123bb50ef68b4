"""The embedded index: what it finds beside other rankings of the same texts, how fast, and whether always the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.search.corpus import Benchmark
from turngym.tests.verify.search.digest import DEPTH, digest
from turngym.tests.verify.search.rankings import CUTS, lucene, okapi, plain, shares
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.bm25 import stem_words as own

BUILD = 10.0  # seconds
QUERY = 2.0  # milliseconds, the median
PROCESSES, RUNS, CROWD = 3, 2, 6
PATIENCE = 300.0


def retrieval_rows(data: Benchmark) -> Iterator[Row]:
    """Yield the rows of shares, of speed and of sameness."""
    began = time.perf_counter()
    index = BM25(data.passages)
    build = time.perf_counter() - began
    found, seconds = [], []
    for question in data.questions:
        began = time.perf_counter()
        passages = index.search(question.text, DEPTH)
        seconds.append(time.perf_counter() - began)
        found.append([passage.id for passage in passages])
    yield from _compared(data, found)
    size = f"{len(data.passages):,} passages"
    yield Row(
        f"an index of {size} is built within {BUILD:g} s", int(build <= BUILD), 1, f"{build:.2f} s"
    )
    middle, late = (1e3 * float(np.quantile(seconds, share)) for share in (0.5, 0.99))
    note = f"median {middle:.2f} ms, 99 % within {late:.2f} ms, {len(seconds)} queries of {DEPTH} passages"
    yield Row(f"the median query takes at most {QUERY:g} ms", int(middle <= QUERY), 1, note)
    yield from _same(data, digest(index, (question.text for question in data.questions)))


def _compared(data: Benchmark, found: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Compare the shares with those of other rankings, over plain words and over the index's own."""
    golds, texts = (
        [one.golds for one in data.questions],
        [f"{one.title} {one.text}" for one in data.passages],
    )
    ours = shares(found, golds)
    asked = f"{len(golds)} questions" + (
        f", {data.others} without gold passages left out" if data.others else ""
    )
    for words, kind in ((plain, "plain words"), (own, "the index's own words")):
        for ranking, name in (
            (okapi, "rank-bm25's BM25Okapi"),
            (lucene, "Lucene's BM25 in float64"),
        ):
            rank = ranking(texts, words)
            ids = [
                [data.passages[i].id for i in rank(one.text, max(CUTS))] for one in data.questions
            ]
            theirs = shares(ids, golds)
            held = sum(ours[figure] >= theirs[figure] for figure in ours)
            figures = ", ".join(
                f"{figure} {ours[figure]:.4f} / {theirs[figure]:.4f}" for figure in ours
            )
            yield Row(
                f"figures of retrieval at least those of {name} on {kind}",
                held,
                len(ours),
                f"{figures}; {asked}",
            )


def _same(data: Benchmark, wanted: str) -> Iterator[Row]:
    """Compare what processes find: some at once that have no index yet, then one after another, each twice."""
    with tempfile.TemporaryDirectory() as folder:
        crowd = [_process(data, Path(folder), seed) for seed in range(CROWD)]
        yield _row(
            f"{CROWD} processes that make and open the cached index at once find the same",
            crowd,
            wanted,
        )
        later = [
            _process(data, Path(folder), seed, wait=True)
            for seed in range(PROCESSES)
            for _ in range(RUNS)
        ]
        yield _row(
            f"{PROCESSES} processes, each {RUNS} times, find the same ids and score bits",
            later,
            wanted,
        )


def _process(data: Benchmark, cache: Path, seed: int, wait: bool = False) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "turngym.tests.verify.search.digest",
        *map(str, (data.corpus, data.file, cache)),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    if wait:
        process.wait(PATIENCE)  # it writes one line, so that no pipe is full
    return process


def _row(what: str, processes: Sequence[subprocess.Popen[str]], wanted: str) -> Row:
    faults = []
    for process in processes:
        out, errors = process.communicate(timeout=PATIENCE)
        if out.strip() != wanted:
            faults.append((errors.strip().splitlines() or [f"found {out.strip()[:12]}"])[-1])
    note = first(faults, 2) or f"sha256 {wanted[:12]}"
    return Row(what, len(processes) - len(faults), len(processes), note)
