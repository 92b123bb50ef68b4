"""What is read of a folder stands in its files; what cannot be read is said in a line, and the rest is there."""

import io
import json
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

from turngym.agents.evaluation.scores import from_trees
from turngym.agents.journal.trees import read_trees
from turngym.tests.support.runs import PIECES, write_run
from turngym.training.report.data import read


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


def one(folder):
    return read([folder]).runs[0]


def test_a_run_is_read_as_it_was_written(folder):
    run = one(folder)
    assert run.lines == [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert (
        run.summary == json.loads((folder / "summary.json").read_text())
        and run.finished
        and run.steps == 3
    )
    assert run.settings["steps"] == 3 and run.incidents[0]["kind"] == "alarm" and run.notes == []
    assert run.family("entropy_turn")[1] == {step: 1.5 / (2 + step) for step in (1, 2, 3)}
    assert run.series("loss") == {}


def test_endings_are_those_of_the_journal(folder):
    run = one(folder)
    for step, path in run.journals.items():
        trees = list(read_trees(path))
        found = list(run.endings(step))
        assert [(end.task, end.stop, end.score, end.cut) for end in found] == [
            (episode.task, episode.stop, episode.score, episode.cut > 0)
            for episode in from_trees(trees)
        ]
        assert [(end.branch, end.parent) for end in found] == [
            (x.branch, x.parent) for t in trees for x in t.leaves
        ]
        assert [end.failed for end in found] == [False, False, False, True] * 2


def test_what_the_learner_computed_belongs_to_the_tokens_of_a_path(folder):
    run, slots = one(folder), one(folder).slots(2)
    for tree in read_trees(run.journals[2]):
        for leaf in tree.leaves:
            roll = np.concatenate([tree.turns[node].logp_roll for node in tree.replies(leaf)])
            own = slots[(*tree.key, leaf.branch)]
            assert np.allclose(own.logp - roll, 0.001, atol=1e-6) and len(own.advantage) == len(
                roll
            )
    assert run.vocabulary() == [piece.encode("utf-8", "surrogateescape") for piece in PIECES]


def test_an_ending_is_read_where_an_environment_writes_words_of_the_journal(tmp_path):
    run = one(
        write_run(
            tmp_path / "run", speak=lambda *where: ', "leaves": [{"node": 1}], "ended": "length"'
        )
    )
    assert [end.cut for end in run.endings(1)] == [
        False,
        False,
        False,
        True,
    ] * 2 and run.notes == []


@pytest.mark.parametrize(
    ("name", "change", "note"),
    [
        (
            "metrics.jsonl",
            lambda data: data.replace(b'{"step": 2', b'{"step" 2'),
            "metrics.jsonl, line 3: damaged",
        ),
        (
            "metrics.jsonl",
            lambda data: data.replace(b'{"step": 2', b'{"stop": 2'),
            "line 3: it has no step",
        ),
        ("metrics.jsonl", lambda data: data.replace(b'{"step": 2', b'{"step": 1'), "step 1 again"),
        (
            "metrics.jsonl",
            lambda data: b"\xff\x00[" * 9 + b"\n" + data,
            "metrics.jsonl, line 1: damaged",
        ),
        (
            "metrics.jsonl",
            lambda data: b"[" * 100_000 + b"\n" + data,
            "metrics.jsonl, line 1: damaged",
        ),
        ("config.toml", lambda data: b"x = " + data, "config.toml: cannot be read"),
        (
            "config.toml",
            lambda data: data.replace(b'"0.1.0"', b'"9.0.0"'),
            "written by turngym 9.0.0",
        ),
        ("incidents.jsonl", lambda data: b"null\n" + data, "incidents.jsonl, line 1: damaged"),
        ("summary.json", lambda data: b"[]", "summary.json: holds a list"),
        (
            "trees/step-000002.jsonl",
            lambda data: data.replace(b"result", b"rexult", 1),
            "step-000002.jsonl, line 2",
        ),
        (
            "trees/step-000002.jsonl",
            lambda data: data[:-500],
            "step-000002.jsonl, line 3: its checksum",
        ),
        ("trees/step-000002.jsonl", lambda data: sealed({"journal": 99}), "format 99"),
        (
            "trees/step-000002.jsonl",
            lambda data: data.partition(b"\n")[0] + b"\n" + sealed({"key": 1}),
            "not a tree of",
        ),
        (
            "updates/step-000002.npz",
            lambda data: data[:100],
            "updates/step-000002.npz: cannot be read",
        ),
        ("vocabulary.json", lambda data: b"[1]", "vocabulary.json: not a list of texts"),
        ("config.toml", lambda data: b"a." * 20_000 + b"b = 1", "config.toml: cannot be read"),
        (
            "updates/step-000002.npz",
            lambda data: arrays(shape=(1 << 40,)),
            "which its 128 bytes do not fill",
        ),
        (
            "updates/step-000002.npz",
            lambda data: arrays(shape=(-1,)),
            "updates/step-000002.npz: cannot be read",
        ),
        (
            "updates/step-000002.npz",
            lambda data: arrays(kind="|O"),
            "updates/step-000002.npz: cannot be read",
        ),
        ("updates/step-000002.npz", lambda data: arrays(names=("weight",)), "npz: cannot be read"),
    ],
)
def test_what_is_damaged_is_said_and_the_rest_is_there(folder, name, change, note):
    path = folder / name
    assert change(path.read_bytes()) != path.read_bytes()
    path.write_bytes(change(path.read_bytes()))
    run = one(folder)
    assert len(list(run.endings(1))) == 8 and len(run.lines) >= 3
    for step in run.journals:
        list(run.endings(step)), list(run.trees(step)), run.slots(step)
    run.vocabulary()
    assert [line for line in run.notes if note in line] and len(run.notes) == 1
    assert all("\n" not in line and len(line) < 500 for line in run.notes)


def arrays(shape=(3,), kind="<f4", names=("advantage", "weight", "logp", "count", "key")):
    """An npz file whose arrays hold nothing of what their headers say."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (117 - len(header)) + b"\n"
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as file:
        for name in names:
            file.writestr(
                f"{name}.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header
            )
    return packed.getvalue()


REASONS = ("is a link", "is no plain file", "Not a directory")
FILES = ("config.toml", "metrics.jsonl", "incidents.jsonl", "summary.json", "vocabulary.json")


@pytest.mark.parametrize(
    "name", [*FILES, "trees/step-000002.jsonl", "updates/step-000002.npz", "trees", "updates"]
)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_link_in_a_run_is_followed_and_no_pipe_is_waited_for(tmp_path, folder, name, kind):
    """What stands elsewhere is not shown, and the rest of the run is."""
    path = folder / name
    elsewhere = tmp_path / "secret"
    path.rename(elsewhere)
    path.symlink_to(elsewhere) if kind == "link" else os.mkfifo(path)
    run = one(folder)
    for step in (1, 2, 3):
        list(run.endings(step)), run.slots(step), list(run.trees(step))
    run.vocabulary()
    if name == "trees":
        assert run.journals == {}
    if (name, kind) == ("updates", "pipe"):  # below which there is nothing to be read
        return
    assert (
        run.notes and [note for note in run.notes if not any(why in note for why in REASONS)] == []
    )


def test_the_runs_of_a_comparison_are_not_looked_for_behind_a_link(tmp_path, folder):
    (tmp_path / "compare" / "grpo").mkdir(parents=True)
    (tmp_path / "compare" / "grpo" / "seed-0").symlink_to(folder)
    with pytest.raises(ValueError, match="is no run, evaluation or comparison"):
        read([tmp_path / "compare"])
    (tmp_path / "compare" / "grpo" / "seed-0").unlink()
    folder.rename(tmp_path / "compare" / "grpo" / "seed-0")
    assert [run.name for run in read([tmp_path / "compare"]).runs] == ["grpo/seed-0"]


def sealed(data):
    body = json.dumps(data).encode()[:-1]
    return body + b', "crc32": "%08x"}\n' % zlib.crc32(body)


def test_numbers_that_are_none_are_left_out(folder):
    line = (
        '{"step": 4, "reward": NaN, "loss": 1e999, "entropy": "high", "tokens": true, "drift": 1'
        + "0" * 400
        + "}\n"
    )
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line)
    run = one(folder)
    assert not run.finished and run.steps == 4
    assert [4 in run.series(name) for name in ("reward", "loss", "entropy", "tokens", "drift")] == [
        False
    ] * 5


def test_a_line_that_is_being_written_is_left_out_without_a_word(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    assert one(folder).notes == [] and one(folder).steps == 3


def test_a_run_before_its_first_step_has_no_steps(folder):
    for name in ("metrics.jsonl", "summary.json", "incidents.jsonl"):
        (folder / name).unlink()
    for path in folder.glob("*/step-*"):
        path.unlink()
    run = one(folder)
    assert (run.steps, run.lines, run.finished, run.notes, list(run.endings(1))) == (
        0,
        [],
        False,
        [],
        [],
    )


def test_evaluations_and_comparisons_are_told_apart(tmp_path, folder):
    for seed in (0, 1):
        write_run(tmp_path / "both" / "grpo" / f"seed-{seed}")
    (tmp_path / "both" / "compare.json").write_text('{"reference": "grpo", "results": {}}')
    found = read([tmp_path / "both"])
    assert [run.name for run in found.runs] == ["grpo/seed-0", "grpo/seed-1"] and found.comparison[
        "reference"
    ] == "grpo"
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "eval.json").write_text('{"episodes": 3, "success": {"value": 0.5}}')
    run = one(tmp_path / "eval")
    assert run.kind == "evaluation" and run.finished and "trees.jsonl is missing" in run.notes[0]


def test_a_folder_that_is_none_of_them_is_refused_in_one_line(tmp_path, folder):
    for path, words in (
        (tmp_path, "no run, eval"),
        (tmp_path / "no", "not exist"),
        (folder / "config.toml", "a file"),
    ):
        with pytest.raises((ValueError, OSError), match=words) as refused:
            read([path])
        assert "\n" not in str(refused.value)
