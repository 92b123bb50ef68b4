"""Commands that are given a damaged file or folder: exit status 2 and one line, nothing run, nothing left behind."""

import json
import os
import zlib
from pathlib import Path

import pytest

from turngym.__main__ import main
from turngym.training.runs.config import TrainConfig, to_toml

DEEP = b"[" * 100_000
DATA = {  # instead of any file of text
    "empty": b"",
    "NUL": b"\0" * 100,
    "no UTF-8": b"\xff\xfe{}",
    "deep": DEEP,
    "list": b"[]\n",
    "null": b"null\n",
    "cut": b'{"step": 1, "env',
    "long number": b'{"step": ' + b"9" * 5000 + b"}\n",
}


def sealed(**header):
    body = json.dumps(
        {
            "journal": 3,
            "env": "turngym/Math-v0",
            "options": {},
            "turngym": "0",
            "trees": 1,
            **header,
        }
    )
    return seal(body.encode())


def seal(body):
    return body[:-1] + b', "crc32": "%08x"}\n' % zlib.crc32(body[:-1])


JOURNALS = {
    **DATA,
    "deep header": seal(b'{"journal": ' + DEEP + b"]" * 100_000 + b"}"),
    "deep line": sealed() + seal(b'{"key": ' + DEEP + b"]" * 100_000 + b"}"),
    "env in a list": sealed(env=[1]),
    "options in a list": sealed(options=[1]),
    "too few": sealed(trees=3),
    "trees in words": sealed(trees="many"),
    "more": sealed(x=1),
    "tasks of the machine": sealed(options={"tasks": "/etc/passwd"}),
    "tasks without end": sealed(options={"tasks": "/dev/zero"}),
    "a list for a line": sealed() + seal(b"[1]"),
    "a line of numbers": sealed()
    + seal(b'{"key": 1, "task": 2, "task_id": 3, "turns": 4, "leaves": 5}'),
    "leaves of nothing": sealed()
    + seal(b'{"key": [0], "task": 0, "task_id": "", "turns": [], "leaves": [[]]}'),
}
CONFIGS = {
    **DATA,
    "deep values": b"a = " + DEEP,
    "no table": b"train = 3\n",
    "another type": b'[train]\nsteps = "many"\n',
    "unknown key": b"[train]\nlayers = 3\n",
}


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """Run a command that has to refuse, and return what it says."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as caught:
            main([str(arg) for arg in args])
        said = capsys.readouterr().err
        assert caught.value.code == 2 and said.count("\n") == 1 and said.startswith("error: "), said
        assert sorted(tmp_path.rglob("*")) == before
        return said

    return run


@pytest.mark.parametrize("name", JOURNALS)
def test_a_damaged_journal(refused, tmp_path, name):
    path = tmp_path / "trees.jsonl"
    path.write_bytes(JOURNALS[name])
    refused("replay", path)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("train", "--resume", "--out"), ("audit",)])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_damaged_config(refused, tmp_path, name, command):
    (tmp_path / "config.toml").write_bytes(CONFIGS[name])
    assert "config.toml" in refused(*command, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DATA if name not in ("empty", "cut")])
def test_damaged_metrics(refused, tmp_path, name):
    (tmp_path / "config.toml").write_text(to_toml(TrainConfig(), {}))
    (tmp_path / "metrics.jsonl").write_bytes(DATA[name] + b"\n")
    refused("audit", tmp_path)


@pytest.mark.slow
def test_a_step_that_no_run_reaches(refused, tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(TrainConfig(), {}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1000000000000}\n')
    assert "no run is that long" in refused("audit", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DATA if name != "empty"])
def test_a_damaged_task_file(refused, tmp_path, name):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(DATA[name])
    assert "tasks.jsonl" in refused(
        "eval", "turngym/Math-v0", "--tasks", path, "--policy", "expert"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop"])
def test_what_is_no_plain_file(refused, tmp_path, kind):
    path: Path = tmp_path / "thing.jsonl"
    makes = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to(path),
    }
    makes[kind]()
    refused("replay", path)
    refused("eval", "turngym/Math-v0", "--tasks", path)
    refused("eval", "turngym/Math-v0", "--policy", path)
    refused("audit", path)
