"""The Python of README and docs runs, and what a run and an evaluation write has the keys that docs/files.md names."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from turngym import __main__ as cli
from turngym.agents.cli.settings import flat
from turngym.agents.evaluation.scores import Episode, ForeignCalls, summarize
from turngym.agents.trajectory import Leaf, Turn
from turngym.envs import Outcome
from turngym.envs.rows import load_jsonl
from turngym.tests.support.pages import ROOT, Block, blocks, commands, names, tables
from turngym.training.comparison import outcomes as report
from turngym.training.comparison.measure import Final
from turngym.training.comparison.plan import Comparison
from turngym.training.metrics.alarms import Kind
from turngym.training.runs.config import from_run

FILES, TELEMETRY = tables("docs/files.md"), tables("docs/telemetry.md")
ELSEWHERE = {
    "docs/evaluate.md": "tests/agents/endpoint/test_page.py",
    "docs/trl.md": "tests/bridges/test_trl.py",
    "docs/openenv.md": "tests/bridges/test_openenv.py",
    "docs/verifiers.md": "tests/bridges/test_verifiers.py",
}  # pages whose blocks another test runs
SHORT = "steps=2, eval_every=1, eval_tasks=2, prompts=2, group=2, max_tokens=12, threads=1"
# What a short run of GRPO and EPO on one path after another, from the embedded engine, may lack.
RARE = {"reward/NAME", "mismatch", "mismatch_max", "kl", "forks_turn/T", "forks_gain_turn/T"}
RARE |= {"weight", "weight_turn/T", "entropy_coef", "entropy_coef_turn/T", "mutual_information/T"}
RARE |= {"extras/NAME"}
for kind in ("success", "failure"):  # maybe no path has succeeded, or none failed
    RARE |= {f"entropy_{kind}", f"entropy_turn_{kind}/T", f"entropy_phase_{kind}/PHASE"}
PLACES = {
    "T": r"\d+",
    "PHASE": "(think|call|answer)",
    "SPAN": "(prompt|system|user|assistant|tool)",
    "NAME": ".+",
    "METHOD": r"[\w-]+",
}
PLACES["CLASS"] = "(words|format|arguments)"
PLACES["OUTCOME"] = f"({'|'.join(Outcome)})"


def training() -> Block:
    (found,) = [
        block
        for block in blocks("python")
        if block.page == "README.md" and "TrainConfig" in block.text
    ]
    return found


def prepared(folder: Path) -> dict[str, object]:
    """The files, and the names, that blocks take for granted."""
    questions = [{"question": f"Who wrote book {i}?", "answer": f"Ann {i}"} for i in range(40)]
    passages = [
        {"id": str(i), "title": f"Book {i}", "text": f"Ann {i} wrote book {i}."} for i in range(40)
    ]
    for name, rows in (("questions.jsonl", questions), ("corpus.jsonl", passages)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress((folder / "corpus.jsonl").read_bytes()))
    return {"tasks": load_jsonl(folder / "questions.jsonl")}


def letters(name: str) -> object:
    """An encoder of sentences, in place of one that would have to be downloaded."""
    return lambda texts: np.array(
        [[text.count(letter) + 0.5 for letter in "abcdefgh"] for text in texts], np.float32
    )


# --- Python


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("python") if block.page not in ELSEWHERE and block != training()],
    ids=str,
)
def test_a_block_of_python_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("turngym.tools.search.dense.load_encoder", letters)
    before = [
        other.text
        for other in blocks("python")
        if other.page == block.page and other.number < block.number
    ]
    imports = [
        line
        for text in before
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    ]
    exec("\n".join([*imports, block.text]), prepared(tmp_path) | {"__name__": "__main__"})
    out = capsys.readouterr().out
    for expected in re.findall(
        r"^print\(.*\)  # ([a-z0-9. ]+)$", block.text, re.M
    ):  # a word of what it prints
        assert expected in out or expected.startswith(("a ", "ok, "))


def test_the_cheap_commands_run(tmp_path, monkeypatch, capsys):
    every = [
        words for block in blocks("sh") if block.page not in ELSEWHERE for words in commands(block)
    ]
    plain = [
        words
        for words in every
        if words[0] in ("envs", "methods") and not any(":" in word for word in words)
    ]
    own = [
        words for words in every if any(".py:" in word for word in words)
    ]  # `test_docs_own.py` runs these
    plain += [
        words
        for words in every
        if "expert" in words and "--option" not in words and words not in own
    ]
    assert len(plain) > 0
    monkeypatch.chdir(tmp_path)
    for words in plain:
        with pytest.raises(SystemExit) as left:
            cli.main(list(words))
        assert left.value.code == 0, words


def test_pages_that_others_test_are_named_there():
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


# --- the files of a run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run folder that the README's example of training writes, of fewer and smaller steps."""
    place, threads = tmp_path_factory.mktemp("readme"), torch.get_num_threads()
    short = training().text.replace("steps=5, eval_tasks=32", SHORT)
    assert short != training().text
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        exec(short, {})
    torch.set_num_threads(threads)
    return place / "runs" / "readme"


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_run_folder_holds_the_files_that_are_named(run):
    known = names(FILES["A run folder: file"])
    found = {str(path.relative_to(run)) for path in run.iterdir()}
    absent = {
        "incidents.jsonl",
        "report.html",
        "adapters",
        "server.log",
    }  # of a run in Python that nothing happened in
    assert found == {name.split("/")[0] for name in known} - absent
    (run / "trees" / "step-000001.jsonl").stat()
    parts = names([row[:1] for row in FILES["checkpoints/step-N/: file"]])
    checkpoint = run / "checkpoints" / "step-000002"
    files = {str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()}
    assert files == set(parts) - {"modules.safetensors", "reference/"}


