"""What the tests of an endpoint share: short pauses, and a file of questions."""

import json

import pytest

from turngym.agents.endpoint import client


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(client, "BACKOFF", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"problem": f"What is {i} times 7?", "answer": str(7 * i), "id": f"t{i}"}
        for i in range(1, 5)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
