"""A small corpus with questions about it, as files and as they are read."""

import json

import pytest

from turngym.tests.verify.search import corpus

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Tokyo")
PASSAGES = [
    {"id": f"{kind}{i}", "title": city, "text": text.format(city=city, n=1900 + i)}
    for i, city in enumerate(CITIES)
    for kind, text in (
        ("a", "{city} is a capital on a river."),
        ("b", "The tower of {city} was built in {n}."),
    )
]
QUESTIONS = [
    {
        "question": f"When was the tower of {city} built?",
        "answers": [str(1900 + i)],
        "gold_passages": [f"b{i}"],
    }
    for i, city in enumerate(CITIES)
]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of its own for every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def write(tmp_path):
    """Write rows to a JSONL file."""

    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def files(write):
    """A corpus file and a file of questions, one of them without gold passages."""
    return write("corpus.jsonl", PASSAGES), write(
        "questions.jsonl", [*QUESTIONS, {"question": "Why?"}]
    )


@pytest.fixture
def read(files):
    """What is read of these files."""
    return corpus.read(*files)
