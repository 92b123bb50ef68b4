import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import turngym
from turngym.__main__ import main
from turngym.tools.search import Passage
from turngym.tools.search.servers import SearchR1

ROWS = [
    {"id": "p", "title": "Paris", "text": "Paris is the capital of France."},
    {"id": "r", "contents": '"Rome"\nItaly.'},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_corpus_is_served_until_a_signal(corpus, tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "turngym",
        "serve-search",
        str(corpus),
        "--port",
        "0",
        "--cache",
        str(tmp_path / "c"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(turngym.__file__).parent.parent),
        "SECRET": "s3cret",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        [*command, "--token-env", "SECRET"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as server:
        line = server.stdout.readline()
        url = re.match(r"(http://127\.0\.0\.1:[0-9]+/retrieve): .* 2 passages\n", line)[1]
        back_end = SearchR1(url, token="s3cret")
        back_end.probe()
        found = back_end.search("capital of France", 1)
        assert [(passage.id, passage.title, passage.text) for passage in found] == [
            ("p", "Paris", "Paris is the capital of France.")
        ]
        assert isinstance(found[0], Passage) and found[0].score > 0
        server.send_signal(number)
        rest = server.stdout.read()
        assert server.wait() == 128 + number
        assert rest == "" and "s3cret" not in line
        back_end.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "give a token"),
        (["--port", "70000"], "port is 70000"),
        (["--b", "2"], "b is 2"),
        (["--token-env", "NOT_SET"], "NOT_SET is not set or empty"),
    ],
)
def test_a_mistake_is_answered_at_once(corpus, tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as left:
        main(["serve-search", str(corpus), "--cache", str(tmp_path / "c"), *arguments])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_a_corpus_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["serve-search", str(tmp_path / "none.jsonl")])
    assert left.value.code == 2
    assert "none.jsonl" in capsys.readouterr().err
