"""Hostile completions in real processes, and rows that ask for what does not hold."""

from turngym.tests.verify.search import hostile
from turngym.tools.subprocesses.process import Died


def row(id, text, must_hold, gold="Paris", **rest):
    return {"id": id, "env": "search", "text": text, "gold": gold, "must_hold": must_hold, **rest}


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
    played = hostile.read(
        write(
            "a.jsonl", [row(str(i), text, "no_crash") for i, text in enumerate(("a", "die", "b"))]
        )
    )
    found = hostile.answer_row(played, 2, 0)
    assert (found.held, found.of, found.note) == (
        2,
        3,
        "1: no_crash; Died: gone",
    ) and Child.made == 4
