import json
from pathlib import Path

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.math.make import (
    data_sets,
    extract_last_box,
    join_answers,
    load_tasks_and_grader,
    remove_answer_instructions,
)
from turngym.envs.rows import SourceOptions
from turngym.envs.sources import is_hub_name, load_hub

pytestmark = pytest.mark.usefixtures("hub")

FRAME = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)


def dapo(problem, gold, index):
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": FRAME.format(problem), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": gold, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


# What the cards say, with rows of our own: path -> config -> split -> rows.
CARDS = {
    "openai/gsm8k": {
        "main": {
            "train": [
                {"question": f"{n} + 0?", "answer": f"so <<{n}+0={n}>>{n}\n#### 1,{n}"}
                for n in range(200, 300)
            ],
            "test": [{"question": "1 + 1?", "answer": "#### 2"}],
        },
        "socratic": {"train": [{"question": "why?", "answer": "#### 3"}]},
    },
    "EleutherAI/hendrycks_math": {
        subject: {
            split: [
                {
                    "problem": f"{subject} {split}?",
                    "level": "Level 1",
                    "type": subject,
                    "solution": rf"First $\boxed{{1}}$, so $\boxed{{\frac{{{i}}}{{7}}}}$.",
                }
            ]
            for split in ("train", "test")
        }
        for i, subject in enumerate(data_sets()["math"].configs)
    },
    "HuggingFaceH4/MATH-500": {
        "default": {
            "test": [
                {
                    "problem": "m?",
                    "solution": r"\boxed{5}",
                    "answer": r"\frac{5}{1}",
                    "unique_id": "x",
                }
            ]
        }
    },
    "HuggingFaceH4/aime_2024": {
        "default": {
            "train": [
                {"id": 60, "problem": "a?", "solution": "so", "answer": "033", "year": "2024"}
            ]
        }
    },
    "math-ai/aime25": {"default": {"test": [{"problem": "b?", "answer": "70", "id": "0"}]}},
    "math-ai/amc23": {
        "default": {"test": [{"id": 0, "question": "c?", "answer": 27.0, "url": "there"}]}
    },
    "math-ai/minervamath": {"default": {"test": [{"question": "d?", "answer": "4.5e33"}]}},
    "Hothan/OlympiadBench": {
        "OE_TO_maths_en_COMP": {
            "train": [
                {
                    "id": 1,
                    "question": "e?",
                    "final_answer": ["$1$", "$2$"],
                    "context": None,
                    "unit": None,
                }
            ]
        },
        "OE_TO_physics_en_COMP": {"train": [{"id": 2, "question": "no", "final_answer": ["3"]}]},
    },
    "BytedTsinghua-SIA/DAPO-Math-17k": {
        "default": {
            "train": [
                *(dapo(f"f{n}?", str(n), f"i{n}") for n in range(40)),
                dapo("f7?", "7", "again"),
                dapo("f8?", "-8", "another answer"),
            ]
            * 3
        }
    },
    "agentica-org/DeepScaleR-Preview-Dataset": {
        "default": {
            "train": [{"problem": f"g{n}?", "answer": f"{n}", "solution": ""} for n in range(60)]
        }
    },
}


def read(name, **options):
    tasks = load_hub(name, SourceOptions(**options), data_sets())
    return [tasks[i] for i in range(len(tasks))]


@pytest.mark.parametrize(
    ("name", "prompt", "gold"),
    [
        ("gsm8k", "1 + 1?", "2"),
        ("math500", "m?", r"\frac{5}{1}"),
        ("aime24", "a?", "033"),
        ("aime25", "b?", "70"),
        ("amc23", "c?", "27"),
        ("minerva", "d?", "4.5e33"),
        ("olympiadbench", "e?", "$1$, $2$"),
    ],
)
def test_every_test_set_is_read_by_its_card(name, prompt, gold):
    (task,) = read(name, split="test")
    assert (task.id, task.prompt, task.gold) == (
        f"{name}-{data_sets()[name].splits['test']}-0",
        prompt,
        gold,
    )
    assert read(data_sets()[name].path, split="test")[0].gold == gold


def test_the_parts_of_math_are_read_one_after_another():
    tasks = read("math", split="test")
    assert [task.gold for task in tasks] == [rf"\frac{{{i}}}{{7}}" for i in range(7)]
    assert tasks[6].id == "math-precalculus-test-0" and tasks[6].prompt == "precalculus test?"
    assert [task.prompt for task in read("math", split="test", config="geometry")] == [
        "geometry test?"
    ]


def test_a_share_of_train_is_valid_where_there_is_no_such_split():
    whole = {row["question"] for row in CARDS["openai/gsm8k"]["main"]["train"]}
    parts = {
        split: {task.prompt for task in read("gsm8k", split=split)} for split in ("train", "valid")
    }
    assert parts["train"] | parts["valid"] == whole and not parts["train"] & parts["valid"]
    assert 1 <= len(parts["valid"]) <= 15
    assert len(read("gsm8k", split="valid", holdout=0.5)) > 30
    assert {task.prompt for task in read("gsm8k", split="train", holdout=0.0)} == whole
    assert read("gsm8k")[0].gold.startswith("12")
    assert read("openai/gsm8k", config="socratic")[0].gold == "3"


