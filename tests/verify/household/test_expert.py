"""How often the expert succeeds, and one that does not."""

from turngym.envs.household.expert import Expert
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.expert import official_rows


def test_an_expert_that_fails_falls_short(row, write, monkeypatch):
    monkeypatch.setattr(Expert, "act", lambda self, observation: "look")
    found = next(official_rows(Catalogue([write("g.jsonl", [row])])))
    assert (found.held, found.of) == (0, 1) and found.note.startswith(f"failed: {row['id']}")
