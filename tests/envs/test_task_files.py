"""Files of tasks in each format, in UTF-8 with and without a mark, within limits; errors name file, row and column."""

import builtins
import codecs
import gzip
import json
import sys

import pytest

from turngym.envs import load_tasks
from turngym.envs.rows import SourceOptions, load_jsonl
from turngym.envs.splits import ALL
from turngym.envs.task_files import load_file
from turngym.tools.files import TooMuch

ROWS = [
    {"question": "How warm is Oslo?", "answer": "-3"},
    {"question": "How warm, is Rome?", "answer": "14"},
]
CSV = 'question,answer\nHow warm is Oslo?,-3\n"How warm, is Rome?",14\n'
TEXTS = {
    "t.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "t.json": json.dumps(ROWS, indent=1),
    "lines.json": "".join(json.dumps(row) + "\n" for row in ROWS),
    "t.csv": CSV,
    "t.CSV": CSV.replace("\n", "\r\n"),
    "t.tsv": "question\tanswer\nHow warm is Oslo?\t-3\nHow warm, is Rome?\t14\n",
}


def pairs(tasks):
    return [(tasks[place].prompt, tasks[place].gold) for place in range(len(tasks))]


def parquet_file(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a mark"])
@pytest.mark.parametrize("name", TEXTS)
def test_each_format_gives_the_same_tasks(name, mark, tmp_path):
    path = tmp_path / name
    path.write_text(mark + TEXTS[name], "utf-8", newline="")
    assert pairs(load_file(path)) == [(row["question"], row["answer"]) for row in ROWS]
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert pairs(load_file(packed)) == pairs(load_file(path))


def test_parquet_gives_the_same_tasks(tmp_path):
    path = parquet_file(tmp_path / "t.parquet", ROWS)
    assert pairs(load_file(path)) == [(row["question"], row["answer"]) for row in ROWS]


def test_parquet_of_verl_holds_chats(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo?"}]
    row = {
        "data_source": "weather",
        "prompt": chat,
        "reward_model": {"ground_truth": "-3", "style": "rule"},
    }
    (task,) = [load_file(parquet_file(tmp_path / "t.parquet", [row]))[0]]
    assert (task.prompt, task.gold, task.category) == ("Oslo?", "-3", "weather")
    assert task.opening == ({"role": "system", "content": "Be brief."},)


def test_rows_are_named_by_file_and_line(tmp_path):
    (tmp_path / "t.csv").write_text('question,answer\n"Two\nlines?",1\nOne?,2\n')
    tasks = load_file(tmp_path / "t.csv")
    assert [tasks[0].id, tasks[1].id] == ["t.csv-3", "t.csv-4"]


def test_numbers_are_kept_as_written(tmp_path):
    (tmp_path / "t.json").write_text('[{"question": "a?", "answer": 0.10}]')
    assert load_file(tmp_path / "t.json")[0].gold == "0.10"


def test_a_file_serves_every_split_and_all(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    for split in ("train", "valid", "test", ALL):
        assert len(load_tasks(path, SourceOptions(split=split))) == 2
    with pytest.raises(
        ValueError, match=r"split is 'all' and holdout is 0\.5; a holdout parts train from valid"
    ):
        SourceOptions(split=ALL, holdout=0.5)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "t.csv",
            "How warm is Oslo?,-3\n",
            r"t.csv begins with 'How warm is Oslo\?, -3'; its first line has to name",
        ),
        (
            "t.csv",
            "question;answer\na?;1\n",
            r"t.csv has the one column 'question;answer'; put commas between",
        ),
        (
            "t.csv",
            "question,answer\na,b?,1\n",
            r't.csv:2 has 3 cells for 2 columns; write "…" around a cell',
        ),
        ("t.csv", "question,answer\na?\n", r"t.csv:2 has 1 cells for 2 columns"),
        (
            "t.csv",
            "question,answer,answer\na?,1,2\n",
            r"t.csv has the columns question, answer, answer; give each",
        ),
        (
            "t.csv",
            "question,reply\na?,1\n",
            r"t.csv:2 has the fields question, reply; a row needs .*; name others with",
        ),
        ("t.csv", "question,answer\na?,\n", r"t.csv:2: field 'answer' is ''; it needs text"),
        (
            "t.csv",
            "question,answer\na?,nan\n",
            r"t.csv:2: field 'answer' is 'nan': that is how a missing value",
        ),
        ("t.csv", 'question,answer\n"a?,1\n', r"t.csv:\d is not CSV: unexpected end of data"),
        ("t.csv", "", r"t.csv has no rows; it needs rows with `problem, answer`"),
        ("t.json", '[{"question": "a?", ]', r"t.json:1 is not JSON: .* at character 21"),
        (
            "t.json",
            '{"train": [{"question": "a?"}]}',
            r't.json holds a dict; it needs a list, \[\{"question": …',
        ),
        (
            "t.json",
            '[{"question": "a?", "answer": NaN}]',
            r"t.json:1: field 'answer' is nan; it needs text",
        ),
        ("t.json", '["a?"]', r"t.json:1 has a str; a row needs"),
        ("t.json", "[" * 100_000, r"t.json is not JSON that can be read: it is nested too deeply"),
        ("t.parquet", "PAR1", r"t.parquet is no Parquet file that can be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_row_and_fix(name, text, words, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        load_file(tmp_path / name)


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_a_file_in_utf_16_is_told_how_to_be_saved(name, encoding, tmp_path):
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / name).write_text(mark + TEXTS[name], encoding)
    with pytest.raises(
        ValueError, match=rf"{name} is in UTF-16; save it as UTF-8, as with: iconv -f UTF-16"
    ):
        load_file(tmp_path / name)


def test_other_bytes_are_named_with_their_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"question,answer\na?,\xe9\n")
    with pytest.raises(
        ValueError, match=r"t.csv:2 is not text in UTF-8: .*; save the file as UTF-8"
    ):
        load_file(tmp_path / "t.csv")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode())[:-9])
    with pytest.raises(ValueError, match=r"t.csv.gz is not a complete \.gz file"):
        load_file(tmp_path / "t.csv.gz")
    (tmp_path / "mark.jsonl").write_bytes(codecs.BOM_UTF8)
    with pytest.raises(ValueError, match=r"mark.jsonl has no rows"):
        load_jsonl(tmp_path / "mark.jsonl")


