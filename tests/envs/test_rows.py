import gzip
import json
import re
from pathlib import Path

import pytest

import turngym
from turngym.envs.rows import (
    SHAPES,
    Fields,
    QuestionRow,
    SourceOptions,
    as_text,
    as_texts,
    describe_fields,
    final_answer,
    load_jsonl,
    read_row,
)
from turngym.envs.tasks import Task


@pytest.mark.parametrize(
    ("value", "text"),
    [("1 + 1?", "1 + 1?"), (" x\n", " x\n"), (7, "7"), (27.0, "27"), (2.5, "2.5"), (-3.0, "-3")],
)
def test_texts_and_numbers_are_taken_as_written(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize(
    "value", ["", " \n", None, True, ["1"], {"a": 1}, float("nan"), float("inf")]
)
def test_anything_else_is_no_text(value):
    for make in (as_text, final_answer):
        with pytest.raises(ValueError, match=r"^it needs text$"):
            make(value)


def test_the_answer_of_a_rationale_stands_behind_its_last_hashes():
    assert final_answer("3 * 4 = 12 #### 12\n#### 1,234 ") == "1234"
    assert final_answer(" 1,234 ") == "1,234"
    assert final_answer(12) == "12"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        *(
            ("#### (1,2)", "(1,2)"),
            ("#### 3, 5", "3, 5"),
            (r"#### \{1,2,3\}", r"\{1,2,3\}"),
            ("#### [10,200]", "[10,200]"),
        ),
        *(
            ("#### 1,234,567", "1234567"),
            ("#### -1,234.50", "-1234.50"),
            (r"#### \$1,200", r"\$1200"),
        ),
        *(
            ("#### 1,234 apples", "1234 apples"),
            ("#### 1,234, 5,678", "1,234, 5,678"),
            ("#### (1,234)", "(1,234)"),
        ),
    ],
)
def test_a_comma_is_taken_out_of_a_number_alone(answer, gold):
    assert final_answer(f"They are these.\n{answer}") == gold


def test_the_first_shape_that_fits_is_used():
    row = {"problem": "p", "question": "q", "answer": "1"}
    assert read_row(row, SHAPES) == QuestionRow("p", ("1",))
    assert read_row(row, [SHAPES[1]]) == QuestionRow("q", ("1",))


def test_a_dot_reaches_into_a_nested_row():
    fields = Fields("task.text", "reward.truth.value", prompt=lambda text: text.upper())
    row = {"task": {"text": "why?"}, "reward": {"truth": {"value": 4.0}}}
    assert read_row(row, [fields]) == QuestionRow("WHY?", ("4",))
    for missing in ({"task": "why?", "reward": {}}, {"task": {"text": "why?"}}):
        with pytest.raises(
            ValueError,
            match=r"has the fields .*; a row needs `task.text, reward.truth.value`; name",
        ):
            read_row(missing, [fields])


def test_what_cannot_be_used_is_named_with_its_field_and_value():
    with pytest.raises(ValueError, match=r"^: field 'problem' is None; it needs text$"):
        read_row({"problem": None, "answer": "1"}, SHAPES)
    with pytest.raises(
        ValueError, match=r"^: field 'answer' is \[\]; it needs a text, or a list of texts$"
    ):
        read_row({"problem": "p", "answer": []}, SHAPES)
    with pytest.raises(
        ValueError, match=r"^ has a list; a row needs `problem, answer` or `question, answer`"
    ):
        read_row([1], SHAPES)
    assert describe_fields(SHAPES[:2]) == "`problem, answer` or `question, answer`"


def test_the_gold_and_not_the_answer_is_checked():
    golds = []
    read_row({"problem": "p", "answer": "so #### 5"}, SHAPES, golds.append)
    assert golds == ["5"]


def test_several_right_answers_are_taken_each_once():
    assert (
        as_texts(["a", 2, "a", "b"]) == ("a", "2", "b")
        and as_texts("a") == ("a",)
        and as_texts(3.0) == ("3",)
    )
    for value in ([], [""], ["a", None], None, {"a": 1}, [["a"]]):
        with pytest.raises(ValueError, match=r"^it needs (text|a text, or a list of texts)$"):
            as_texts(value)


def test_a_field_of_aliases_may_be_there():
    fields, golds = Fields("q", "a", gold=as_texts, aliases="more"), []
    assert read_row(
        {"q": "?", "a": "x", "more": ["y", "x", "z"]}, [fields], golds.append
    ) == QuestionRow("?", ("x", "y", "z"))
    assert golds == ["x", "y", "z"]
    for row in (
        {"q": "?", "a": "x"},
        {"q": "?", "a": "x", "more": []},
        {"q": "?", "a": "x", "more": None},
    ):
        assert read_row(row, [fields]) == QuestionRow("?", ("x",))
    with pytest.raises(ValueError, match=r"^: field 'more' is \[''\]; it needs text$"):
        read_row({"q": "?", "a": "x", "more": [""]}, [fields])


