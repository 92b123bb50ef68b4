import gzip
import json
import lzma
import shutil

import pytest

from turngym.envs.household import library
from turngym.envs.household.game import TASK_TYPES
from turngym.envs.household.library import RowStore, file_key, open_games
from turngym.envs.rows import json_rows
from turngym.envs.split_episodes import open_split
from turngym.envs.splits import SPLITS

OTHER = {"id": "train/b", "split": "train", "task_type": "pick_and_place_simple"}


@pytest.fixture
def file(row, write_rows):
    """Two games of train, one of them unsolvable, and one of valid_seen."""
    return write_rows(
        "games_mine.jsonl",
        [{**row, **OTHER}, row, {**row, **OTHER, "id": "train/a", "solvable": False}],
    )


@pytest.fixture
def folder(row, tmp_path, shared_data):
    """An official folder of two games."""
    common = json.loads((shared_data / "household" / "game_common.json").read_text())
    grammar = common["grammar_template"].replace("@@TASK@@", row["task"])
    data = {**row, "pddl_domain": common["pddl_domain"], "grammar": grammar}
    for id in (
        row["id"],
        "valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-1/trial_2",
        "train/pick_Sliced-1/trial_3",
    ):
        path = tmp_path / "json_2.1.1" / id / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(data))
    return tmp_path


def test_a_split_of_a_file_or_of_the_folder_it_is_in(file, row):
    for path in (file, str(file), file.parent):
        games = open_games(path, "valid_seen")
        assert [game.id for game in games] == [row["id"]] and games[0].walkthrough == tuple(
            row["walkthrough"]
        )
        assert [game.id for game in open_games(path)] == ["train/b"]


def test_games_are_kept_parsed_and_shared(file):
    one, other = open_games(file), open_games(file)
    assert one is other and one.open(0)[1] is other.open(0)[1]
    assert one.open(0, "old")[1].dialect.put == "put"
    with pytest.raises(IndexError, match=r"game 1 of .*there are games 0 to 0"):
        one[1]


def test_task_types_are_chosen(file, row):
    assert len(open_games(file, task_types="pick_and_place_simple, look_at_obj_in_light")) == 1
    assert len(open_games(file, "valid_seen", TASK_TYPES)) == 1
    with pytest.raises(
        ValueError,
        match=r"'pick_heat_then_place'; did you mean 'pick_heat_then_place_in_recep'. the six",
    ):
        open_games(file, task_types="pick_heat_then_place")
    with pytest.raises(ValueError, match="task_types is empty"):
        open_games(file, task_types=())
    with pytest.raises(
        ValueError,
        match=r"no solvable game of split train and .*; it has 1 pick_and_place_simple in train, 1",
    ):
        open_games(file, task_types=row["task_type"])


def test_games_of_no_split_are_in_each(row, write_rows):
    path = write_rows("x.jsonl", [{"task": row["task"], "pddl_problem": row["pddl_problem"]}])
    assert open_games(path)[0].id == open_games(path, "valid_unseen")[0].id == "x.jsonl:1"


def test_the_official_folder_is_found_from_any_level(folder, row, monkeypatch):
    ids = ["valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-1/trial_2", row["id"]]
    for path in (folder, folder / "json_2.1.1", folder / "json_2.1.1" / "valid_seen"):
        assert [game.id for game in open_games(path, "valid_seen")] == ids
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    games = open_games(None, "valid_seen", "look_at_obj_in_light")
    assert [game.id for game in games] == ids[:1] and games[0].split == "valid_seen"
    with pytest.raises(ValueError, match=r"no solvable game of split train .*; it has no game"):
        open_games(folder)  # a sliced one is left out, as alfworld does
    with pytest.raises(
        FileNotFoundError, match="has the splits train, valid_seen but not valid_unseen"
    ):
        open_games(folder, "valid_unseen")


def test_the_folder_of_a_split_is_of_that_split_only(folder):
    with pytest.raises(FileNotFoundError, match="has the splits valid_seen but not train"):
        open_games(folder / "json_2.1.1" / "valid_seen", "train")


def test_one_official_file_is_a_game_of_any_split(folder, row):
    file = folder / "json_2.1.1" / row["id"] / "game.tw-pddl"
    assert [game.id for game in open_games(file)] == [row["id"]]


def test_an_official_folder_is_scanned_once(folder, monkeypatch):
    assert len(open_games(folder, "valid_seen")) == 2
    library._list_games_cached.cache_clear()
    monkeypatch.setattr(library, "read_game", lambda *_: pytest.fail("it is read again"))
    assert len(open_games(folder, "valid_seen")) == 2


def test_a_task_that_was_added_is_seen(folder):
    before = folder / "json_2.1.1" / "valid_seen"
    assert len(open_games(folder, "valid_seen")) == 2
    task = next(iter(sorted(before.iterdir())))
    shutil.copytree(task, task.with_name("pick_and_place_simple-Mug-None-Shelf-1"))
    assert len(open_games(folder, "valid_seen")) == 3