def test_few_bytes_cannot_make_very_many(tmp_path, monkeypatch):
    monkeypatch.setattr("turngym.envs.task_files.MIN_UNPACKED_BYTES", 1 << 10)
    monkeypatch.setattr("turngym.envs.task_files.MAX_UNPACKING_RATIO", 1)
    path = parquet_file(tmp_path / "t.parquet", [{"question": "a" * 1000, "answer": "1"}] * 5000)
    with pytest.raises(TooMuch, match=r"t.parquet has \d+ KiB and holds more than"):
        load_file(path)


def test_parquet_without_its_package_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        ValueError, match=r"t.parquet needs the package pyarrow: pip install 'turngym\[parquet\]'"
    ):
        load_file(path)


# --- folders


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in the layout of the hub: train in Parquet, test in JSON lines, and a card."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "weather"
    (place / "data").mkdir(parents=True)
    parquet_file(place / "data" / "train-00000-of-00001.parquet", ROWS)
    parquet_file(
        place / "data" / "test-00000-of-00001.parquet", [{"question": "Lima?", "answer": "19"}]
    )
    yield place
    datasets.enable_progress_bars()


def test_a_folder_in_the_layout_of_the_hub_is_read_by_its_splits(folder):
    train = load_tasks(folder, SourceOptions(holdout=0))
    assert sorted(pairs(train)) == sorted((row["question"], row["answer"]) for row in ROWS)
    assert train[0].id == "weather-train-0"  # without the place of the folder
    assert pairs(load_tasks("weather", SourceOptions(split="test"))) == [("Lima?", "19")]
    assert len(load_tasks("weather/", SourceOptions(split=ALL))) == 3


def test_a_folder_without_the_split_says_which_it_has(folder):
    (folder / "data" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(
        ValueError,
        match="weather has no split for 'test'; its rows serve train; name one with --split",
    ):
        load_tasks(folder, SourceOptions(split="test"))


def test_the_card_of_a_folder_chooses_among_its_own_files(folder):
    card = {
        "configs": [
            {"config_name": "default", "data_files": [{"split": "train", "path": "mine.jsonl"}]}
        ]
    }
    (folder / "mine.jsonl").write_text('{"question": "Bonn?", "answer": "8"}\n')
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n# Weather\n")
    assert pairs(load_tasks(folder, SourceOptions(split=ALL))) == [("Bonn?", "8")]


@pytest.mark.parametrize(
    "path", ["../secret.jsonl", "/etc/passwd", "https://example.org/x.jsonl", "~/x", "zip://a::b"]
)
def test_the_card_of_a_folder_names_nothing_outside_of_it(folder, path):
    card = {
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": path}]}]
    }
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    with pytest.raises(ValueError, match=r"README.md names the data file .*, which is outside of"):
        load_tasks(folder)


def test_a_folder_without_the_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ValueError, match=r"needs the package datasets: pip install 'turngym\[tasks\]'"
    ):
        load_tasks(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("t.csv", "id,question,answer\nx,1+1?,2\ny,2+2?,4\nx,3+3?,6\n", ("2", "4")),
        ("t.jsonl", '{"id": 1, "question": "a?", "answer": 2}\n' * 2, ("1", "2")),
    ],
)
def test_two_rows_with_one_id_are_refused_as_in_a_list(name, text, places, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    first, second = (f"{name}:{place}" for place in places)
    with pytest.raises(ValueError, match=f"{first} and .*{second} have the id '[x1]'; give each"):
        load_tasks(path)