DATA = Path(turngym.__file__).parent.parent / "shared" / "data" / "math"


def write(path, *rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def no_gold_of_42(gold):
    if gold == "42":
        raise ValueError("42 is refused here")


def test_every_known_shape_gives_the_same_task(tmp_path):
    plain = {"problem": "1 + 1?", "answer": "1234"}
    rationale = {"question": "1 + 1?", "answer": "It is #### by <<1+1=2>>\n#### 1,234"}
    number = {"id": 7, "problem": "1 + 1?", "answer": 1234, "source": "x"}
    tasks = load_jsonl(
        write(tmp_path / "t.jsonl", plain, "", rationale, number), SourceOptions(split="test")
    )
    assert tasks.split == "test" and tasks.name == "t.jsonl"
    assert [(t.id, t.prompt, t.gold) for t in (tasks[0], tasks[1], tasks[2])] == [
        ("t.jsonl-1", "1 + 1?", "1234"),
        ("t.jsonl-3", "1 + 1?", "1234"),
        ("7", "1 + 1?", "1234"),
    ]


def test_numbers_are_kept_as_written_and_problems_whole(tmp_path):
    long = "Wie viel? " * 50_000
    path = write(
        tmp_path / "t.jsonl",
        '{"problem": "a", "answer": 0.10000000000000000000001}',
        {"problem": long, "answer": "x"},
    )
    tasks = load_jsonl(path)
    assert tasks[0].gold == "0.10000000000000000000001"
    assert tasks[1].prompt == long


def test_gzip_is_read_like_plain_text(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress('{"problem": "é?", "answer": "1"}\n'.encode()))
    assert load_jsonl(path)[0].prompt == "é?"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('{"problem": "a", ', r"t.jsonl:2 is not JSON in UTF-8"),
        ("[1, 2]", r"t.jsonl:2 has a list; a row needs `problem, answer` or `question, answer`"),
        (
            {"prompt": "a", "target": "1"},
            r"t.jsonl:2 has the fields prompt, target; a row needs `problem, answer`",
        ),
        ({"problem": "a"}, r"t.jsonl:2 has the fields problem; a row needs"),
        ({"problem": " ", "answer": "1"}, r"t.jsonl:2: field 'problem' is ' '; it needs text"),
        ({"problem": "a", "answer": ""}, r"t.jsonl:2: field 'answer' is ''; it needs text"),
        ({"problem": "a", "answer": None}, r"t.jsonl:2: field 'answer' is None; it needs text"),
        (
            {"problem": "a", "answer": [["1"]]},
            r"t.jsonl:2: field 'answer' is \[\['1'\]\]; it needs text",
        ),
        (
            {"problem": "a", "answer": "42"},
            r"t.jsonl:2: field 'answer' is '42': 42 is refused here",
        ),
    ],
)
def test_a_bad_row_is_an_error_that_names_file_and_line(tmp_path, row, complaint):
    path = write(tmp_path / "t.jsonl", {"problem": "a", "answer": "1"}, row)
    with pytest.raises(ValueError, match=complaint):
        load_jsonl(path, SourceOptions(check_gold=no_gold_of_42))


def test_a_bad_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.jsonl does not exist"):
        load_jsonl(tmp_path / "absent.jsonl")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_jsonl(tmp_path)
    with pytest.raises(ValueError, match=r"empty.jsonl has no rows"):
        load_jsonl(write(tmp_path / "empty.jsonl", "", "  "))
    whole = gzip.compress(b'{"problem": "a", "answer": "1"}\n' * 100)
    for name, content in (("no.jsonl.gz", b"{}"), ("cut.jsonl.gz", whole[:-9])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} is not a complete \.gz file"):
            load_jsonl(tmp_path / name)
    (tmp_path / "latin.jsonl").write_bytes(b'{"problem": "\xe9", "answer": "1"}\n')
    with pytest.raises(ValueError, match=r"latin.jsonl:1 is not JSON in UTF-8"):
        load_jsonl(tmp_path / "latin.jsonl")


def test_a_holdout_parts_the_problems_by_their_text(tmp_path):
    rows = [{"problem": f"What is {i % 300} + 1?", "answer": "1"} for i in range(600)]
    path = write(tmp_path / "t.jsonl", *rows)
    parts = {
        split: load_jsonl(path, SourceOptions(split=split, holdout=0.25))
        for split in ("train", "valid")
    }
    prompts = {split: {part[i].prompt for i in range(len(part))} for split, part in parts.items()}
    assert len(parts["train"]) + len(parts["valid"]) == 600
    assert prompts["train"].isdisjoint(prompts["valid"])
    assert 45 <= len(prompts["valid"]) <= 105
    assert len(load_jsonl(path, SourceOptions(split="valid"))) == 600


