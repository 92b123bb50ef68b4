import json

import pytest

from turngym.envs.qa.env import QATask
from turngym.envs.qa.make import (
    SHAPES,
    data_sets,
    load_questions,
    read_entity_names,
    read_json_list,
)
from turngym.envs.rows import SourceOptions
from turngym.envs.sources import is_hub_name

pytestmark = pytest.mark.usefixtures("hub")


def hotpot(question, answer):
    context = {"title": ["T"], "sentences": [["S."]]}
    row = {"id": "5a7", "question": question, "answer": answer, "type": "bridge", "level": "hard"}
    return row | {"supporting_facts": {"title": ["T"], "sent_id": [0]}, "context": context}


def flash(question, answers):
    return {
        "id": "test_0",
        "question": question,
        "golden_answers": answers,
        "metadata": {"type": "x"},
    }


def trivia(question, value, aliases):
    answer = {
        "value": value,
        "aliases": aliases,
        "normalized_value": value.lower(),
        "type": "WikipediaEntity",
    }
    return {
        "question": question,
        "question_id": "tc_1",
        "question_source": "there",
        "answer": answer,
    }


# What the cards say, with rows of our own: path -> config -> split -> rows.
CARDS = {
    "hotpotqa/hotpot_qa": {
        "distractor": {
            "train": [hotpot(f"h{n}?", f"train {n}") for n in range(60)],
            "validation": [hotpot("Are both red?", "no")],
        },
        "fullwiki": {"test": [hotpot("hidden?", "-")]},
    },
    "google-research-datasets/nq_open": {
        "nq_open": {
            "train": [{"question": "who", "answer": ["Ann"]}],
            "validation": [
                {"question": "when was it", "answer": ["14 December 1972 UTC", "December 1972"]}
            ],
        }
    },
    "framolfese/2WikiMultihopQA": {
        "default": {
            "train": [hotpot("w?", "W")],
            "validation": [hotpot("Which came first?", "Blind Shaft")],
        }
    },
    "dgslibisey/MuSiQue": {
        "default": {
            "train": [
                {"question": "m?", "answer": "M", "answer_aliases": ["N"], "answerable": True}
            ],
            "validation": [
                {
                    "question": "spouse?",
                    "answer": "Ann",
                    "answer_aliases": ["A. B.", "Ann"],
                    "answerable": True,
                }
            ],
        }
    },
    "chiayewken/bamboogle": {
        "default": {"test": [{"Question": "Who was first?", "Answer": "James"}]}
    },
    "mandarjoshi/trivia_qa": {
        "unfiltered.nocontext": {
            "train": [trivia("t?", "T", ["U"])],
            "validation": [
                trivia("Sinclair?", "Sinclair Lewis", ["Lewis, Sinclair", "Harry Lewis"])
            ],
            "test": [trivia("hidden?", "<unk>", ["?"])],
        },
        "rc": {"train": [trivia("r?", "R", ["Q"])]},
    },
    "akariasai/PopQA": {
        "default": {
            "test": [
                {"id": 1, "question": "occupation?", "possible_answers": '["politician", "pol"]'}
            ]
        }
    },
    "PeterJinGo/nq_hotpotqa_train": {
        "default": {
            "train": [flash("s?", ["S"]) | {"data_source": "nq"}],
            "test": [flash("who got it", ["Röntgen", "Wilhelm Röntgen"]) | {"data_source": "nq"}],
        }
    },
    "RUC-NLPIR/FlashRAG_datasets": {
        "nq": {
            "train": [flash("n?", ["N"])],
            "dev": [flash("d?", ["D", "DD"])],
            "test": [flash("e?", ["E"])],
        },
        "bamboogle": {"test": [flash("b?", ["B"])]},
    },
    "someone/else": {
        "default": {"train": [{"q": "q?", "a": ["x", "y"]}, {"q": "r?", "a": ["The"]}]}
    },
}


def read(name, **options):
    tasks = load_questions(name, SourceOptions(**options))
    return [tasks[i] for i in range(len(tasks))]


