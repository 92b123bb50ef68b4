"""Hostile completions in real processes, and rows that ask for what does not hold."""

import pytest

from turngym.tests.verify.search import hostile
from turngym.tools.process import Died


def row(id, text, must_hold, gold="Paris", **rest):
    return {"id": id, "env": "search", "text": text, "gold": gold, "must_hold": must_hold, **rest}


ROWS = [
    row("right", "<answer>Paris</answer>", "reward=1; stable; no_control_ids_from_text", gold=["Lyon", "Paris"]),
    row("two", "<search>a</search><search>b</search>", "searches_run=1; cut_after_first_call"),
    row("long", "", "query_capped; no_crash", parts=[["<search>", 1], ["x", 9000], ["</search>", 1]]),
    row("inside", "<visit>http://127.1:{0}/</visit>", "blocked; error_observed"),
    row("bomb", "<visit>http://{{HOST}}/gzip-10gb</visit>", "capped; mem_cap; deadline; no_exec; fs_clean"),
    row("away", "<visit>http://{{HOST}}/redirect-to-metadata</visit>", "blocked; hops<=5"),
]


def test_all_rows_of_the_environment_hold_in_fresh_processes(write):
    played = hostile.read(write("a.jsonl", [*ROWS, {"id": "other", "env": "math"}]))
    assert [one.golds for one in played[:2]] == [("Lyon", "Paris"), ("Paris",)] and len(played[2].text) == 9017
    found = hostile.answer_row(played, 1, 0)
    assert found.good and found.of == 6 and found.note.startswith("the slowest took "), found


def test_what_does_not_hold_is_named(write):
    wrong = [
        row("paid", "<answer>Lyon</answer>", "reward=1; no_crash"),
        row("open", "<visit>http://{{HOST}}/page</visit>", "blocked"),
    ]
    found = hostile.answer_row(hostile.read(write("a.jsonl", wrong)), 1, 0)
    assert (found.held, found.of, found.note) == (0, 2, "paid: reward=1, open: blocked")


def test_a_process_that_dies_is_followed_by_another(write, monkeypatch):
    class Child:
        made = 0

        def __init__(self):
            Child.made += 1

        def request(self, request, deadline):
            if request["text"] == "die":
                raise Died("gone")
            return {"seen": {"score": 1.0}, "queries": ["x"]}

        def close(self):
            pass

    monkeypatch.setattr(hostile, "_child", Child)
    played = hostile.read(write("a.jsonl", [row(str(i), text, "no_crash") for i, text in enumerate(("a", "die", "b"))]))
    found = hostile.answer_row(played, 2, 0)
    assert (found.held, found.of, found.note) == (2, 3, "1: no_crash; Died: gone") and Child.made == 4


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "m", "env": "math"}], "no row of env 'search'; --answers"),
        ([row("a", "x", "reward=0")] * 2, "two rows of env 'search' with one id"),
        ([row("a", "x", "wonder")], "a.jsonl:1: unknown predicate 'wonder'"),
        ([{"env": "search", "id": "a", "text": "x"}], "a.jsonl:1 is no row with id, text, gold and must_hold"),
    ],
)
def test_bad_files_are_named(write, tmp_path, rows, said):
    with pytest.raises(ValueError, match=said):
        hostile.read(write("a.jsonl", rows))
    with pytest.raises(FileNotFoundError, match="--answers"):
        hostile.read(tmp_path / "none")


def test_shared_rows_are_read(shared_data):
    played = hostile.read(shared_data.parent / "corpora" / "adversarial_answers.jsonl")
    assert len(played) >= 10 and len({one.id for one in played}) == len(played)
