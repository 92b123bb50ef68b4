import hashlib
import logging
import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.tools.search.array_cache import (
    Texts,
    cache_folder,
    digest_values,
    join_texts,
    load_or_make_arrays,
)

KEY = "some-key"


def arrays():
    return {
        "whole": np.arange(7, dtype=np.int64),
        "none": np.zeros(0, np.uint8),
        "table": np.linspace(0, 1, 6, dtype=np.float16).reshape(2, 3),
        "bytes": np.frombuffer(b"xyz", np.uint8),
        "last": np.zeros((0, 3), np.float32),
    }


def never():
    raise AssertionError("it is kept already")


def same(found):
    expected = arrays()
    return found.keys() == expected.keys() and all(
        found[name].dtype == array.dtype
        and found[name].shape == array.shape
        and (found[name] == array).all()
        for name, array in expected.items()
    )


def test_what_was_made_once_is_mapped_afterwards(tmp_path):
    assert same(load_or_make_arrays(tmp_path / "deep" / "er", KEY, arrays))
    found = load_or_make_arrays(tmp_path / "deep" / "er", KEY, never)
    assert same(found)
    assert [file.name for file in (tmp_path / "deep" / "er").iterdir()] == [f"{KEY}.arrays"]
    base = found["whole"]
    while isinstance(base, np.ndarray):
        assert not base.flags.writeable
        base = base.base
    assert isinstance(base.obj, mmap.mmap)
    assert all(array.ctypes.data % array.itemsize == 0 for array in found.values())


def test_without_a_folder_nothing_is_kept():
    assert same(load_or_make_arrays(None, KEY, arrays))


def _rewritten(data):
    """A file whose sha256 is right, under the key of another one."""
    rest = data[65:].replace(b"some-key", b"same-key")
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"\0" * len(data),
        _rewritten,
    ],
)
def test_a_damaged_file_is_made_anew_with_a_warning(tmp_path, caplog, damage):
    load_or_make_arrays(tmp_path, KEY, arrays)
    path = tmp_path / f"{KEY}.arrays"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING):
        assert same(load_or_make_arrays(tmp_path, KEY, arrays))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{path} cannot be used" in caplog.text
    assert path.read_bytes() == whole
    assert same(load_or_make_arrays(tmp_path, KEY, never))


def test_what_is_mapped_outlives_a_file_that_is_replaced_or_removed(tmp_path):
    found = load_or_make_arrays(tmp_path, KEY, arrays)
    path = tmp_path / f"{KEY}.arrays"
    path.unlink()
    load_or_make_arrays(tmp_path, KEY, lambda: {"other": np.zeros(9)})
    assert same(found)


def test_where_nothing_can_be_written_it_stays_in_memory_and_that_is_said(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert same(load_or_make_arrays(tmp_path / "file" / "below", KEY, arrays))
    assert "it stays in the memory of this process" in caplog.text


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, caplog, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with caplog.at_level(logging.WARNING):
        assert same(load_or_make_arrays(tmp_path, KEY, arrays))
    assert "No space left" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "turngym" / "search"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache_folder()) == "/home/someone/.cache/turngym/search"


def test_a_digest_tells_parts_apart():
    parts = [
        ["a", "b"],
        ["ab"],
        ["a\n", "b"],
        ["a", "\nb"],
        ["a", "b", ""],
        [["a", "b"]],
        ["b", "a"],
        [],
    ]
    assert len({digest_values(each) for each in parts}) == len(parts)
    assert digest_values(["a", 1]) == hashlib.sha256(b'"a"\n1\n').hexdigest()


@given(st.lists(st.binary(max_size=5)), st.binary(max_size=5))
def test_texts_are_those_that_were_laid(texts, sought):
    found = Texts(*join_texts(texts))
    assert [found[i] for i in range(len(found))] == texts
    ordered = sorted(set(texts))
    place = Texts(*join_texts(ordered)).find(sought)
    assert place == (ordered.index(sought) if sought in ordered else None)