def test_the_splits_of_training_and_evaluation_are_those_of_alfworld(row, write_rows):
    names = ("train", "valid_seen", "valid_unseen")
    rows = [{**row, "id": name, "split": name} for name in names]
    path = write_rows("games.jsonl", rows)
    assert tuple(open_games(path, split)[0].id for split in SPLITS) == names
    opened = [
        open_split("turngym/ALFWorld-v0", {"games": str(path), "split": split}) for split in SPLITS
    ]
    assert tuple(split.env.reset(options={"task": 0})[1]["task_id"] for split in opened) == names


def test_missing_data_is_explained(tmp_path, monkeypatch):
    get = r"get the official games with `pip install alfworld` and `alfworld-download`"
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=rf"ALFWORLD_DATA is not set, no {tmp_path}/\.cache/alfworld; {get}"
    ):
        open_games()
    monkeypatch.setenv("ALFWORLD_DATA", "/nowhere")
    with pytest.raises(
        FileNotFoundError, match=rf"ALFWORLD_DATA is '/nowhere', which is no folder; {get}"
    ):
        open_games()
    with pytest.raises(FileNotFoundError, match=rf"games is '/none', which does not exist; {get}"):
        open_games("/none")
    with pytest.raises(
        FileNotFoundError, match=rf"no games\*\.jsonl file and no folder of a split; {get}"
    ):
        open_games(tmp_path)
    with pytest.raises(
        ValueError,
        match="split is 'tests'; the splits of ALFWorld are train, valid_train, valid_seen, ",
    ):
        open_games(tmp_path, "tests")
    (tmp_path / ".cache" / "alfworld" / "train").mkdir(parents=True)
    monkeypatch.delenv("ALFWORLD_DATA")
    with pytest.raises(ValueError, match="it has no game"):
        open_games()


def test_games_are_looked_at_without_being_parsed(row, write_rows):
    games = open_games(write_rows("games.jsonl", [{**row, "pddl_problem": "?"}]), "valid_seen")
    assert games[0].problem == "?"
    with pytest.raises(ValueError, match="its pddl_problem is no PDDL problem"):
        games.open(0)


def test_a_bad_row_is_named(write_rows, row):
    path = write_rows("games.jsonl", [row, {"task": "x"}])
    with pytest.raises(ValueError, match=r"games\.jsonl:2: field 'pddl_problem' is missing"):
        open_games(path)


ROWS = [{"n": i, "text": "é" * i} for i in range(20)]
TEXT = "\n".join(json.dumps(row) for row in ROWS) + "\n\n"


def head(row, where):
    return [row["n"], where]


@pytest.fixture(params=["", ".gz", ".xz"])
def rows_file(request, tmp_path):
    path = tmp_path / f"games.jsonl{request.param}"
    path.write_bytes(
        {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[request.param](TEXT.encode())
    )
    return path


def test_rows_are_read_one_at_a_time(rows_file):
    found = RowStore(rows_file, head)
    assert [row[:2] for row in found.index] == [[i, f"{rows_file.name}:{i + 1}"] for i in range(20)]
    assert [found[i] for i in range(20)] == ROWS


def test_a_file_is_read_once(rows_file, monkeypatch, cache):
    RowStore(rows_file, head)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(library, "json_rows", None)
    assert RowStore(rows_file, head)[7] == ROWS[7]


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "games.jsonl"
    path.write_text(TEXT)
    key = file_key(path)
    assert len(RowStore(path, head).index) == 20
    path.write_text(TEXT + json.dumps({"n": 20}))
    assert len(RowStore(path, head).index) == 21 and file_key(path) != key


def test_without_a_place_for_the_cache_everything_is_read_anew(rows_file, monkeypatch, tmp_path):
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-folder"))
    for _ in range(2):
        found = RowStore(rows_file, head)
        assert [found[i] for i in (0, 19)] == [ROWS[0], ROWS[19]]


def test_a_disk_that_fills_up_leaves_nothing_behind(rows_file, monkeypatch, cache):
    opened = library.os.fdopen

    def full(handle, mode="r", *how):
        if "w" in mode:
            raise OSError("no space")
        return opened(handle, mode, *how)

    monkeypatch.setattr(library.os, "fdopen", full)
    assert RowStore(rows_file, head)[3] == ROWS[3] and list(cache.iterdir()) == []


def test_a_damaged_file_of_the_cache_is_made_anew(rows_file, cache):
    RowStore(rows_file, head)
    made = next(cache.iterdir())
    made.write_bytes(b"[[0, ")
    assert RowStore(rows_file, head)[7] == ROWS[7] and list(cache.iterdir()) == [made]


def test_bad_files_are_named(tmp_path):
    for name, data, words in (
        ("a.jsonl", b'{"n": 1}\n{', r"a\.jsonl:\d is not JSON in UTF-8"),
        (
            "b.jsonl.xz",
            lzma.compress(TEXT.encode())[:-9],
            r"b\.jsonl\.xz is not a complete \.xz file",
        ),
        (
            "c.jsonl.gz",
            gzip.compress(TEXT.encode())[:-9],
            r"c\.jsonl\.gz is not a complete \.gz file",
        ),
        ("d.jsonl.gz", b"no gzip", r"d\.jsonl\.gz is not a complete \.gz file"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=words):
            list(json_rows(tmp_path / name))
