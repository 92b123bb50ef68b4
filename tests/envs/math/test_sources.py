import json
from pathlib import Path

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.math.sources import load
from turngym.envs.sources import SourceOptions

GRADER = MathGrader()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, **row):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.mark.parametrize("name", ["questions.jsonl", "gsm8k", "openai/gsm8k", "reasoning-gym:chain_sum", "./questions"])
def test_a_file_that_exists_is_read_whatever_its_name(here, name):
    write(here / name, problem="1 + 1?", answer="2")
    for source in (name, Path(name)):
        tasks, grader = load(source, SourceOptions(split="test"), GRADER)
        assert (len(tasks), tasks[0].gold, tasks.split, grader) == (1, "2", "test", GRADER)


def test_many_names_are_no_file(here):
    write(here / "t.jsonl", problem="p", answer="1")
    names = ",".join(["chain_sum"] * 50)
    tasks, _ = load(f"reasoning-gym:{names}", SourceOptions(), GRADER)
    assert tasks[49].id == "chain_sum-train-0"


def test_the_options_of_a_file_reach_it(here):
    path = write(here / "t.jsonl", ask="1 + 1?", reply="2")
    options = SourceOptions(problem_field="ask", answer_field="reply", bad_rows=1, check_gold=GRADER.check_gold)
    assert load(str(path), options, GRADER)[0][0].prompt == "1 + 1?"
    with pytest.raises(ValueError, match=r"holdout is 1e-09 and leaves no task of .*t.jsonl for valid"):
        load(path, SourceOptions("valid", 1e-9, problem_field="ask", answer_field="reply"), GRADER)
    with pytest.raises(ValueError, match=r"config is 'main', but .*t.jsonl is a file; leave it out"):
        load(path, SourceOptions(config="main"), GRADER)


@pytest.mark.parametrize(
    "source",
    ["absent.jsonl", "absent.gz", "./absent", "../absent", "a/b/c", "~/absent", "x/absent.jsonl", Path("absent")],
)
def test_what_looks_like_a_path_and_is_none_says_so(source):
    with pytest.raises(FileNotFoundError, match=r"task file .*absent.* does not exist|task file a/b/c does not exist"):
        load(source, SourceOptions(), GRADER)


@pytest.mark.parametrize(
    ("name", "hint"), [("gsm8", "did you mean 'gsm8k'? "), ("amie24", "did you mean 'aime24'? "), ("q", "")]
)
def test_an_unknown_name_is_answered_with_what_there_is(name, hint):
    with pytest.raises(ValueError) as caught:
        load(name, SourceOptions(), GRADER)
    there_is = (
        f"unknown task set {name!r}; {hint}the data sets are gsm8k, math, math500, aime24, aime25, amc23, minerva, "
    )
    assert str(caught.value).startswith(there_is)
    assert str(caught.value).endswith("and OWNER/NAME of the hub; or name a .jsonl file, or reasoning-gym:NAME")


@pytest.mark.parametrize(
    "option", [{"holdout": 0.1}, {"config": "x"}, {"bad_rows": 1}, {"problem_field": "a", "answer_field": "b"}]
)
def test_options_that_reasoning_gym_would_ignore_are_refused(option):
    with pytest.raises(
        ValueError, match=f"{next(iter(option))} is .*, but reasoning-gym makes its tasks; leave it out"
    ):
        load("reasoning-gym:chain_sum", SourceOptions(**option), GRADER)