@pytest.mark.parametrize(
    ("name", "prompt", "golds"),
    [
        ("hotpotqa", "Are both red?", ("no",)),
        ("nq", "when was it", ("14 December 1972 UTC", "December 1972")),
        ("2wiki", "Which came first?", ("Blind Shaft",)),
        ("musique", "spouse?", ("Ann", "A. B.")),
        ("bamboogle", "Who was first?", ("James",)),
        ("triviaqa", "Sinclair?", ("Sinclair Lewis", "Lewis, Sinclair", "Harry Lewis")),
        ("popqa", "occupation?", ("politician", "pol")),
        ("search-r1", "who got it", ("Röntgen", "Wilhelm Röntgen")),
    ],
)
def test_every_test_set_is_read_by_its_card(name, prompt, golds):
    (task,) = read(name, split="test")
    kind = "bridge" if name in ("hotpotqa", "2wiki") else ""
    named = f"{name}-{data_sets()[name].splits['test']}-0"
    assert task == QATask(named, prompt, golds[0], aliases=golds[1:], category=kind)
    assert read(data_sets()[name].path, split="test")[0].golds == golds


def test_the_collection_of_flashrag_is_read_by_part_with_splits_of_its_own():
    assert [
        read("flashrag", config="nq", split=split)[0].golds for split in ("train", "valid", "test")
    ] == [
        ("N",),
        ("D", "DD"),
        ("E",),
    ]
    assert read("flashrag", config="bamboogle", split="test")[0].prompt == "b?"
    with pytest.raises(
        ValueError, match=r"data set RUC-NLPIR/FlashRAG_datasets cannot be loaded: .*nq.*bamboogle"
    ):
        read("flashrag")


def test_a_share_of_train_is_valid_and_what_is_reported_is_in_neither():
    parts = {
        split: {task.prompt for task in read("hotpotqa", split=split)}
        for split in ("train", "valid", "test")
    }
    assert len(parts["train"] | parts["valid"]) == 60 and not parts["train"] & parts["valid"]
    assert parts["valid"] and parts["test"] == {"Are both red?"}
    assert read("triviaqa", config="rc", holdout=0.0)[0].golds == ("R", "Q")


def test_any_other_data_set_needs_its_fields_named_and_a_gold_that_is_left():
    named = {"problem_field": "q", "answer_field": "a"}
    (task,) = read("someone/else", bad_rows=1, holdout=0.0, **named)
    assert task.golds == ("x", "y") and isinstance(task, QATask)
    with pytest.raises(
        ValueError,
        match=r"row 1: field 'a' is \['The'\]: the gold answer 'The' is empty without its",
    ):
        read("someone/else", holdout=0.0, **named)
    with pytest.raises(
        ValueError,
        match="has the fields q, a; it needs `question, answers` or `question, golden_ans",
    ):
        read("someone/else", holdout=0.0)


def test_every_entry_of_the_table_is_complete():
    assert set(data_sets()) >= {
        "hotpotqa",
        "nq",
        "2wiki",
        "musique",
        "bamboogle",
        "triviaqa",
        "popqa",
        "flashrag",
    }
    for source in data_sets().values():
        assert is_hub_name(source.path) and set(source.splits or ()) <= {"train", "valid", "test"}


def test_what_is_no_entity_or_list_is_refused():
    assert read_entity_names({"value": "a", "aliases": None}) == ("a",) and read_json_list(
        '["a", 1]'
    ) == ("a", "1")
    for value in ("a", ["a"], {"value": None, "aliases": ["a"]}, {"aliases": ["a"]}):
        with pytest.raises(ValueError, match="it needs"):
            read_entity_names(value)
    for value in ("[", "{}", "[]", "", None):
        with pytest.raises(ValueError, match="it needs"):
            read_json_list(value)


# --- files


def write(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("row", "golds"),
    [
        ({"answers": ["Ann", "Anne", "Ann"]}, ("Ann", "Anne")),
        ({"answers": "Ann"}, ("Ann",)),
        ({"answer": "Ann"}, ("Ann",)),
        ({"answer": ["Ann", 1972]}, ("Ann", "1972")),
        ({"answer": "Ann", "answer_aliases": ["Anne"]}, ("Ann", "Anne")),
        ({"golden_answers": ["1,000 #### 2"]}, ("1,000 #### 2",)),
        ({"answers": ["first"], "answer": "second"}, ("first",)),
    ],
)
def test_every_known_shape_of_a_row_is_read(tmp_path, row, golds):
    tasks = load_questions(write(tmp_path / "t.jsonl", {"question": "who?"} | row), SourceOptions())
    assert tasks[0] == QATask("t.jsonl-1", "who?", golds[0], aliases=golds[1:])


