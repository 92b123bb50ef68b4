"""The differential test, with a stand-in for the real engine that plays our own."""

import json
import sys

import pytest

from turngym.tests.verify.household import real_engine


@pytest.fixture
def engine(tmp_path, write, recorded):
    """A Python that has an engine, as a script that answers every game with the same episode."""
    write("episode.json", [recorded])
    write("game_common.json", [{"pddl_domain": "d", "grammar_template": "g @@TASK@@"}])
    path = tmp_path / "python"
    path.write_text(f"""#!{sys.executable}
import sys
if sys.argv[1] != "-c":
    games = list(sys.stdin)
    open({str(tmp_path / "asked")!r}, "w").write("".join(games))
    print(open({str(tmp_path / "episode.json")!r}).read() * len(games), end="")
""")
    path.chmod(0o755)
    return path


def test_its_episodes_are_replayed(engine, catalogue, recorded, write, tmp_path):
    rows = list(real_engine.real_rows(catalogue, engine, 0, 5, 30))
    assert [(row.held, row.of) for row in rows] == [(1, 1), (7, 7)]
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["id"] == recorded["game_id"] and asked["game"]["grammar"].endswith("sidetable.")
    recorded["steps"][1]["observation"] = "x"
    write("episode.json", [recorded])
    assert [row.held for row in real_engine.real_rows(catalogue, engine, 0, 5, 30)] == [0, 6]


def test_an_engine_that_stops_falls_short(engine, catalogue, write):
    write("episode.json", [])
    rows = list(real_engine.real_rows(catalogue, engine, 0, 5, 30))
    assert [(row.held, row.of) for row in rows] == [(0, 1), (0, 0), (0, 0)]
