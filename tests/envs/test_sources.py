import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from turngym.envs.rows import SHAPES, Fields, SourceOptions, as_texts, plain_task, right_answers
from turngym.envs.sources import (
    DataSet,
    _rows_before_repetition,
    is_file,
    is_hub_name,
    load_hub,
    load_tasks,
)
from turngym.envs.tasks import Task

KNOWN = {"trivia": DataSet("someone/trivia"), "riddles": DataSet("someone/riddles")}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, **row):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.mark.parametrize("name", ["questions.jsonl", "trivia", "someone/trivia", "./questions"])
def test_a_file_that_exists_is_read_whatever_its_name(here, name):
    write(here / name, problem="1 + 1?", answer="2")
    for source in (name, Path(name)):
        tasks = load_tasks(source, SourceOptions(split="test"), KNOWN)
        assert (len(tasks), tasks[0].gold, tasks.split) == (1, "2", "test")


def test_a_file_is_read_with_the_fields_of_the_environment(here):
    path = write(here / "t.jsonl", question="who?", answers=["a", "b"], extra="x")
    shapes = (Fields("question", "answers", gold=as_texts),)

    def make(name, prompt, golds, row):
        return Task(f"{name}-{row['extra']}", prompt, golds[0], aliases=golds[1:])

    assert load_tasks(path, SourceOptions(shapes=shapes, make=make), KNOWN)[0].golds == ("a", "b")
    assert load_tasks(path, SourceOptions(shapes=shapes, make=make), KNOWN)[0].id == "t.jsonl-1-x"
    named = SourceOptions(problem_field="extra", answer_field="question", shapes=shapes)
    assert load_tasks(path, named, KNOWN)[0] == Task("t.jsonl-1", "x", "who?")


def test_names_that_are_too_long_are_no_file(here):
    write(here / "t.jsonl", problem="p", answer="1")
    assert (
        is_file("t.jsonl")
        and is_file(here / "t.jsonl")
        and not is_file("t")
        and not is_file("x" * 5000)
    )


@pytest.mark.parametrize(
    "source",
    [
        "absent.jsonl",
        "absent.gz",
        "./absent",
        "../absent",
        "a/b/c",
        "~/absent",
        "x/absent.jsonl",
        Path("absent"),
    ],
)
def test_what_looks_like_a_path_and_is_none_says_so(source, here):
    with pytest.raises(
        FileNotFoundError,
        match=r"task file .*absent.* does not exist|task file a/b/c does not exist",
    ):
        load_tasks(source, SourceOptions(), KNOWN)


@pytest.mark.parametrize(("name", "hint"), [("trivai", "did you mean 'trivia'? "), ("q", "")])
def test_an_unknown_name_is_answered_with_what_there_is(name, hint, here):
    with pytest.raises(ValueError) as caught:
        load_tasks(name, SourceOptions(), KNOWN, ", or nothing")
    assert str(caught.value) == (
        f"unknown task set {name!r}; {hint}the data sets are trivia, riddles and OWNER/NAME of the hub; "
        "or name a .jsonl file, or nothing"
    )


def test_an_option_that_a_file_would_ignore_is_refused(here):
    path = write(here / "t.jsonl", problem="p", answer="1")
    with pytest.raises(
        ValueError, match=r"config is 'main', but .*t.jsonl is a file; leave it out"
    ):
        load_tasks(path, SourceOptions(config="main"), KNOWN)


def test_nothing_given_asks_for_the_sources_own():
    options = SourceOptions()
    assert (options.split, options.holdout, options.fields) == ("train", None, None)
    assert options.make is plain_task


def test_named_fields_are_taken_together():
    assert SourceOptions(problem_field="ask", answer_field="reply.text").fields == Fields(
        "ask", "reply.text", gold=right_answers
    )


