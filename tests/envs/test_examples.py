"""Worked examples in front of a question."""

import json

import pytest

from turngym.envs import fork
from turngym.envs.split_episodes import begin, make_with_examples, open_split

BOXED = {"role": "assistant", "content": "\\boxed{4}"}
TALK = [{"role": "user", "content": "What is 2 + 2?"}, BOXED]


def write(path, *talks):
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks), "utf-8")
    return str(path)


def test_an_expert_plays_other_tasks_between_prompt_and_question():
    options = {"split": "test", "difficulty": 1, "format": "tags"}
    env = make_with_examples("turngym/MathPython-v0", {**options, "shots": 2})
    plain = make_with_examples("turngym/MathPython-v0", options)
    (_, info), (_, without) = (begin(one, 3, 0) for one in (env, plain))
    system, *shots, question = info["messages"]
    assert [system, question] == without["messages"] and info["tools"] == without["tools"]
    assert [message["role"] for message in shots] == ["user", "assistant", "user", "assistant"] * 2
    assert shots[1]["content"].startswith("<python>") and shots[3]["content"].startswith("\\boxed")
    train = open_split("turngym/MathPython-v0", {**options, "split": "train"})
    assert shots[0]["content"] == train.env.tasks[train.tasks[-1]].prompt
    assert env.spec.kwargs["shots"] == 2 and fork(env).reset(seed=1)[1]["messages"][1:-1] == shots


def test_houses_have_examples_too():
    env = make_with_examples(
        "turngym/Household-v0", {"size": "tiny", "difficulty": 1, "split": "test", "shots": 1}
    )
    roles = [message["role"] for message in env.reset(seed=0)[1]["messages"]]
    assert roles[:3] == ["system", "user", "assistant"] and roles[-2:] == ["assistant", "user"]


def test_a_question_is_never_its_own_example(tmp_path):
    rows = [{"problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(3)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"tasks": str(tmp_path / "tasks.jsonl"), "split": "test", "shots": 2}
    env = make_with_examples("turngym/Math-v0", options)
    for task in range(3):
        asked = [
            message["content"]
            for message in begin(env, task, 0)[1]["messages"]
            if message["role"] == "user"
        ]
        assert len(asked) == len(set(asked)) == 3 and asked[-1] == rows[task]["problem"]


def test_a_file_gives_examples(tmp_path):
    env = make_with_examples("turngym/Math-v0", {"shots": write(tmp_path / "shots.jsonl", TALK)})
    assert env.reset(seed=0)[1]["messages"][1:-1] == TALK


@pytest.mark.parametrize(
    ("talks", "complaint"),
    [
        ([], "holds no conversation"),
        ([[]], r"shots.jsonl:1 is no conversation; a line holds"),
        ([[{"role": "user", "content": None}]], r"shots.jsonl:1 is no conversation"),
        (
            [TALK, [{"role": "system", "content": "Be brief."}, *TALK]],
            r"shots.jsonl:2 has a system message",
        ),
        ([[*TALK, *TALK[:1]]], "has the roles user, assistant, user; a worked example begins with"),
        ([[BOXED]], "has the roles assistant"),
        ([TALK] * 65, "which holds 65 conversations; at most 64 fit"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, talks, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_with_examples("turngym/Math-v0", {"shots": write(tmp_path / "shots.jsonl", *talks)})


@pytest.mark.parametrize("shots", [-1, 65, True, 1.0, None])
def test_other_numbers_are_refused(shots):
    with pytest.raises(ValueError, match=f"shots is {shots}; give a number from 1 to 64"):
        make_with_examples("turngym/Math-v0", {"shots": shots})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.jsonl"):
        make_with_examples("turngym/Math-v0", {"shots": str(tmp_path / "none.jsonl")})
