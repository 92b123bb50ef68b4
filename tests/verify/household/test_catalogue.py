"""Games of rows, official files and folders."""

import json

import pytest

from turngym.tests.verify.household.catalogue import Catalogue


def test_rows_are_read_solvable_or_not(row, write):
    games = Catalogue([write("a.jsonl", [row, {**row, "id": "b", "solvable": False}])])
    assert [game.id for game in games] == [row["id"], "b"] and games.find("b") == 1 and games.find("c") is None
    env = games.env([1], "old", 7)
    assert env.reset(options={"task": 0})[1]["task_id"] == "b" and (env.text, env.max_turns) == ("old", 7)


def test_a_folder_holds_files_of_rows(catalogue, row, tmp_path):
    assert Catalogue([tmp_path]).entries == catalogue.entries


def test_what_is_missing_is_named(tmp_path, catalogue):
    with pytest.raises(FileNotFoundError, match="none does not exist; --games"):
        Catalogue([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds neither games"):
        Catalogue([tmp_path / "empty"])
    with pytest.raises(ValueError, match="no game in no file"):
        Catalogue([])
    with pytest.raises(FileNotFoundError, match="is beside none"):
        catalogue.common()
    (tmp_path / "game_common.json").write_text(json.dumps({"pddl_domain": "x"}))
    assert catalogue.common() == {"pddl_domain": "x"}
