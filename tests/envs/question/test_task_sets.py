"""Tasks as authors give them: rows, pairs, tasks, a file; what cannot be one is named with its place and the fix."""

import json
import math

import numpy as np
import pytest

from turngym.envs import ListTasks, QuestionEnv, Task
from turngym.envs.question.task_sets import as_task_set

ROWS = [
    {"question": "How warm is Oslo?", "answer": "-3"},
    {"question": "How warm is Rome?", "answer": 14, "category": "south", "id": "rome"},
    {"prompt": "How warm is Lima?", "answer": ["19", "nineteen"]},
]


def equal(answer, gold):
    return answer == gold


def listed(tasks):
    made = as_task_set(tasks)
    return [made[place] for place in range(len(made))]


def test_rows_become_tasks():
    oslo, rome, lima = listed(ROWS)
    assert (oslo.prompt, oslo.golds) == ("How warm is Oslo?", ("-3",))
    assert (rome.id, rome.golds, rome.category) == ("rome", ("14",), "south")
    assert lima.golds == ("19", "nineteen")


def test_pairs_tasks_and_iterators_are_taken():
    task = Task("t", "How warm is Oslo?", "-3")
    assert [task.golds for task in listed([("a?", 1), ["b?", "2"], task])] == [
        ("1",),
        ("2",),
        ("-3",),
    ]
    assert len(listed(row for row in ROWS)) == 3
    tasks = ListTasks([task])
    assert as_task_set(tasks) is tasks


def test_an_id_names_the_question_and_not_the_place():
    first, second = listed(ROWS[:1]) + listed(ROWS[1:2] + ROWS[:1])[1:]
    assert first.id == second.id and first.id.startswith("how-warm-is-oslo-")
    assert len(listed([(f"What is {i} + 1?", i + 1) for i in range(3000)])) == 3000


def test_right_answers_of_a_list_are_each_right():
    env = QuestionEnv(ROWS, equal)
    env.reset(options={"task": 2})
    assert env.step("nineteen")[1] == 1.0


def test_numbers_of_numpy_are_taken():
    assert listed([("a?", np.int64(3)), ("b?", np.float32(0.5))])[0].gold == "3"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"question": "a?", "anwser": "1"},
            r"tasks\[1\] has the fields question, anwser; a row needs .*did you mean 'answer'\? write \{\"question\"",
        ),
        ({"question": "a?"}, r"tasks\[1\] has the fields question; a row needs `question, answer`"),
        ({"question": "", "answer": "1"}, r"tasks\[1\]: field 'question' is ''; it needs text"),
        ({"question": "a?", "answer": None}, r"tasks\[1\]: field 'answer' is None; it needs text"),
        (
            {"question": "a?", "answer": math.nan},
            r"tasks\[1\]: field 'answer' is nan; it needs text",
        ),
        (
            {"question": "a?", "answer": "nan"},
            r"tasks\[1\]: field 'answer' is 'nan': that is how a missing value",
        ),
        ({"question": "a?", "answer": True}, r"tasks\[1\]: field 'answer' is True; it needs text"),
        (
            {"question": "a?", "answer": []},
            r"tasks\[1\]: field 'answer' is \[\]; it needs a text, or a list of texts",
        ),
        (
            {"question": 5.5, "answer": {"a": 1}},
            r"tasks\[1\]: field 'answer' is \{'a': 1\}; it needs text",
        ),
        (
            {"question": "a?", "answer": "1", "id": math.nan},
            r"tasks\[1\]: 'id' is nan; it needs a text or a number",
        ),
        ("a?", r"tasks\[1\] is 'a\?'; write \{\"question\": …, \"answer\": …\}, a pair"),
        (("a?", "1", "2"), r"tasks\[1\] is \('a\?', '1', '2'\); write"),
        (None, r"tasks\[1\] is None; write"),
    ],
)
def test_a_row_that_cannot_be_a_task_is_named_with_the_fix(row, words):
    with pytest.raises((ValueError, TypeError), match=words):
        QuestionEnv([ROWS[0], row], equal)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([], r"tasks is empty; give a list of"),
        (None, r"tasks is None; give a list of"),
        ({"question": ["a?"], "answer": ["1"]}, r"tasks is \{'question'.*; give a list of"),
        (7, r"tasks is 7; give a list of"),
        (
            [ROWS[0], ROWS[0]],
            r"tasks\[0\] and tasks\[1\] ask the same question; leave one out, or give each an 'id'",
        ),
        (
            [{**row, "id": "x"} for row in ROWS],
            r"tasks\[0\] and tasks\[1\] have the id 'x'; give each its own",
        ),
        ("nowhere.jsonl", r"task file nowhere.jsonl does not exist"),
    ],
)
def test_a_list_that_cannot_be_used_is_named_with_the_fix(tasks, words):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=words):
        QuestionEnv(tasks, equal)