@pytest.mark.slow
def test_the_config_has_the_keys_that_are_named(run):
    config = tomllib.loads((run / "config.toml").read_text())
    values = {name: value for name, value in flat(from_run(run)).items() if value is not None}
    assert config["train"].keys() == values.keys() - {"resume"}
    assert set(config["record"]) == set(names(FILES["config.toml: key"])) - {"processes"}


@pytest.mark.slow
def test_each_line_of_metrics_has_the_keys_that_are_named(run):
    known = names(FILES["metrics.jsonl: key"])
    known += [
        name for title, table in TELEMETRY.items() if ": name" in title for name in names(table)
    ]
    shapes = {
        re.sub("|".join(PLACES), lambda place: PLACES[place[0]], name): name for name in known
    }
    first, *others = rows(run / "metrics.jsonl")
    assert set(first) == {name for name in known if name == "step" or name.startswith("valid/")} | (
        first.keys() & {"alarms"}
    )
    found = {
        key: [name for shape, name in shapes.items() if re.fullmatch(shape, key)]
        for line in others
        for key in line
    }
    assert {key: names for key, names in found.items() if len(names) != 1} == {}
    assert set(known) - {name for names in found.values() for name in names} - RARE == set()


def test_each_alarm_and_incident_has_a_row():
    assert names(TELEMETRY["Alarms: kind"]) == list(get_args(Kind))
    texts = [
        path.read_text() for room in ("agents", "training") for path in (ROOT / room).rglob("*.py")
    ]
    kinds = {
        kind
        for text in texts
        for call in re.findall(r"Incident\(([^,]+),", text)
        for kind in re.findall(r'"(\w+)"', call)
    }
    assert kinds - {"kind"} == set(names(FILES["incidents.jsonl: kind"]))


@pytest.mark.slow
def test_a_journal_has_the_keys_that_are_named(run):
    header, *trees = rows(run / "trees" / "step-000001.jsonl")
    keys = [names(table) for title, table in FILES.items() if title.startswith("trees/*.jsonl")]
    assert len(keys) == 4
    assert set(header) == set(keys[0])
    assert {key for tree in trees for key in tree} == set(keys[1])
    assert {key for tree in trees for turn in tree["turns"] for key in turn} == set(keys[2]) - {
        "counted"
    }
    assert {key for tree in trees for leaf in tree["leaves"] for key in leaf} == set(keys[3])
    assert set(keys[2]) == {field.name for field in fields(Turn)}
    assert set(keys[3]) == {field.name for field in fields(Leaf)}


@pytest.mark.slow
def test_state_and_summary_have_the_keys_that_are_named(run):
    state = json.loads((run / "checkpoints" / "step-000002" / "state.json").read_text())
    assert set(state) == set(names(FILES["checkpoints/step-N/: key"]))
    summary = json.loads((run / "summary.json").read_text())
    table = FILES["summary.json: key"]
    assert set(summary) == set(names(table))
    inner = re.findall(r"`(\w+)`", table[0][2])
    assert set(summary["before"]) == set(summary["after"]) == set(inner)


def test_an_evaluation_has_the_keys_that_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli.main(["eval", "--policy", "expert", "--episodes", "2", "--samples", "2", "--out", "e"])
    assert left.value.code == 0
    found = json.loads(Path("e/eval.json").read_text())
    searched = Episode(
        0,
        Outcome.DONE,
        "answered",
        1.0,
        1,
        True,
        {"f1": 1.0},
        rewards={"a": 1.0},
        weights={"a": 1.0},
    )
    report = replace(summarize([searched]), usage={"model": ""}, not_played=1, failure="a timeout")
    report = replace(report, foreign_calls={"kimi": ForeignCalls(1, "name the format")})
    assert found.keys() | report.to_json().keys() == set(names(FILES["eval.json: key"]))
    assert "search" not in found and "usage" not in found


@pytest.mark.slow
def test_a_comparison_has_the_keys_that_are_named(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "grpo" / "seed-0")
    monkeypatch.setattr(report, "draw", lambda *args: None)
    monkeypatch.setattr(report, "save", lambda *args: None)
    config = from_run(run)
    report.write_report(
        Comparison(tmp_path, "math-python", {"grpo": config}, (0,), final=Final(episodes=0))
    )
    found = json.loads((tmp_path / "compare.json").read_text())
    assert set(found) == set(names(FILES["compare.json: key"]))
    result = found["results"]["grpo"]
    inner = {
        f"runs.SEED.{key}" for key in result["runs"]["0"] if key in ("actions_by_turn", "clipped")
    }
    assert set(result) | inner == set(names(FILES["compare.json: key of a result"]))
    assert found["results"]["grpo"]["finished"] == [0]
