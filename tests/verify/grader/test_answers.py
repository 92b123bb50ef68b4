import json

import pytest

from turngym.tests.verify.grader.answers import answers, full_text

ROW = {"id": "a", "env": "math", "text": "x", "gold": "1", "must_hold": "reward=0; no_crash"}


def written(tmp_path, *rows):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def test_rows_of_other_environments_are_counted(tmp_path):
    found, others = answers(written(tmp_path, ROW, {**ROW, "id": "b", "env": "math_tool"}, {"env": "search"}))
    assert [(one.id, one.env, one.must_hold) for one in found] == [
        ("a", "math", ("reward=0", "no_crash")),
        ("b", "math_tool", ("reward=0", "no_crash")),
    ]
    assert others == {"search": 1}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "a"}, "a"),
        ({"text": "preview", "parts": [["a", 2], ["b", 1]]}, "aab"),
        ({"text": "ab", "repeat": 2}, "abab"),
        ({"text": "<%s|%s>", "fill": 3}, "<AAA|%s>"),
        ({"text": "\ud83d"}, "\ud83d"),
    ],
)
def test_the_full_text_is_put_together(row, text):
    assert full_text(row) == text


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="--answers names a JSONL file"):
        answers(tmp_path / "none")
    with pytest.raises(ValueError, match=r"answers.jsonl:2 is no row with id.*KeyError: 'gold'"):
        answers(written(tmp_path, ROW, {key: value for key, value in ROW.items() if key != "gold"}))
    with pytest.raises(ValueError, match="two rows with one id"):
        answers(written(tmp_path, ROW, ROW))
