"""How often the expert succeeds, and one that does not."""

from turngym.envs.household.expert import Expert
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.expert import generated_rows, official_rows


def test_the_expert_is_counted_on_the_valid_splits_in_both_texts(row, write):
    games = Catalogue([write("g.jsonl", [row, {**row, "id": "b", "split": "train"}])])
    rows = list(official_rows(games))
    assert [(one.held, one.of, one.good) for one in rows] == [(1, 1, True)] * 2
    assert "pick_heat_then_place_in_recep 1/1" in rows[0].note and "old text" in rows[1].what
    assert not list(official_rows(Catalogue([write("t.jsonl", [{**row, "split": "train"}])])))


def test_generated_tasks_are_won_by_gold_and_expert():
    rows = list(generated_rows(0, 3))
    assert len(rows) >= 4 and all(row.good and row.of == 3 for row in rows), rows


def test_an_expert_that_fails_falls_short(row, write, monkeypatch):
    monkeypatch.setattr(Expert, "act", lambda self, observation: "look")
    found = next(official_rows(Catalogue([write("g.jsonl", [row])])))
    assert (found.held, found.of) == (0, 1) and found.note.startswith(f"failed: {row['id']}")
