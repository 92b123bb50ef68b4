import gzip
import json

import pytest

from turngym.tools.search.corpus import read_corpus
from turngym.tools.search.retriever import Passage, join_contents, split_contents

GOOD = '{"id": "a", "title": "Iron", "text": "A metal."}'


def test_a_corpus_is_read_in_its_order_plain_or_compressed(tmp_path):
    rows = [
        {"id": "a", "title": "Iron", "text": "A metal.", "origin": "extra fields are left alone"},
        {"id": 7, "contents": '"Röntgen"\nA physicist.\nBorn in Lennep.'},
        {"id": "c", "text": "No title."},
    ]
    text = "\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"
    expected = [
        Passage("a", "Iron", "A metal."),
        Passage("7", "Röntgen", "A physicist.\nBorn in Lennep."),
        Passage("c", "", "No title."),
    ]
    (tmp_path / "c.jsonl").write_text(text, "utf-8")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert read_corpus(tmp_path / "c.jsonl") == expected
    assert read_corpus(str(tmp_path / "c.jsonl.gz")) == expected


@pytest.mark.parametrize(
    "title, text",
    [("Iron", "A metal."), ("", "No title"), ('"Weird" Al', "A\n\nb"), ("A", ""), ('"', '"x"\ny')],
)
def test_contents_of_search_r1_come_apart_as_they_were_put_together(title, text):
    assert split_contents(join_contents(title, text)) == (title, text)


@pytest.mark.parametrize(
    "contents", ["no line break", '"quoted" but one line', "Not quoted\nA text", '"\nx', ""]
)
def test_contents_without_a_quoted_first_line_have_no_title(contents):
    assert split_contents(contents) == ("", contents)


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('"a text"', "a row is an object"),
        ("[1, 2]", "a row is an object"),
        ('{"title": "b", "text": "c"}', "has the id None"),
        ('{"id": "", "text": "c"}', "has the id ''"),
        ('{"id": true, "text": "c"}', "has the id True"),
        ('{"id": 1.5, "text": "c"}', "has the id 1.5"),
        ('{"id": "b", "title": 3, "text": "c"}', "has the title 3"),
        ('{"id": "b", "title": "t"}', "has no text: its text is None"),
        ('{"id": "b", "text": " \\n"}', "has no text"),
        ('{"id": "b", "text": ["' + "long " * 1000 + '"]}', "…"),
        ('{"id": "b", "contents": ""}', "has no text"),
        ('{"id": "b", "contents": "\\"Title\\"\\n"}', "has no text"),
        ('{"id": "b", "contents": 5}', "has no text"),
        ('{"id": "b", "text": "half a pair \\ud83d"}', "half a character"),
    ],
)
def test_a_bad_line_is_named_with_its_fault(tmp_path, line, said):
    path = tmp_path / "c.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(ValueError) as caught:
        read_corpus(path)
    assert f"{path}:3 " in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(GOOD.encode() + b'\n{"id": "b", "text": "caf\xe9"}\n')
    with pytest.raises(ValueError, match=r"c\.jsonl:2 is not UTF-8"):
        read_corpus(path)
    path.write_text(GOOD, "utf-16")
    with pytest.raises(ValueError, match=r"c\.jsonl:1 is not UTF-8"):
        read_corpus(path)


@pytest.mark.parametrize("other", ['{"id": "7", "text": "x"}', '{"id": 7, "text": "x"}'])
def test_rows_with_the_same_id_are_both_named(tmp_path, other):
    path = tmp_path / "c.jsonl"
    path.write_text(f'{GOOD}\n{{"id": 7, "text": "y"}}\n\n{other}\n')
    with pytest.raises(ValueError, match=r"lines 2 and 4 have the same id '7'"):
        read_corpus(path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_corpus_without_passages_is_refused(tmp_path, text):
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"the corpus .*c\.jsonl holds no passages"):
        read_corpus(path)


def test_a_file_that_is_not_there_is_named_with_what_to_give(tmp_path):
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(
            FileNotFoundError, match=rf"the corpus {path} .* give a \.jsonl or \.jsonl\.gz file"
        ):
            read_corpus(path)


def test_an_incomplete_or_damaged_gzip_file_is_refused(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    whole = gzip.compress(
        "\n".join(f'{{"id": {i}, "text": "{i * i}"}}' for i in range(500)).encode()
    )
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for data in (whole[: len(whole) // 2], whole[:-4], bytes(flipped), GOOD.encode()):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"c\.jsonl\.gz"):
            read_corpus(path)
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="is not a complete gzip file"):
        read_corpus(path)
