"""The page holds the numbers of the files and nothing that could leave it or run in it."""

import base64
import gzip
import json
import re

import numpy as np
import pytest

from turngym.__main__ import main
from turngym.agents.journal.trees import read_trees
from turngym.tests.support.runs import PIECES, write_run
from turngym.training.report import page
from turngym.training.report.data import read

HOSTILE = "</script><script>alert(1)</script>\x00\x1b[31m\u202eevil\ud800" + "x" * 1_000_000
PART = re.compile(r'<script type="text/plain" id="([^"]+)">([^<]*)</script>')


def parts(text):
    """What a page holds, by name."""
    return {
        name: json.loads(gzip.decompress(base64.b64decode(data)))
        for name, data in PART.findall(text)
    }


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


def test_the_numbers_of_the_page_are_those_of_the_files(folder):
    held = parts(page.page(read([folder])))
    head = held.pop("head")["runs"][0]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert head["steps"] == [line["step"] for line in lines]
    assert head["metrics"].keys() == {
        key for line in lines for key, v in line.items() if type(v) in (int, float)
    } - {"step"}
    for name, column in head["metrics"].items():
        assert column == [line.get(name) for line in lines]
    assert head["summary"] == json.loads((folder / "summary.json").read_text())
    assert head["incidents"] == [
        json.loads(line) for line in (folder / "incidents.jsonl").read_text().splitlines()
    ]
    journals = {
        step: list(read_trees(folder / "trees" / f"step-{step:06d}.jsonl")) for step in (1, 2, 3)
    }
    leaves = [
        (step, tree.task, leaf)
        for step, trees in journals.items()
        for tree in trees
        for leaf in tree.leaves
    ]
    table = head["endings"]
    for name in ("branch", "stop", "score", "outcome"):
        assert table[name] == [getattr(leaf, name) for _, _, leaf in leaves]
    assert list(zip(table["step"], table["task"])) == [(step, task) for step, task, _ in leaves]
    assert head["stops"] == {
        stop: {str(step): n for step in (1, 2, 3)}
        for stop, n in (("answered", 6), ("no_answer", 2))
    }
    assert head["chunks"] == [1, 2, 3] and held.keys() == {f"c-0-{step}" for step in (1, 2, 3)}
    for step, trees in journals.items():
        same_trees(held[f"c-0-{step}"], trees, read([folder]).runs[0].slots(step))


def same_trees(chunk, trees, slots):
    assert (len(chunk["trees"]), chunk["of"], chunk["learned"]) == (len(trees), len(trees), True)
    pieces = [piece.encode("utf-8", "surrogateescape") for piece in PIECES]
    for shown, tree in zip(chunk["trees"], trees, strict=True):
        for row, turn in zip(shown["turns"], tree.turns, strict=True):
            assert (row["p"], row["r"], row["x"], row["n"]) == (
                turn.parent,
                turn.role,
                turn.text,
                len(turn.tokens),
            )
            if turn.role == "assistant":
                assert row["ids"] == turn.tokens.tolist() and row["reward"] == turn.reward
                assert np.allclose(row["e"], turn.entropy, atol=5.1e-5) and np.allclose(
                    row["l"], turn.logp_roll, atol=5.1e-5
                )
                assert row["mean"] == pytest.approx(turn.entropy.mean(), abs=1e-6)
        for row, leaf in zip(shown["leaves"], tree.leaves, strict=True):
            own = slots[(*tree.key, leaf.branch)]
            assert (row["score"], row["stop"], row["branch"]) == (
                leaf.score,
                leaf.stop,
                leaf.branch,
            )
            assert (
                row["a"] == own.advantage[0]
                and row["w"] == 1.0
                and np.allclose(row["m"], 0.001, atol=2e-6)
            )
    for token, text in chunk["pieces"].items():
        assert (bytes(text) if isinstance(text, list) else text.encode()) == pieces[int(token)]


