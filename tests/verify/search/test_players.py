"""Players of the invented world, whole and broken."""

import pytest

from turngym.envs.qa import SearchEnv, make_search
from turngym.tests.verify.search.players import player_rows


@pytest.fixture(scope="module")
def env():
    """A small world's questions."""
    return make_search(split="test", size="tiny")


def test_an_expert_that_errs_falls_short(env, monkeypatch):
    monkeypatch.setattr(SearchEnv, "gold", lambda self: ["<answer>who knows</answer>"])
    gold, observer = player_rows(env, range(4))
    assert gold.held == 0 and not gold.good and "(answered)" in gold.note and observer.good