def test_a_holdout_that_cannot_be_is_refused(tmp_path):
    path = write(tmp_path / "t.jsonl", {"problem": "a", "answer": "1"})
    for holdout in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"holdout is {holdout}; it is a share"):
            load_jsonl(path, SourceOptions(holdout=holdout))
    with pytest.raises(ValueError, match=r"split is 'test' and holdout is 0\.5"):
        load_jsonl(path, SourceOptions(split="test", holdout=0.5))
    with pytest.raises(ValueError, match=r"leaves no task of .*t.jsonl for valid"):
        load_jsonl(path, SourceOptions(split="valid", holdout=1e-9))


def test_rows_that_cannot_be_used_are_left_out_by_request_alone(tmp_path):
    rows = [{"problem": "a", "answer": "1"}, {"problem": "b"}, {"problem": "c", "answer": "42"}]
    path = write(tmp_path / "t.jsonl", *rows)
    complaint = r"t.jsonl:2 has the fields problem; .* \(2 rows cannot be used; --option bad_rows=2 leaves them out\)"
    for allowed in (0, 1):
        with pytest.raises(ValueError, match=complaint):
            load_jsonl(path, SourceOptions(check_gold=no_gold_of_42, bad_rows=allowed))
    tasks = load_jsonl(path, SourceOptions(check_gold=no_gold_of_42, bad_rows=2))
    assert [tasks[i].prompt for i in range(len(tasks))] == ["a"]
    with pytest.raises(ValueError, match=r"t.jsonl has no rows"):
        load_jsonl(write(tmp_path / "t.jsonl", {"problem": "b"}), SourceOptions(bad_rows=1))


def test_fields_of_other_names_are_read_where_they_are_named(tmp_path):
    path = write(
        tmp_path / "t.jsonl",
        {"problem": "no", "answer": "0", "ask": {"text": "1 + 1?"}, "reply": 2},
    )
    assert load_jsonl(path, SourceOptions(shapes=[Fields("ask.text", "reply")]))[0] == Task(
        "t.jsonl-1", "1 + 1?", "2"
    )


@pytest.mark.parametrize(
    ("name", "rows"),
    [("gsm8k_train.jsonl.gz", 7473), ("gsm8k_test.jsonl", 1319), ("aime24_test.jsonl", 30)],
)
def test_real_files_load_whole(name, rows):
    path = DATA / name
    if not path.exists():
        pytest.skip("../shared/data is absent")
    text = (
        gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    ).decode()
    tasks = load_jsonl(path)
    assert len(tasks) == rows
    for i, line in enumerate(text.strip().split("\n")):
        row = json.loads(line)
        assert (tasks[i].id, tasks[i].prompt, tasks[i].gold) == (
            row["id"],
            row["problem"],
            row["answer"],
        )
        if "gsm8k" in name:
            # The original file holds only the rationale; its final number is the gold.
            assert row["solution"].split("#### ")[-1].replace(",", "") == tasks[i].gold.replace(
                ",", ""
            )


def test_a_task_is_made_of_its_row(tmp_path):
    def make(name, prompt, golds, row):
        if "extra" not in row:
            raise ValueError(" has no extra")
        return Task(f"{name}/{row['extra']}", prompt, *golds)

    good, bad = {"problem": "a", "answer": "1", "extra": 5}, {"problem": "b", "answer": "2"}
    path = write(tmp_path / "t.jsonl", good, bad)
    assert load_jsonl(path, SourceOptions(make=make, bad_rows=1))[0] == Task(
        "t.jsonl-1/5", "a", "1"
    )
    with pytest.raises(ValueError, match=r"t.jsonl:2 has no extra \(1 rows cannot be used"):
        load_jsonl(path, SourceOptions(make=make))


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize(("split", "holdout"), [("valid", 1e-9), ("train", 0.999999)])
def test_a_holdout_that_leaves_nothing_is_refused_with_one_that_parts(
    count, split, holdout, tmp_path
):
    path = tmp_path / "t.jsonl"
    rows = [{"question": f"{number} + {number}?", "answer": 2 * number} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=f"leaves no task of .* for {split}") as refused:
        load_jsonl(path, SourceOptions(split, holdout=holdout))
    offered = re.search(r"--option holdout=(\S+) holds out (\d+) of its (\d+)", str(refused.value))
    share, held_out, total = float(offered[1]), int(offered[2]), int(offered[3])
    parts = [load_jsonl(path, SourceOptions(part, holdout=share)) for part in ("valid", "train")]
    assert [len(part) for part in parts] == [held_out, total - held_out]
    assert str(refused.value).endswith("--option holdout=0 trains and validates on all of them")


def test_one_task_cannot_be_parted(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": 2}\n')
    words = "for train; --option holdout=0 trains and validates on all of them"
    with pytest.raises(ValueError, match=words):
        load_jsonl(path, SourceOptions("train", holdout=0.999999))
