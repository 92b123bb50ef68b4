r"""The embedded index beside rank-bm25, tantivy and bm25s as they come, and the server with 1, 32 and 200 clients.

    python benchmarks/search.py [--quick] [--corpus FILE] [--questions FILE] [--rounds 3] [--queries 200]

All search the same passages for the same questions in one run on one machine, in turn, query by query, so that a busy
machine slows them alike. Those of tantivy and bm25s that are not installed are left out, and named so. Ratios are
theirs over ours. The exit status is 1 where a figure misses its goal.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

import numpy as np

from turngym.tests.verify.search.corpus import Benchmark, read
from turngym.tests.verify.search.rankings import shares
from turngym.tests.verify.search.retrieval import BUILD, QUERY
from turngym.tests.verify.search.serving import server
from turngym.tools.search.bm25 import BM25, stem_words
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import Passage

DEPTH = 20  # passages a query
CLIENTS = (1, 32, 200)
OPENING = """
import sys, time
from turngym.tools.search.bm25 import open_index
began = time.perf_counter()
index = open_index(sys.argv[1], sys.argv[2])
index.search("the first question", 20)
print(time.perf_counter() - began)
"""

T = TypeVar("T")
Search = Callable[[str], list[str]]  # a query to the ids of passages


@dataclass
class Contender:
    """Somebody's index: how it is built, and what was measured, in seconds."""

    name: str
    build: Callable[[Sequence[Passage]], Search]
    built: list[float]
    asked: list[float]
    found: list[list[str]]


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    options = _options()
    given = read(options.corpus, options.questions)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}"
    print(
        f"{platform.machine()}, {load}, Python {platform.python_version()}, {len(given.passages):,} passages"
    )
    good = engines(given, options.rounds, options.queries)
    opening(given)
    clients(given, options.queries)
    return 0 if good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "search_qa"
    parser.add_argument("--corpus", type=Path, default=data / "corpus.jsonl.gz", help="passages")
    parser.add_argument(
        "--questions",
        type=Path,
        default=data / "questions_with_gold.jsonl",
        help="with gold passages",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each index is built")
    parser.add_argument("--queries", type=int, default=200, help="questions that are asked")
    parser.add_argument(
        "--quick", action="store_true", help="each index is built once and asked 50 questions"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.queries = 1, 50
    return options


# --- the engines


def engines(given: Benchmark, rounds: int, queries: int) -> bool:
    """Print build and query times of all, beside ours, and what each finds; return whether ours meet their goals."""
    ours, *others = contenders = _contenders()
    searches = []
    for _ in range(rounds):
        searches = [_timed(one.built, partial(one.build, given.passages)) for one in contenders]
    asked = given.questions[:: max(len(given.questions) // queries, 1)][:queries]
    for question in asked:
        for one, search in zip(contenders, searches, strict=True):
            one.found.append(_timed(one.asked, partial(search, question.text)))
    golds = [question.golds for question in asked]
    for one in contenders:
        middle, late = 1e3 * median(one.asked), 1e3 * quantiles(one.asked, n=100)[98]
        figures = shares(one.found, golds)
        print(
            f"{one.name:24} build {min(one.built):6.2f} s   query {middle:7.3f} ms (99 % {late:7.2f} ms)",
            end="   ",
        )
        print(", ".join(f"{name} {share:.3f}" for name, share in figures.items()))
    for one in others:
        query, build = median(one.asked) / median(ours.asked), min(one.built) / min(ours.built)
        print(f"{one.name + ' over ours':24} build {build:5.1f}x   query {query:6.1f}x")
    print(f"goals: build within {BUILD:g} s, median query within {QUERY:g} ms")
    return min(ours.built) <= BUILD and 1e3 * median(ours.asked) <= QUERY


def _contenders() -> list[Contender]:
    known = {"tantivy": (_tantivy, "tantivy (en_stem)"), "bm25s": (_bm25s, "bm25s as it comes")}
    absent = [name for name in known if find_spec(name) is None]
    if absent:
        print(f"not installed and left out: {', '.join(absent)}")
    named = [("ours", _ours), ("rank-bm25 Okapi", _okapi)]
    named += [(name, build) for package, (build, name) in known.items() if package not in absent]
    return [Contender(name, build, [], [], []) for name, build in named]


def _timed(seconds: list[float], work: Callable[[], T]) -> T:
    began = time.perf_counter()
    done = work()
    seconds.append(time.perf_counter() - began)
    return done


def _ours(passages: Sequence[Passage]) -> Search:
    index = BM25(passages)
    return lambda query: [passage.id for passage in index.search(query, DEPTH)]


def _okapi(passages: Sequence[Passage]) -> Search:
    from rank_bm25 import BM25Okapi

    index = BM25Okapi([stem_words(f"{one.title} {one.text}") for one in passages])
    ids = [one.id for one in passages]
    return lambda query: [
        ids[i] for i in np.argsort(-index.get_scores(stem_words(query)), kind="stable")[:DEPTH]
    ]


def _bm25s(passages: Sequence[Passage]) -> Search:
    import bm25s

    texts = [f"{one.title} {one.text}" for one in passages]
    index, ids = bm25s.BM25(), [one.id for one in passages]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def search(query: str) -> list[str]:
        tokens = bm25s.tokenize(query, show_progress=False)
        found, _ = index.retrieve(tokens, k=min(DEPTH, len(ids)), show_progress=False)
        return [ids[i] for i in found[0]]

    return search


def _tantivy(passages: Sequence[Passage]) -> Search:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("body", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build())
    writer = index.writer(128_000_000, 1)
    for one in passages:
        writer.add_document(tantivy.Document(id=one.id, body=f"{one.title} {one.text}"))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[str]:
        parsed, _ = index.parse_query_lenient(query, ["body"])
        return [
            searcher.doc(address)["id"][0] for _, address in searcher.search(parsed, DEPTH).hits
        ]

    return search


# --- opening and serving


def opening(given: Benchmark) -> None:
    """Time how fast a fresh process opens the corpus and finds something: without an index on disk, then with it."""
    with tempfile.TemporaryDirectory() as cache:
        for what in ("no index yet", "index on disk"):
            run = [sys.executable, "-c", OPENING, str(given.corpus), cache]
            seconds = float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
            print(f"open and search, {what:24} {1e3 * seconds:8.0f} ms")


def clients(given: Benchmark, queries: int) -> None:
    """Print searches a second of the server, with some clients at once."""
    asked = [question.text for question in given.questions]
    with server(given.corpus) as (url, _):
        retriever = SearchR1(url)
        retriever.search(asked[0], DEPTH)
        for count in CLIENTS:
            texts = list(islice(cycle(asked), max(queries, 5 * count)))
            seconds: list[float] = []
            began = time.perf_counter()
            with ThreadPoolExecutor(count) as pool:
                jobs = [
                    pool.submit(_timed, seconds, partial(retriever.search, text, 3))
                    for text in texts
                ]
                for job in jobs:
                    job.result()
            rate = len(texts) / (time.perf_counter() - began)
            late = 1e3 * quantiles(seconds, n=100)[98]
            print(
                f"server, {count:3} clients: {rate:7,.0f} searches/s, median {1e3 * median(seconds):6.1f} ms",
                end=", ",
            )
            print(f"99 % within {late:.1f} ms")
        retriever.close()


if __name__ == "__main__":
    sys.exit(main())
