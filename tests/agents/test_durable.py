import errno
import os
from pathlib import Path

import pytest

from turngym.agents import durable


def test_a_file_is_written_whole_or_stays_what_it_was(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    durable.write(path, "one é")
    assert path.read_text("utf-8") == "one é"

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.write(path, "two")
    assert path.read_text("utf-8") == "one é" and [*tmp_path.iterdir()] == [path]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace
    name = lambda handle: os.readlink(f"/proc/self/fd/{handle}")  # noqa: E731, PTH115
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(name(handle)) or fsync(handle))
    monkeypatch.setattr(Path, "replace", lambda path, to: events.append("named") or replace(path, to))
    durable.write(tmp_path / "a", "text")
    assert events == [f"{tmp_path}/.a.tmp", "named", str(tmp_path)]
    events.clear()
    durable.append(tmp_path / "b", "line")
    durable.append(tmp_path / "b", "line")
    assert events == [f"{tmp_path}/b", str(tmp_path), f"{tmp_path}/b"]  # the name once, each line


@pytest.mark.parametrize("torn", [b"", b'{"step": 3, "rew', b"\0" * 5000, b"x" * 4096, b"x" * 4095])
@pytest.mark.parametrize("before", [b"", b"one\n", b"one\n" + b"y" * 9000 + b"\n"])
def test_a_line_takes_the_place_of_one_that_was_not_finished(tmp_path, before, torn):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before + torn)
    durable.append(path, "next é")
    durable.append(path, "last")
    assert path.read_bytes() == before + "next é\nlast\n".encode()


def test_a_line_that_could_not_be_written_whole_is_gone_with_the_next(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    durable.append(path, "one")

    def fail(handle: int) -> None:
        with path.open("r+b") as file:
            file.truncate(6)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            durable.append(path, "two")
    assert path.read_bytes() == b"one\ntw"
    durable.append(path, "two")
    assert path.read_bytes() == b"one\ntwo\n"
