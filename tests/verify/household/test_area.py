"""The area `household` on real files where they are, and what its options choose."""

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from turngym.agents import check
from turngym.tests.verify.household import player, real_engine
from turngym.tests.verify.household.area import Household

GAMES = "games_valid_unseen_A.jsonl.xz"


@pytest.fixture
def area(shared_data, tmp_path, monkeypatch):
    """A small setting of everything: some games of valid_unseen and their recorded episodes, no real engine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(check, "CLAUSES", check.CLAUSES[1:2])
    monkeypatch.setattr(real_engine, "find_spec", lambda name: None)
    data = shared_data / "household"
    with lzma.open(data / GAMES, "rt") as lines:
        games = [json.loads(line) for line in lines][:12]
    with lzma.open(data / "reference_episodes.jsonl.xz", "rt") as lines:
        known = {game["id"] for game in games}
        episodes = [episode for episode in map(json.loads, lines) if episode["game_id"] in known]
    for name, rows in (("games.jsonl", games), ("episodes.jsonl", episodes)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"games": (tmp_path / "games.jsonl",), "episodes": (tmp_path / "episodes.jsonl",), "data": data}
    corpus = shared_data.parent / "corpora" / "adversarial_answers.jsonl"
    return Household(**files, corpus=corpus, fuzz_games=2, strings=200, forked=2, tasks=2)


def test_every_promise_holds_on_a_small_setting(area):
    rows = list(area.rows())
    assert all(row.good for row in rows), [row for row in rows if not row.good]
    counted = {row.what.partition(" ")[0] for row in rows}
    assert {"recorded:", "walkthroughs", "clauses", "forks", "fuzzed", "hostile", "the"} <= counted
    assert not any("real engine" in row.what for row in rows)


@pytest.mark.parametrize(("only", "rows"), [("episodes", 2), ("walks", 3), ("forks", 1), ("fuzz", 1), ("answers", 1)])
def test_one_part_is_counted(area, only, rows):
    assert len(list(replace(area, only=only).rows())) == rows


def test_the_real_engine_is_named_where_it_was_asked_for_and_is_missing(area):
    with pytest.raises(ValueError, match="pip install alfworld"):
        list(replace(area, only="real").rows())


def test_games_alone_replay_no_episodes(area):
    assert not list(replace(area, only="episodes", episodes=()).rows())


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--games"):
        list(Household(data=tmp_path).rows())


def test_the_player_needs_nothing_of_ours():
    text = Path(player.__file__).read_text("utf-8")
    assert "turngym" not in text and "from ." not in text
