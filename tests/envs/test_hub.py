import sys
from typing import ClassVar

import pytest

from turngym.envs.given import Given
from turngym.envs.hub import DataSet, _once, is_hub_name, load_hub
from turngym.envs.rows import SHAPES, Fields, as_texts
from turngym.envs.tasks import Task

pytestmark = pytest.mark.usefixtures("hub")

CARDS = {
    "someone/sums": {
        "default": {
            "train": [{"ask": {"text": "1 + 2?"}, "reply": 3}],
            "validation": [{"ask": {"text": "2 + 2?"}, "reply": 4}, {"ask": {"text": " "}, "reply": 5}],
        }
    },
    "someone/parts": {
        "one": {"train": [{"question": f"q{n}?", "answer": str(n)} for n in range(60)]},
        "two": {"train": [{"question": "two?", "answer": "2"}], "dev": [{"question": "three?", "answer": "3"}]},
    },
    "someone/names": {
        "default": {"test": [{"q": "who?", "a": ["Ann", "Anne"], "more": ["A.", "Ann"]}, {"q": "b?", "a": ["B"]}]}
    },
}
KNOWN = {
    "parts": DataSet("someone/parts", SHAPES, {"train": "train"}, ("one", "two")),
    "names": DataSet("someone/names", [Fields("q", "a", gold=as_texts, aliases="more")], {"test": "test"}),
}


def read(name, **given):
    tasks = load_hub(name, Given(**given), KNOWN)
    return [tasks[i] for i in range(len(tasks))]


def test_a_known_data_set_is_read_by_its_name_and_its_path():
    for name in ("names", "someone/names"):
        tasks = read(name, split="test")
        assert [(task.id, task.prompt, task.golds) for task in tasks] == [
            (f"{name}-test-0", "who?", ("Ann", "Anne", "A.")),
            (f"{name}-test-1", "b?", ("B",)),
        ]


def test_parts_are_read_one_after_another_and_a_share_of_train_is_valid():
    assert [task.id for task in read("parts", holdout=0.0)][-2:] == ["parts-one-train-59", "parts-two-train-0"]
    train, valid = ({task.prompt for task in read("parts", split=split, holdout=0.3)} for split in ("train", "valid"))
    assert len(train | valid) == 61 and not train & valid and valid
    assert [task.gold for task in read("someone/parts", config="two", holdout=0.0)] == ["2"]


def test_the_tasks_are_made_as_the_environment_wants_them():
    def make(name, prompt, golds, row):
        return Task(f"<{name}>", prompt.upper(), *golds)

    shapes = [Fields("question", "answer", gold=lambda text: f"{text}!")]
    assert read("parts", config="two", holdout=0.0, make=make)[0] == Task("<parts-train-0>", "TWO?", "2")
    other = load_hub("someone/parts", Given(config="two", shapes=shapes, make=make, split="valid"), {})
    assert other[0] == Task("<someone/parts-dev-0>", "THREE?", "3!")


def test_rows_that_repeat_are_not_read_to_their_end():
    class Endless:
        column_names: ClassVar = ["prompt", "answer", "index"]

        def iter(self, size):
            for _ in range(3):
                yield {"prompt": ["a", "b", "a"], "answer": ["1", "2", "1"], "index": [0, 1, 2]}
            pytest.fail("the rows were read on")

    assert list(_once(Endless(), ["prompt", "answer"])) == [(0, ("a", "1")), (1, ("b", "2"))]


def test_any_other_data_set_needs_its_fields_named_and_has_its_own_splits():
    named = {"problem_field": "ask.text", "answer_field": "reply"}
    assert read("someone/sums", **named)[0].gold == "3"
    (task,) = read("someone/sums", split="valid", bad_rows=1, **named)
    assert (task.id, task.prompt, task.gold) == ("someone/sums-validation-0", "2 + 2?", "4")


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("names", {}, "names has no split for 'train'; its rows serve test"),
        ("parts", {"split": "test"}, "parts has no split for 'test'; its rows serve train"),
        ("parts", {"split": "valid", "holdout": 0.0}, "holdout is 0, but parts has no split for 'valid'"),
        ("parts", {"config": "on"}, r"data set someone/parts cannot be loaded: .*'on' not found.*'one'"),
        ("nobody/nothing", {}, "data set nobody/nothing cannot be loaded: .*nobody/nothing"),
        (
            "someone/sums",
            {},
            "someone/sums has the fields ask, reply; it needs `problem, answer` or `question, answer`",
        ),
        ("someone/sums", {"split": "test"}, "someone/sums has no split for 'test'; its rows serve train, valid"),
        ("someone/sums", {"holdout": 0.1}, "holdout is 0.1, but someone/sums has a split of its own for 'train'"),
        (
            "someone/sums",
            {"split": "valid", "problem_field": "ask.text", "answer_field": "reply"},
            "^someone/sums, split 'validation', row 1: field 'ask.text' is ' '; it needs text .*bad_rows=1",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_what_there_is(name, given, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(name, **given)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"parts needs the package datasets: pip install 'turngym\[tasks\]'"):
        read("parts")


@pytest.mark.parametrize(
    ("name", "could_be"),
    [("gsm8k", False), ("a/b", True), ("a.b/c_d-1", True), ("a/b.jsonl", False), ("./a", False), ("a/b/c", False)],
)
def test_names_of_data_sets_are_told_from_paths(name, could_be):
    assert is_hub_name(name) is could_be
