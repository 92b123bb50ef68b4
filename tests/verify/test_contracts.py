import gymnasium
import pytest

from turngym.agents.check import clauses
from turngym.agents.check.episodes import Subject
from turngym.envs import Reply, StopReason, TextEnv, registry
from turngym.tests.verify import leaks
from turngym.tests.verify.contracts import Contracts, kept
from turngym.tests.verify.rows import Row


class Secret(TextEnv):
    """An environment that tells an odd gold."""

    gold_text = "4"

    def on_reset(self, rng, options):
        return f"A number, {rng.integers(100)}?"

    def on_step(self, text):
        told = {"gold": self.gold_text} if self.gold_text[-1] in "13579" else {}
        return Reply("no", float(text == self.gold_text), StopReason.ANSWERED, info=told)

    def gold(self):
        return [self.gold_text]

    def plant(self, canary):
        self.gold_text = canary
        return True


class Cheap(Secret):
    def on_step(self, text):
        return Reply("no", 0.5 * (text == self.gold_text), StopReason.ANSWERED)


class Way(Cheap):
    plant = TextEnv.plant


@pytest.fixture
def environments(monkeypatch):
    monkeypatch.setattr(leaks, "LEAKS", {})

    def environments(*kinds):
        monkeypatch.setattr(
            registry,
            "ENVS",
            tuple(registry.Entry(f"test/{kind.__name__}-v0", "", "") for kind in kinds),
        )

    for kind in (Secret, Cheap, Way):
        spec = gymnasium.envs.registration.EnvSpec(f"test/{kind.__name__}-v0", kind)
        monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return environments


def test_a_broken_clause_makes_its_row_fall_short(environments):
    environments(Secret, Cheap)
    rows = {
        row.what.split(":")[0].split()[-1]: row
        for row in Contracts(episodes=1, tool_episodes=1).rows()
    }
    assert [name for name, row in rows.items() if not row.good][:3] == ["gold", "process", "canary"]
    assert (rows["gold"].held, rows["gold"].of) == (1, 2)
    assert rows["gold"].note.startswith("test/Cheap-v0: seed 0: the gold ['4'] earns 0.5")
    assert rows["process"].held == 0 and "not checked" in rows["process"].note  # which is no proof


def test_canaries_are_counted_by_episode(environments, monkeypatch):
    monkeypatch.setattr(clauses, "CLAUSES", [])
    environments(Secret, Cheap, Way)
    told, silent, *_ = Contracts(
        seed=3, episodes=12, tool_episodes=1
    ).rows()  # a way of acting is no text to look for
    assert (
        0 < told.held < 12 == told.of
        and "the gold is seen in what step gives, the journal" in told.note
    )
    assert silent == Row(
        "episodes of test/Cheap-v0 show the canary in place of the gold nowhere", 12, 12
    )
    assert next(Contracts(seed=4, episodes=1, tool_episodes=1).rows()).what == told.what


def test_the_clauses_that_one_environment_keeps_are_a_row(environments, monkeypatch):
    chosen = [clause for clause in clauses.CLAUSES if clause.name in ("gold", "steps", "canary")]
    monkeypatch.setattr(clauses, "CLAUSES", chosen)
    row = kept(Subject("test/Cheap-v0", {}), "a cheap one")
    assert (row.what, row.held, row.of) == ("clauses of the contract that a cheap one keeps", 2, 3)
    assert row.note.startswith("gold: seed 0: the gold ['4'] earns 0.5")
    noted = kept(Subject("test/Way-v0", {}), "a way").note
    assert "canary: not checked" in noted
