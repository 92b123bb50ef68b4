"""What cannot be: bad input is named at once, and golds of which nothing is left are refused."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turngym.envs.qa import QAGrader, make_search
from turngym.tests.support.faults import FaultServer
from turngym.tests.verify.rows import Row, first

SECONDS = 2.0
EMPTY = ("", " ", "the", "The", "a an the", "...", "!?", "The.", "\t\n", "-", "(the)")
KEPT = ("0", "no", "A.B.C.", "The Who", "é", "北京", "-1")  # something of each is left


@dataclass(frozen=True)
class Mistake:
    """Options that cannot be, and a part of what is said of them."""

    options: Mapping[str, Any]
    said: str


def mistake_row(folder: Path) -> Row:
    """Count the mistakes that are named within 2 seconds."""
    faults = []
    with FaultServer(lambda request: [60.0]) as silent:
        mistakes = _mistakes(folder, silent.url)
        for name, mistake in mistakes.items():
            began = time.monotonic()
            try:
                make_search(**mistake.options).close()
                said = "nothing is said"
            except (ValueError, OSError) as error:
                said = str(error)
            except Exception as error:  # whatever it is, it is no clear message
                said = f"it raises {type(error).__name__}: {error}"
            seconds = time.monotonic() - began
            if mistake.said not in said or seconds > SECONDS:
                faults.append(f"{name}: {said[:200]} ({seconds:.1f} s)")
    what = f"mistakes in corpora, questions and servers named within {SECONDS:g} s"
    return Row(what, len(mistakes) - len(faults), len(mistakes), first(faults, 3))


def _mistakes(folder: Path, silent: str) -> dict[str, Mistake]:
    good = _write(folder / "good.jsonl", {"id": "1", "text": "x"})
    tasks = _write(folder / "tasks.jsonl", {"question": "?", "answers": ["x"]})
    files = {
        "not JSON": ("{", "bad.jsonl:1"),
        "no text": (json.dumps({"id": "1", "text": " "}), "bad.jsonl:1"),
        "no id": (json.dumps({"text": "x"}), "bad.jsonl:1"),
        "two passages with one id": ('{"id": "7", "text": "x"}\n' * 2, "'7'"),
        "no passage": ("", "bad.jsonl"),
    }
    found = {}
    for number, (name, (text, said)) in enumerate(files.items()):
        path = folder / str(number) / "bad.jsonl"
        path.parent.mkdir()
        path.write_text(text)
        found[f"a corpus with {name}"] = Mistake({"tasks": tasks, "corpus": path}, said)
    binary, cut = folder / "binary.jsonl", folder / "cut.jsonl.gz"
    binary.write_bytes(bytes(range(256)))
    cut.write_bytes(gzip.compress(good.read_bytes())[:-6])
    none = folder / "none.jsonl"
    return {
        **found,
        "a corpus that is not there": Mistake({"tasks": tasks, "corpus": none}, str(none)),
        "a folder for a corpus": Mistake({"tasks": tasks, "corpus": folder}, str(folder)),
        "a corpus that is not text": Mistake({"tasks": tasks, "corpus": binary}, "binary.jsonl:1"),
        "a corpus whose gzip is cut": Mistake({"tasks": tasks, "corpus": cut}, "cut.jsonl.gz"),
        "questions that are not there": Mistake({"tasks": none, "corpus": good}, str(none)),
        "questions without a corpus": Mistake({"tasks": tasks}, "corpus"),
        "an unknown back end": Mistake(
            {"tasks": tasks, "url": silent, "backend": "googol"}, "'googol'"
        ),
        "a URL that is none": Mistake({"tasks": tasks, "url": "localhost"}, "localhost"),
        "a server that is down": Mistake(
            {"tasks": tasks, "url": "http://127.0.0.1:9"}, "http://127.0.0.1:9"
        ),
        "a server that says nothing": Mistake({"tasks": tasks, "url": silent}, silent),
        "a format that does not exist": Mistake({"format": "hermse"}, "hermse"),
        "too many hops": Mistake({"hops": 9}, "9"),
        "no passage a search": Mistake({"k": 0}, "k is 0"),
    }


def gold_row(folder: Path) -> Row:
    """Count the golds of which nothing is left that are refused at load, alone and beside others, and those kept."""
    wrong = []
    corpus = _write(folder / "corpus.jsonl", {"id": "1", "text": "x"})
    cases = [([gold], True) for gold in EMPTY] + [(["Paris", gold], True) for gold in EMPTY]
    cases += [([gold], False) for gold in KEPT]
    for number, (golds, refused) in enumerate(cases):
        tasks = _write(folder / f"golds-{number}.jsonl", {"question": "?", "answers": golds})
        try:
            for gold in golds:
                QAGrader.check_gold(gold)
            graded = False
        except ValueError:
            graded = True
        try:
            make_search(tasks=tasks, corpus=corpus).close()
            loaded = False
        except ValueError:
            loaded = True
        if (graded, loaded) != (refused, refused):
            wrong.append(f"{golds!r}: the grader {_does(graded)} and the loader {_does(loaded)} it")
    return Row(
        "golds refused at load where nothing of them is left",
        len(cases) - len(wrong),
        len(cases),
        first(wrong),
    )


def _does(refused: bool) -> str:
    return "refuses" if refused else "takes"


def _write(path: Path, row: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(row) + "\n")
    return path