def test_a_table_of_pandas_is_told_how_to_give_its_rows():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        TypeError, match=r'tasks is a DataFrame; give its rows: tasks.to_dict\("records"\)'
    ):
        QuestionEnv(pandas.DataFrame(ROWS), equal)
    rows = pandas.DataFrame({"question": ["a?", "b?"], "answer": [1, 2]}).to_dict("records")
    assert [task.gold for task in listed(rows)] == ["1", "2"]
    gap = pandas.DataFrame({"question": ["a?", "b?"], "answer": ["1", None]}).to_dict("records")
    with pytest.raises(
        ValueError, match=r"tasks\[1\]: field 'answer' is (nan|None); it needs text"
    ):
        listed(gap)


def test_a_file_is_taken_by_its_name(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert len(QuestionEnv(str(path), equal).tasks) == len(QuestionEnv(path, equal).tasks) == 3


# --- chats


def verl(*messages, gold="-3", source="weather"):
    chat = [{"role": role, "content": content} for role, content in messages]
    return {
        "prompt": chat,
        "reward_model": {"ground_truth": gold, "style": "rule"},
        "data_source": source,
    }


TALK = (("system", "Be brief."), ("user", "Rome?"), ("assistant", "14"), ("user", "And Oslo?"))


def test_a_chat_opens_the_episode_with_its_messages():
    env = QuestionEnv([verl(*TALK)], equal, system="Use digits.")
    observation, info = env.reset(seed=0)
    assert observation == "And Oslo?" and info["category"] == "weather"
    assert [(message["role"], message["content"]) for message in info["messages"]] == [
        ("system", "Be brief.\nUse digits."),
        *TALK[1:],
    ]
    assert env.step("-3")[1] == 1.0


def test_the_opening_of_one_task_is_not_that_of_another():
    env = QuestionEnv([verl(*TALK), verl(("user", "Lima?"), gold="19")], equal)
    assert (
        len(env.messages("question")) == 4
    )  # before an episode: the longest, which a template has to carry
    assert env.reset(options={"task": 1})[1]["messages"] == [{"role": "user", "content": "Lima?"}]
    assert len(env.reset(options={"task": 0})[1]["messages"]) == 4


def test_an_array_of_messages_is_a_chat():
    row = verl(("user", "Oslo?"))
    assert listed([{**row, "prompt": np.array(row["prompt"], dtype=object)}])[0].prompt == "Oslo?"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            (("system", "Be brief."),),
            "its last message is of the role 'system'; it needs a question of the user",
        ),
        (
            (("user", "a?"), ("assistant", "1")),
            "its last message is of the role 'assistant'; it needs a question",
        ),
        (
            (("user", "a?"), ("user", "b?")),
            "it has the roles user, user; system comes first, then user and assistant",
        ),
        (
            (("user", "a?"), ("tool", "1"), ("user", "b?")),
            "message 2 has the role 'tool'; use system, user and assist",
        ),
        (
            (("user", [{"type": "image"}]),),
            r"message 1 has the content \[\{'type': 'image'\}\]; only text is read",
        ),
        ((("user", " "),), "it needs text"),
    ],
)
def test_a_chat_that_cannot_open_an_episode_is_refused(messages, words):
    with pytest.raises(ValueError, match=rf"tasks\[0\]: field 'prompt' is .*; {words}"):
        listed([verl(*messages)])


@pytest.mark.parametrize(
    ("prompt", "words"), [([], "a message of the user"), (["a?"], "it needs `role` and `content`")]
)
def test_a_list_that_is_no_chat_is_refused(prompt, words):
    with pytest.raises(ValueError, match=words):
        listed([{**verl(), "prompt": prompt}])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q,answer\na?,1\n", r"SourceOptions\(problem_field=…, answer_field=…\)\)$"),
        ("question,answer\na?,1\nb?,\n", r"t.csv:3: field 'answer' is ''; it needs text$"),
        ("question,answer\na?,\nb?,\n", r"it needs text \(2 rows cannot be used\)$"),
    ],
)
def test_a_file_of_an_author_is_refused_without_options_that_he_does_not_have(
    text, words, tmp_path
):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        as_task_set(path)
