import json
from pathlib import Path

import pytest

from turngym.envs.given import Given
from turngym.envs.hub import DataSet
from turngym.envs.rows import Fields, as_texts
from turngym.envs.sources import is_file, load_tasks
from turngym.envs.tasks import Task

KNOWN = {"trivia": DataSet("someone/trivia"), "riddles": DataSet("someone/riddles")}


@pytest.fixture(autouse=True)
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
        tasks = load_tasks(source, Given(split="test"), KNOWN)
        assert (len(tasks), tasks[0].gold, tasks.split) == (1, "2", "test")


def test_a_file_is_read_with_the_fields_of_the_environment(here):
    path = write(here / "t.jsonl", question="who?", answers=["a", "b"], extra="x")
    shapes = (Fields("question", "answers", gold=as_texts),)

    def make(name, prompt, golds, row):
        return Task(f"{name}-{row['extra']}", prompt, golds[0], aliases=golds[1:])

    assert load_tasks(path, Given(shapes=shapes, make=make), KNOWN)[0].golds == ("a", "b")
    assert load_tasks(path, Given(shapes=shapes, make=make), KNOWN)[0].id == "t.jsonl-1-x"
    named = Given(problem_field="extra", answer_field="question", shapes=shapes)
    assert load_tasks(path, named, KNOWN)[0] == Task("t.jsonl-1", "x", "who?")


def test_names_that_are_too_long_are_no_file(here):
    write(here / "t.jsonl", problem="p", answer="1")
    assert is_file("t.jsonl") and is_file(here / "t.jsonl") and not is_file("t") and not is_file("x" * 5000)


@pytest.mark.parametrize(
    "source",
    ["absent.jsonl", "absent.gz", "./absent", "../absent", "a/b/c", "~/absent", "x/absent.jsonl", Path("absent")],
)
def test_what_looks_like_a_path_and_is_none_says_so(source):
    with pytest.raises(FileNotFoundError, match=r"task file .*absent.* does not exist|task file a/b/c does not exist"):
        load_tasks(source, Given(), KNOWN)


@pytest.mark.parametrize(("name", "hint"), [("trivai", "did you mean 'trivia'? "), ("q", "")])
def test_an_unknown_name_is_answered_with_what_there_is(name, hint):
    with pytest.raises(ValueError) as caught:
        load_tasks(name, Given(), KNOWN, ", or nothing")
    assert str(caught.value) == (
        f"unknown task set {name!r}; {hint}the data sets are trivia, riddles and OWNER/NAME of the hub; "
        "or name a .jsonl file, or nothing"
    )


def test_an_option_that_a_file_would_ignore_is_refused(here):
    path = write(here / "t.jsonl", problem="p", answer="1")
    with pytest.raises(ValueError, match=r"config is 'main', but .*t.jsonl is a file; leave it out"):
        load_tasks(path, Given(config="main"), KNOWN)