def test_named_fields_are_read_as_the_first_of_the_known_ones():
    shapes = (Fields("question", "answers", gold=as_texts), Fields("question", "answer"))
    fields = SourceOptions(problem_field="ask", answer_field="reply", shapes=shapes).fields
    assert fields == Fields("ask", "reply", gold=as_texts)
    assert SourceOptions(shapes=shapes).fields is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"holdout": 1.5}, "holdout is 1.5; it is a share"),
        ({"holdout": 0.1, "split": "test"}, "split is 'test' and holdout is 0.1"),
        (
            {"problem_field": "ask"},
            "problem_field is 'ask' and answer_field is None; name both or none",
        ),
        ({"answer_field": "reply"}, "problem_field is None and answer_field is 'reply'"),
        ({"bad_rows": -1}, "bad_rows is -1; it is a number of rows, at least 0"),
        ({"bad_rows": True}, "bad_rows is True"),
    ],
)
def test_what_cannot_be_is_named_with_its_value(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        SourceOptions(**options)


def test_an_option_that_would_be_ignored_is_refused():
    options = SourceOptions(config="main", holdout=0.0)
    options.refuse("it is a file", "holdout", "bad_rows")
    with pytest.raises(ValueError, match="config is 'main', but it is a file; leave it out"):
        options.refuse("it is a file", "holdout", "config")


CARDS = {
    "someone/sums": {
        "default": {
            "train": [{"ask": {"text": "1 + 2?"}, "reply": 3}],
            "validation": [
                {"ask": {"text": "2 + 2?"}, "reply": 4},
                {"ask": {"text": " "}, "reply": 5},
            ],
        }
    },
    "someone/parts": {
        "one": {"train": [{"question": f"q{n}?", "answer": str(n)} for n in range(60)]},
        "two": {
            "train": [{"question": "two?", "answer": "2"}],
            "dev": [{"question": "three?", "answer": "3"}],
        },
    },
    "someone/names": {
        "default": {
            "test": [
                {"q": "who?", "a": ["Ann", "Anne"], "more": ["A.", "Ann"]},
                {"q": "b?", "a": ["B"]},
            ]
        }
    },
}
ON_HUB = {
    "parts": DataSet("someone/parts", SHAPES, {"train": "train"}, ("one", "two")),
    "names": DataSet(
        "someone/names", [Fields("q", "a", gold=as_texts, aliases="more")], {"test": "test"}
    ),
}


def load(name, **options):
    tasks = load_hub(name, SourceOptions(**options), ON_HUB)
    return [tasks[i] for i in range(len(tasks))]


def test_a_known_data_set_is_read_by_its_name_and_its_path(hub):
    for name in ("names", "someone/names"):
        tasks = load(name, split="test")
        assert [(task.id, task.prompt, task.golds) for task in tasks] == [
            (f"{name}-test-0", "who?", ("Ann", "Anne", "A.")),
            (f"{name}-test-1", "b?", ("B",)),
        ]


def test_parts_are_read_one_after_another_and_a_share_of_train_is_valid(hub):
    assert [task.id for task in load("parts", holdout=0.0)][-2:] == [
        "parts-one-train-59",
        "parts-two-train-0",
    ]
    train, valid = (
        {task.prompt for task in load("parts", split=split, holdout=0.3)}
        for split in ("train", "valid")
    )
    assert len(train | valid) == 61 and not train & valid and valid
    assert [task.gold for task in load("someone/parts", config="two", holdout=0.0)] == ["2"]


def test_the_tasks_are_made_as_the_environment_wants_them(hub):
    def make(name, prompt, golds, row):
        return Task(f"<{name}>", prompt.upper(), *golds)

    shapes = [Fields("question", "answer", gold=lambda text: f"{text}!")]
    assert load("parts", config="two", holdout=0.0, make=make)[0] == Task(
        "<parts-train-0>", "TWO?", "2"
    )
    other = load_hub(
        "someone/parts", SourceOptions(config="two", shapes=shapes, make=make, split="valid"), {}
    )
    assert other[0] == Task("<someone/parts-dev-0>", "THREE?", "3!")


def test_rows_that_repeat_are_not_read_to_their_end():
    class Endless:
        column_names: ClassVar = ["prompt", "answer", "index"]

        def iter(self, size):
            for _ in range(3):
                yield {"prompt": ["a", "b", "a"], "answer": ["1", "2", "1"], "index": [0, 1, 2]}
            pytest.fail("the rows were read on")

    assert list(_rows_before_repetition(Endless(), ["prompt", "answer"])) == [
        (0, ("a", "1")),
        (1, ("b", "2")),
    ]


def test_any_other_data_set_needs_its_fields_named_and_has_its_own_splits(hub):
    named = {"problem_field": "ask.text", "answer_field": "reply"}
    assert load("someone/sums", **named)[0].gold == "3"
    (task,) = load("someone/sums", split="valid", bad_rows=1, **named)
    assert (task.id, task.prompt, task.gold) == ("someone/sums-validation-0", "2 + 2?", "4")


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("names", {}, "names has no split for 'train'; its rows serve test"),
        ("parts", {"split": "test"}, "parts has no split for 'test'; its rows serve train"),
        (
            "parts",
            {"split": "valid", "holdout": 0.0},
            "holdout is 0, but parts has no split for 'valid'",
        ),
        (
            "parts",
            {"config": "on"},
            r"data set someone/parts cannot be loaded: .*'on' not found.*'one'",
        ),
        ("nobody/nothing", {}, "data set nobody/nothing cannot be loaded: .*nobody/nothing"),
        (
            "someone/sums",
            {},
            "someone/sums has the fields ask, reply; it needs `problem, answer` or `question, answer`",
        ),
        (
            "someone/sums",
            {"split": "test"},
            "someone/sums has no split for 'test'; its rows serve train, valid",
        ),
        (
            "someone/sums",
            {"holdout": 0.1},
            "holdout is 0.1, but someone/sums has a split of its own for 'train'",
        ),
        (
            "someone/sums",
            {"split": "valid", "problem_field": "ask.text", "answer_field": "reply"},
            "^someone/sums, split 'validation', row 1: field 'ask.text' is ' '; it needs text .*bad_rows=1",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_what_there_is(name, options, complaint, hub):
    with pytest.raises(ValueError, match=complaint):
        load(name, **options)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ValueError, match=r"parts needs the package datasets: pip install 'turngym\[tasks\]'"
    ):
        load("parts")


@pytest.mark.parametrize(
    ("name", "could_be"),
    [
        ("gsm8k", False),
        ("a/b", True),
        ("a.b/c_d-1", True),
        ("a/b.jsonl", False),
        ("./a", False),
        ("a/b/c", False),
    ],
)
def test_names_of_data_sets_are_told_from_paths(name, could_be):
    assert is_hub_name(name) is could_be
