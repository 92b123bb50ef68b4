import gzip
import json
import lzma
import threading

import pytest

from turngym.envs.household import store
from turngym.envs.household.store import Store, cache_folder, cached, file_key, rows

ROWS = [{"n": i, "text": "é" * i} for i in range(20)]
TEXT = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"


def head(row, where):
    return [row["n"], where]


@pytest.fixture(params=["", ".gz", ".xz"])
def file(request, tmp_path):
    path = tmp_path / f"games.jsonl{request.param}"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[request.param](TEXT.encode()))
    return path


def test_rows_are_read_one_at_a_time(file):
    found = Store(file, head)
    assert [row[:2] for row in found.index] == [[i, f"{file.name}:{i + 1}"] for i in range(20)]
    assert [found[i] for i in range(20)] == ROWS


def test_a_file_is_read_once(file, monkeypatch, cache):
    Store(file, head)
    assert cache_folder() == cache and len(list(cache.iterdir())) == 1
    monkeypatch.setattr(store, "rows", None)
    assert Store(file, head)[7] == ROWS[7]


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "games.jsonl"
    path.write_text(TEXT)
    key = file_key(path)
    assert len(Store(path, head).index) == 20
    path.write_text(TEXT + json.dumps({"n": 20}))
    assert len(Store(path, head).index) == 21 and file_key(path) != key


def test_without_a_place_for_the_cache_everything_is_read_anew(file, monkeypatch, tmp_path):
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
    for _ in range(2):
        found = Store(file, head)
        assert [found[i] for i in (0, 19)] == [ROWS[0], ROWS[19]]


def test_a_disk_that_fills_up_leaves_nothing_behind(file, monkeypatch, cache):
    monkeypatch.setattr(store.os, "fdopen", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    assert Store(file, head)[3] == ROWS[3] and list(cache.iterdir()) == []


def test_many_writers_at_once_make_one_file(cache):
    barrier, made = threading.Barrier(8), []

    def make():
        barrier.wait()  # everybody found nothing
        return b"the same"

    threads = [threading.Thread(target=lambda: made.append(cached("key", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1 and made[0].read_bytes() == b"the same" and list(cache.iterdir()) == [made[0]]


def test_a_damaged_index_is_named(file, cache):
    Store(file, head)
    made = next(cache.iterdir())
    made.write_bytes(b"[[0, ")
    with pytest.raises(ValueError, match=rf"the index {made} is damaged; delete the file"):
        Store(file, head)


def test_without_a_variable_the_cache_is_at_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "turngym" / "household"


def test_bad_files_are_named(tmp_path):
    for name, data, words in (
        ("a.jsonl", b'{"n": 1}\n{', r"a\.jsonl:\d is not JSON in UTF-8"),
        ("b.jsonl.xz", lzma.compress(TEXT.encode())[:-9], r"b\.jsonl\.xz is not a complete \.xz file"),
        ("c.jsonl.gz", gzip.compress(TEXT.encode())[:-9], r"c\.jsonl\.gz is not a complete \.gz file"),
        ("d.jsonl.gz", b"no gzip", r"d\.jsonl\.gz is not a complete \.gz file"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=words):
            list(rows(tmp_path / name))
