"""The contract of the household environments, as a row."""

from turngym.agents.check import clauses
from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.outcomes import Reply
from turngym.tests.verify.household import contract


def few(monkeypatch, *names):
    monkeypatch.setattr(
        clauses, "CLAUSES", [clause for clause in clauses.CLAUSES if clause.name in names]
    )
    monkeypatch.setattr(contract, "NAMES", contract.NAMES[:1])


def test_a_broken_clause_falls_short(row, write, monkeypatch):
    few(monkeypatch, "gold")
    monkeypatch.setattr(ALFWorldEnv, "on_step", lambda self, text: Reply("x"))
    (kept,) = contract.contract_rows([write("g.jsonl", [row])], 0)
    assert kept.held == 0 and kept.note.startswith("gold: ")
