""""""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turngym.agents.evaluation.scores import Interval, Report
from turngym.agents.journal import checkpoint
from turngym.agents.journal.checkpoint import CheckpointError
from turngym.agents.journal.trees import Incident, Origin, read_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.control.control import Stats
from turngym.training.loop.learner import Update
from turngym.training.loop.trainer import Learned
from turngym.training.runs.config import Schedule
from turngym.training.runs.folder import Logbook, Record, RunState, read_boundary, to_line, to_text

AT = RunState(
    control='[{}, {"sum": 0.30000000000000004}]',
    step=7,
    cursor=56,
    version=6,
    tokens=9000,
    refused=1,
    line='{"reward": 0.1, "loss": null}',
)


def save(folder: Path, data: dict[str, Any]) -> Path:
    return checkpoint.save(
        folder, data["step"], {k: v for k, v in data.items() if k != "step"}, lambda path: None
    )


def test_a_boundary_survives_a_checkpoint(tmp_path):
    assert read_boundary(save(tmp_path, AT.to_json())) == AT
    assert (
        replace(AT, stop=True)
        == read_boundary(save(tmp_path, replace(AT, stop=True).to_json()))
        != AT
    )


def test_what_a_control_does_to_its_state_does_not_reach_the_boundary():
    AT.state()[1]["sum"] = 1.0
    assert AT.state() == [{}, {"sum": 0.1 + 0.2}]


@pytest.mark.parametrize(
    ("steps", "budget", "stop", "over"),
    [
        (8, 0, False, False),
        (7, 0, False, True),
        (8, 9001, False, False),
        (8, 9000, False, True),
        (8, 8999, False, True),
        (8, 0, True, True),
    ],
)
def test_a_run_is_over_with_its_steps_its_tokens_or_by_request(steps, budget, stop, over):
    assert replace(AT, stop=stop).over(Schedule(steps, budget)) is over


def test_metrics_are_numbers_again():
    metrics = AT.metrics()
    assert metrics["reward"] == 0.1 and math.isnan(metrics["loss"])
    line = to_line({"a": math.nan, "b": -math.inf, "c": 1, "d": "", "e": 0.5})
    assert json.loads(line) == {"a": None, "b": None, "c": 1, "d": "", "e": 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cursor": "56"}, "cursor is '56'; it must be of type int"),
        ({"cursor": -1}, "cursor is -1; it must be of type int"),
        ({"tokens": 1.5}, "tokens is 1.5; it must be of type int"),
        ({"tokens": ...}, "it must be"),
        ({"version": 6.0}, "version is 6.0; it must be of type int"),
        ({"refused": True}, "refused is True; it must be of type int"),
        ({"stop": 0}, "stop is 0; it must be of type bool"),
        ({"line": "{}"}, "line is '{}'; it must be of type dict"),
        ({"more": 1}, "it must be"),
        ({"line": ...}, "it must be"),
    ],
)
def test_a_state_of_another_kind_is_no_boundary(tmp_path, change, message):
    data = {name: value for name, value in {**AT.to_json(), **change}.items() if value is not ...}
    path = save(tmp_path, data)
    with pytest.raises(CheckpointError, match=message):
        read_boundary(path)
    with pytest.raises(CheckpointError, match="all 1 checkpoints"):
        checkpoint.latest(tmp_path, check=read_boundary)


@pytest.mark.parametrize("state", [{"x": math.nan}, {"x": {1}}, [math.inf]])
def test_a_control_state_is_json_data(state):
    with pytest.raises(ValueError, match=r"the state of the controls is .* which is no JSON data"):
        to_text(state)


REPORT = Report(4, 4, 1, 1, 0.5, Interval(0.5, 0.2, 0.8), {}, 0.25, 1.5, {"answered": 4})


def test_a_line_holds_the_step_its_metrics_and_the_validation():
    line = json.loads(Record(3, {"reward": 0.5, "loss": math.nan, "refused": ""}, REPORT).line())
    assert line == {
        "step": 3,
        "reward": 0.5,
        "loss": None,
        "refused": "",
        "valid/success": 0.5,
        "valid/low": 0.2,
        "valid/high": 0.8,
        "valid/tool_share": 0.25,
        "valid/turns": 1.5,
        "valid/cut": None,
        "valid/episodes": 3,
    }
    assert json.loads(Record(0, {}).line()) == {"step": 0}


