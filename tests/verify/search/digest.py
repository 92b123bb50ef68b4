"""What an index finds, to the last bit, as one number; a script: `python -m …digest CORPUS QUESTIONS CACHE`."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from turngym.envs.rows import json_rows
from turngym.tools.search.bm25 import open_index
from turngym.tools.search.retriever import Retriever

DEPTH = 20  # passages a query


def digest(index: Retriever, queries: Iterable[str]) -> str:
    """Return the sha256 of the ids that are found for all queries, and of the bits of their scores."""
    found = hashlib.sha256()
    for query in queries:
        for passage in index.search(query, DEPTH):
            found.update(json.dumps(passage.id).encode() + struct.pack("<d", passage.score))
        found.update(b"\n")
    return found.hexdigest()


if __name__ == "__main__":
    corpus, questions, cache = map(Path, sys.argv[1:])
    asked = (row["question"] for _, row in json_rows(questions) if row.get("gold_passages"))
    sys.stdout.write(digest(open_index(corpus, cache), asked) + "\n")