def test_rows_that_repeat_are_read_once_and_problems_with_two_answers_not_at_all():
    tasks = read("dapo-math", holdout=0.0)
    assert [task.prompt for task in tasks] == [f"f{n}?" for n in range(40) if n != 8]
    assert [task.gold for task in tasks] == [f"{n}" for n in range(40) if n != 8]
    assert tasks[-1].id == "dapo-math-train-39"


def test_deepscaler_is_split():
    assert len(read("deepscaler")) + len(read("deepscaler", split="valid")) == 60


def test_a_bad_gold_is_named_with_its_part():
    def refuse(gold):
        raise ValueError("not that")

    where = r"EleutherAI/hendrycks_math \(algebra\), split 'test', row 0: field 'solution' is .*: not that"
    with pytest.raises(ValueError, match=where):
        read("math", split="test", check_gold=refuse)


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"$\boxed{1}$ then $\boxed{\frac{2}{3}}$.", r"\frac{2}{3}"),
        (r"thus $\boxed 4$ it is", "4"),
        (r"\boxed{1}, no, \fbox 12.", "12."),
    ],
)
def test_the_gold_of_a_solution_is_its_last_box(solution, gold):
    assert extract_last_box(solution) == gold


def test_what_is_no_solution_list_or_chat_is_refused():
    with pytest.raises(ValueError, match=r"it needs a \\boxed\{\} answer"):
        extract_last_box("4")
    for value in ([], "4", [None]):
        with pytest.raises(ValueError, match="it needs"):
            join_answers(value)
    for value in ("text", [], [{"role": "user"}], [{"content": "a"}, {"content": "b"}]):
        with pytest.raises(ValueError, match="it needs"):
            remove_answer_instructions(value)
    assert (
        remove_answer_instructions([{"content": "Solve x = 1.\n\nShow it."}])
        == "Solve x = 1.\n\nShow it."
    )


def test_every_entry_of_the_table_is_complete():
    for source in data_sets().values():
        assert (
            is_hub_name(source.path)
            and source.splits
            and set(source.splits) <= {"train", "valid", "test"}
        )


GRADER = MathGrader()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, **row):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.mark.parametrize(
    "name", ["questions.jsonl", "gsm8k", "openai/gsm8k", "reasoning-gym:chain_sum", "./questions"]
)
def test_a_file_that_exists_is_read_whatever_its_name(here, name):
    write(here / name, problem="1 + 1?", answer="2")
    for source in (name, Path(name)):
        tasks, grader = load_tasks_and_grader(source, SourceOptions(split="test"), GRADER)
        assert (len(tasks), tasks[0].gold, tasks.split, grader) == (1, "2", "test", GRADER)


def test_many_names_are_no_file(here):
    write(here / "t.jsonl", problem="p", answer="1")
    names = ",".join(["chain_sum"] * 50)
    tasks, _ = load_tasks_and_grader(f"reasoning-gym:{names}", SourceOptions(), GRADER)
    assert tasks[49].id == "chain_sum-train-0"


def test_the_options_of_a_file_reach_it(here):
    path = write(here / "t.jsonl", ask="1 + 1?", reply="2")
    options = SourceOptions(
        problem_field="ask", answer_field="reply", bad_rows=1, check_gold=GRADER.check_gold
    )
    assert load_tasks_and_grader(str(path), options, GRADER)[0][0].prompt == "1 + 1?"
    with pytest.raises(
        ValueError, match=r"holdout is 1e-09 and leaves no task of .*t.jsonl for valid"
    ):
        load_tasks_and_grader(
            path, SourceOptions("valid", 1e-9, problem_field="ask", answer_field="reply"), GRADER
        )
    with pytest.raises(
        ValueError, match=r"config is 'main', but .*t.jsonl is a file; leave it out"
    ):
        load_tasks_and_grader(path, SourceOptions(config="main"), GRADER)


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
        load_tasks_and_grader(source, SourceOptions(), GRADER)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gsm8", "did you mean 'gsm8k'? "), ("amie24", "did you mean 'aime24'? "), ("q", "")],
)
def test_an_unknown_name_is_answered_with_what_there_is(name, hint, here):
    with pytest.raises(ValueError) as caught:
        load_tasks_and_grader(name, SourceOptions(), GRADER)
    there_is = f"unknown task set {name!r}; {hint}the data sets are gsm8k, math, math500, aime24, aime25, amc23, minerva, "
    assert str(caught.value).startswith(there_is)
    assert str(caught.value).endswith(
        "and OWNER/NAME of the hub; or name a .jsonl file, or reasoning-gym:NAME"
    )


@pytest.mark.parametrize(
    "option",
    [
        {"holdout": 0.1},
        {"config": "x"},
        {"bad_rows": 1},
        {"problem_field": "a", "answer_field": "b"},
    ],
)
def test_options_that_reasoning_gym_would_ignore_are_refused(option):
    with pytest.raises(
        ValueError,
        match=f"{next(iter(option))} is .*, but reasoning-gym makes its tasks; leave it out",
    ):
        load_tasks_and_grader("reasoning-gym:chain_sum", SourceOptions(**option), GRADER)