def test_what_was_learned_is_told_without_the_time_it_took():
    update = Update(idle=0.0, lr=1e-3, loss=0.25, grad_norm=2.0, drift=0.0, means={"kl_old": 0.5})
    line = json.loads(
        Learned(update, Stats(0, "rollout", entropy_turns=(0.5, 0.25)), "{}").line([])
    )
    told = {
        "loss": 0.25,
        "grad_norm": 2.0,
        "kl_old": 0.5,
        "refused": "",
        "entropy_turn/1": 0.25,
        "reward": None,
    }
    assert line.items() >= told.items() and not any("seconds" in name for name in line)


def test_a_refused_update_has_a_reason_in_place_of_numbers():
    line = json.loads(Learned(Update(refused="no"), Stats(0, "rollout"), "{}").line([]))
    assert (line["refused"], line["loss"], line["grad_norm"], line["idle_paths"]) == (
        "no",
        None,
        None,
        None,
    )


def test_what_was_measured_by_phase_and_outcome_is_told_by_name():
    measured = Stats(
        0, "rollout", entropy_phases={"call": 0.5}, extras={"entropy_turn_success/0": 0.25}
    )
    line = json.loads(Learned(Update(), measured, "{}").line([]))
    assert (line["entropy_phase/call"], line["entropy_turn_success/0"], line["tool_ok"]) == (
        0.5,
        0.25,
        None,
    )
    assert "entropy_phase/think" not in line and "ratio_p50" not in line


def steps(silent):
    """The records of a run whose share of silent groups is `silent`, each written behind the lines of those before."""
    past, found = [{"step": 0}], []
    for number, value in enumerate(silent, 1):
        found.append(Record.after(past, number, {"refused": "", "silent_groups": value}, None))
        past.append(json.loads(found[-1].line()))
    return found


def test_a_line_names_the_alarms_of_its_step_and_a_record_those_that_begin():
    records = steps([1.0] * 6 + [0.0] * 5 + [1.0] * 6)
    named = [record.metrics["alarms"] for record in records]
    assert [number for number, kinds in enumerate(named, 1) if kinds == ["silent-groups"]] == [
        5,
        6,
        16,
        17,
    ]
    assert [record.step for record in records if record.begun] == [5]
    assert json.loads(records[4].line())["alarms"] == ["silent-groups"]


@pytest.mark.parametrize("killed", [3, 5, 9])
def test_alarms_depend_on_the_lines_alone(killed):
    """Numbers that are not finite are NaN in a record and null in its line."""
    whole = steps([math.nan, *[1.0] * 9])
    past = [json.loads(record.line()) for record in whole[:killed]]
    again = Record.after(past, killed + 1, {"refused": "", "silent_groups": 1.0}, None)
    assert again == whole[killed]
    assert again == Record.after(
        [record.metrics for record in whole[:killed]], killed + 1, again.metrics, None
    )


def test_before_the_first_step_only_a_validation_can_raise_an_alarm():
    assert Record.after([], 0, {}, REPORT) == Record(0, {}, REPORT)
    record = Record.after([], 0, {}, replace(REPORT, cut=0.75))
    assert (record.metrics, [alarm.kind for alarm in record.begun]) == ({}, ["cut-turns"])
    line = json.loads(record.line())
    assert (line["alarms"], line["valid/cut"]) == (["cut-turns"], 0.75)
    again = Record.after([line], 1, {"refused": ""}, replace(REPORT, cut=0.75))
    assert (again.metrics["alarms"], again.begun) == (["cut-turns"], ())  # it is told once


@pytest.fixture
def book(tmp_path) -> Logbook:
    """The logbook of four steps."""
    book = Logbook(tmp_path)
    for step in range(4):
        book.add_metrics(json.dumps({"step": step, "reward": step / 4}))
        if step:
            book.add_trees(step, [Tree((0, step, 5), 5, "five")], Origin("turngym/Math-v0", {}))
            book.add_incident(step, Incident("retry", "again", (0, step, 5, 1)))
    return book


def lines(book: Logbook) -> list[int]:
    return [json.loads(line)["step"] for line in book.metrics.read_text().splitlines()]


def test_a_run_writes_metrics_journals_and_incidents(book):
    assert lines(book) == [0, 1, 2, 3]
    assert [tree.key for tree in read_trees(book.trees / "step-000002.jsonl")] == [(0, 2, 5)]
    found = [json.loads(line) for line in book.incidents.read_text().splitlines()]
    assert found[0] == {"step": 1, "kind": "retry", "what": "again", "key": [0, 1, 5, 1]}
    assert [line["step"] for line in found] == [1, 2, 3]