def test_gold_passages_and_queries_are_read_where_they_are(tmp_path):
    row = {"question": "who?", "answers": ["Ann"]}
    rows = [
        row
        | {"id": 7, "gold_passages": ["p1", "p2"], "queries": ["Ann", "Anne"], "passages": ["p9"]},
        row | {"id": 8, "passages": ["p3", 4]},
        row | {"id": 9, "gold_passages": [], "queries": None},
    ]
    tasks = load_questions(write(tmp_path / "t.jsonl", *rows), SourceOptions())
    assert [(task.id, task.passages, task.queries) for task in (tasks[0], tasks[1], tasks[2])] == [
        ("7", ("p1", "p2"), ("Ann", "Anne")),
        ("8", ("p3", "4"), ()),
        ("9", (), ()),
    ]
    assert "Ann" not in repr(tasks[0]) and "p1" not in repr(tasks[0])


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (
            {"answers": []},
            r"t.jsonl:2: field 'answers' is \[\]; it needs a text, or a list of texts",
        ),
        ({"answers": ["Ann", ""]}, r"t.jsonl:2: field 'answers' is .*; it needs text"),
        ({"answer": ""}, r"t.jsonl:2: field 'answer' is ''; it needs text"),
        (
            {"answer": "..."},
            r"t.jsonl:2: field 'answer' is '...': the gold answer '...' is empty without its",
        ),
        (
            {"answers": ["Ann", "The"]},
            r"t.jsonl:2: .* the gold answer 'The' is empty without its punctuation",
        ),
        (
            {"reply": "x"},
            r"t.jsonl:2 has the fields question, reply; a row needs `question, answers` or `question, g",
        ),
        (
            {"answer": "x", "passages": [{"text": "t"}]},
            r"t.jsonl:2: field 'passages' is .*; it needs a list of texts",
        ),
        (
            {"answer": "x", "queries": {"a": 1}},
            r"t.jsonl:2: field 'queries' is .*; it needs a list of texts",
        ),
    ],
)
def test_a_bad_row_is_an_error_that_names_file_line_and_field(tmp_path, row, complaint):
    path = write(tmp_path / "t.jsonl", {"question": "a?", "answer": "1"}, {"question": "b?"} | row)
    with pytest.raises(ValueError, match=complaint):
        load_questions(path, SourceOptions())
    assert len(load_questions(path, SourceOptions(bad_rows=1))) == 1


def test_fields_of_other_names_hold_several_answers_too(tmp_path):
    path = write(tmp_path / "t.jsonl", {"ask": {"text": "who?"}, "reply": ["Ann", "Anne"]})
    assert load_questions(path, SourceOptions(problem_field="ask.text", answer_field="reply"))[
        0
    ].golds == (
        "Ann",
        "Anne",
    )
    assert SHAPES[0].answer == "answers"


def test_an_unknown_name_is_answered_with_what_there_is():
    with pytest.raises(
        ValueError,
        match=r"unknown task set 'hotpot'; did you mean 'hotpotqa'. the data sets are hotpotqa, nq",
    ):
        load_questions("hotpot", SourceOptions())


@pytest.mark.parametrize(
    ("name", "rows", "refused", "first"),
    [
        ("hotpotqa_dev_qa", 3688, 0, ""),
        ("multihop_arpo", 596, 0, ""),
        # two answers of punctuation alone, and one among others
        (
            "nq_open_dev",
            1800,
            3,
            r"nq_open_dev.jsonl:\d+: field 'answers' is \['---'\]: the gold answer '---' is empty",
        ),
        # the same one, and 53 questions without answers
        (
            "questions_with_gold",
            1455,
            54,
            r"questions_with_gold.jsonl:700: .*: the gold answer '\*' is empty",
        ),
    ],
)
def test_real_files_load_but_for_rows_without_a_gold(shared_data, name, rows, refused, first):
    path = shared_data / "search_qa" / f"{name}.jsonl"
    tasks = load_questions(path, SourceOptions(split="test", bad_rows=refused))
    tasks = [tasks[i] for i in range(len(tasks))]
    assert len({task.id for task in tasks}) == len(tasks) == rows - refused
    assert sum(bool(task.passages) for task in tasks) == (
        1368 if name == "questions_with_gold" else 0
    )
    if refused:
        with pytest.raises(
            ValueError,
            match=rf"{first}.* \({refused} rows cannot be used; --option bad_rows={refused} l",
        ):
            load_questions(path, SourceOptions(bad_rows=refused - 1))