def test_hostile_text_is_data_and_cut_with_a_word(tmp_path):
    text = page.page(read([write_run(tmp_path / "run", 1, speak=lambda *where: HOSTILE)]))
    assert "alert(1)" not in text and text.isprintable() is False and len(text) < 300_000
    said = next(turn for turn in parts(text)["c-0-1"]["trees"][0]["turns"] if turn["r"] == "tool")
    assert said["x"].startswith(HOSTILE[:1000]) and len(said["x"]) + said["left"] == len(
        HOSTILE
    ) + len("\n…\n")


def test_names_of_a_run_are_text_too(tmp_path):
    text = page.page(read([write_run(tmp_path / "<b>&x", 1)]))
    assert "<title>&lt;b&gt;&amp;x" in text and "<b>&x" not in text


def test_the_page_asks_for_nothing(folder):
    text = page.page(read([folder]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src &#x27;none&#x27;" in policy and "connect-src &#x27;none&#x27;" in policy
    for word in (
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "src=",
        "url(",
        "@import",
    ):
        assert word not in re.sub(PART, "", text).replace(policy, ""), word
    addresses = set(re.findall(r"https?://[^\"'` ]+", re.sub(PART, "", text)))
    assert addresses == {
        "http://www.w3.org/2000/svg"
    }  # the name of SVG elements, not an address that is asked


def test_what_does_not_fit_is_left_out_and_said(folder, monkeypatch):
    whole = parts(page.page(read([folder])))
    size = max(len(page.packed(part)) for name, part in whole.items() if name != "head")
    monkeypatch.setattr(page, "BYTES", 2 * size)
    held = parts(page.page(read([folder])))
    assert held["head"]["runs"][0]["chunks"] == [1, 3]  # the last and the first
    monkeypatch.setattr(page, "ENDINGS", 10)
    monkeypatch.setattr(page, "LINES", 2)
    head = parts(page.page(read([folder])))["head"]["runs"][0]
    assert len(head["endings"]["step"]) == 10 and head["steps"] == [0, 2, 3]
    assert head["notes"] == [
        "of 4 lines of metrics every 2th is in this page",
        "of 24 episodes the last 10 are in the list",
    ]


def test_a_step_that_is_under_way_is_left_out(folder):
    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:3]))
    chunks = parts(page.page(read([folder])))
    assert chunks["head"]["runs"][0]["chunks"] == chunks["head"]["runs"][0]["journals"] == [1, 2]


def test_steps_in_between_come_in_halves():
    assert list(page._order([*range(1, 10)])) == [9, 1, 5, 3, 7, 2, 4, 6, 8]
    assert list(page._order([])) == [] and list(page._order([4])) == [4]


def test_a_number_of_another_version_that_is_not_finite_is_null():
    assert (
        page.as_json({"a": [1.5, float("nan"), {"b": float("inf")}]})
        == b'{"a":[1.5,null,{"b":null}]}'
    )


def test_the_command_writes_where_it_is_asked(folder, tmp_path, capsys):
    for args, path in (
        ((), folder / "report.html"),
        (("--out", str(tmp_path / "x.html")), tmp_path / "x.html"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["view", str(folder), *args])
        assert left.value.code == 0 and capsys.readouterr().out == f"written: {path}\n"
        assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["{}/none"], "does not exist"),
        (["{}"], "is no run, evaluation or comparison"),
        (["{}/run", "--out", "x.pdf"], "it must end in .html, .png or .svg"),
        (["{}/run", "{}/run", "--out", "x.png"], "can show one run"),
        (["{}/run", "--live", "--out", "x.html"], "leave one of them out"),
    ],
)
def test_a_mistake_is_said_in_one_line(folder, capsys, args, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["view", *(arg.format(tmp_path) for arg in args)])
    said = capsys.readouterr().err
    assert left.value.code == 2 and words in said and said.count("\n") == 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_run_has_a_picture(folder, tmp_path, ending):
    with pytest.raises(SystemExit):
        main(["view", str(folder), "--out", str(tmp_path / f"x.{ending}")])
    data = (tmp_path / f"x.{ending}").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" if ending == "png" else b"<svg" in data[:1000]