@pytest.mark.parametrize("step", [-1, 0, 2, 3, 4])
def test_what_was_written_after_a_step_is_dropped_but_for_incidents(book, step):
    (book.trees / ".step-000001.jsonl.tmp").touch()
    (book.trees / "step-000003.jsonl.gz").touch()  # somebody's own
    assert book.drop_after(step) == (step < 4)
    (book.trees / "step-000003.jsonl.gz").unlink()
    assert lines(book) == [0, 1, 2, 3][: step + 1]
    assert sorted(path.name for path in book.trees.iterdir()) == [
        f"step-{n:06d}.jsonl" for n in range(1, min(step, 3) + 1)
    ]
    assert book.incidents.read_text().count("\n") == 3
    assert book.drop_after(step) == (step < 4)  # once more changes nothing


def test_before_anything_is_written_there_is_nothing_to_drop(tmp_path):
    book = Logbook(tmp_path)
    assert book.drop_after(-1) and not book.drop_after(0)
    assert [*tmp_path.iterdir()] == []


def test_metrics_are_read_as_they_were_written(book, tmp_path):
    assert book.lines() == [{"step": step, "reward": step / 4} for step in range(4)]
    assert Logbook(tmp_path / "other").lines() == []


@pytest.mark.parametrize(
    "torn",
    ['{"step": 3, "rew', '{"step": 3}', "\0\0\0", '{"step": 3, "rew\n', "[3]\n", '{"step": 4}\n'],
)
def test_a_last_line_that_is_not_whole_counts_as_missing(book, torn):
    text = book.metrics.read_text().splitlines(keepends=True)
    book.metrics.write_text("".join(text[:3]) + torn)
    assert not book.drop_after(3)
    assert lines(book) == [0, 1, 2]


@pytest.mark.parametrize("line", ["", "{}\n", '{"step": 2}\n', "half\n", '{"step": true}\n'])
def test_a_missing_line_of_an_earlier_step_is_an_error_with_the_way_out(book, line):
    text = book.metrics.read_text().splitlines(keepends=True)
    book.metrics.write_text(text[0] + line + "".join(text[2:]))
    with pytest.raises(
        ValueError,
        match=r"metrics.jsonl, line 2: not that of step 1; remove the checkpoints of later",
    ):
        book.drop_after(3)
    book.metrics.unlink()
    with pytest.raises(ValueError, match="line 1: not that of step 0"):
        book.drop_after(3)


def test_paths_are_read_from_the_journals_of_their_steps(book):
    root = Turn.unsampled(-1, "user", "?", np.zeros(1, np.int32))
    leaves = [Leaf(0, branch, Outcome.DONE, "answered", branch / 4) for branch in range(4)]
    trees = [Tree((0, 3, task), task, "t", [root], list(leaves)) for task in (5, 6)]
    book.add_trees(4, trees, Origin("turngym/Math-v0", {}))
    found = book.read_paths(
        [(0, 3, 6, 1), (0, 1, 9, 0), (0, 3, 6, 3)]
    )  # the second is of no journal's tree
    assert [(tree.key, [leaf.branch for leaf in tree.leaves]) for tree in found] == [
        ((0, 3, 6), [1, 3])
    ]
    assert book.read_paths([]) == []
    with pytest.raises(FileNotFoundError, match="step-000009"):
        book.read_paths([(0, 8, 6, 1)])


def test_what_an_update_makes_of_each_token_is_kept_and_dropped_with_its_step(book):
    keys, slots = (
        [(0, 1, 7, 0), (0, 1, 7, 1)],
        {"advantage": [1.0, -1.0, 0.5], "weight": [1.0] * 3, "logp": [math.nan] * 3},
    )
    for step in (1, 2):
        book.add_slots(step, keys, np.array([0, 0, 1]), slots)
    first, second = sorted(book.updates.iterdir())
    assert first.read_bytes() == second.read_bytes()  # no clock is in it
    with np.load(first, allow_pickle=False) as data:
        assert data["key"].tolist() == [list(key) for key in keys] and data["count"].tolist() == [
            2,
            1,
        ]
        assert data["advantage"].tolist() == [1.0, -1.0, 0.5] and np.isnan(data["logp"]).all()
    book.drop_after(1)
    assert [*book.updates.iterdir()] == [first]
