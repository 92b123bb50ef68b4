import json
import math

import pytest

from turngym.agents.scores import Interval, Report
from turngym.training.control import Stats
from turngym.training.learner import Update
from turngym.training.run_folder import Record
from turngym.training.step import Learned

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
        "valid/episodes": 3,
    }
    assert json.loads(Record(0, {}).line()) == {"step": 0}


def test_what_was_learned_is_told_without_the_time_it_took():
    update = Update(idle=0.0, lr=1e-3, loss=0.25, grad_norm=2.0, drift=0.0, means={"kl_old": 0.5})
    line = json.loads(Learned(update, Stats(0, "rollout", entropy_turns=(0.5, 0.25)), "{}").line([]))
    told = {"loss": 0.25, "grad_norm": 2.0, "kl_old": 0.5, "refused": "", "entropy_turn/1": 0.25, "reward": None}
    assert line.items() >= told.items() and not any("seconds" in name for name in line)


def test_a_refused_update_has_a_reason_in_place_of_numbers():
    line = json.loads(Learned(Update(refused="no"), Stats(0, "rollout"), "{}").line([]))
    assert (line["refused"], line["loss"], line["grad_norm"], line["idle_paths"]) == ("no", None, None, None)


def test_what_was_measured_by_phase_and_outcome_is_told_by_name():
    measured = Stats(0, "rollout", entropy_phases={"call": 0.5}, extras={"entropy_turn_success/0": 0.25})
    line = json.loads(Learned(Update(), measured, "{}").line([]))
    assert (line["entropy_phase/call"], line["entropy_turn_success/0"], line["tool_ok"]) == (0.5, 0.25, None)
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
    assert [number for number, kinds in enumerate(named, 1) if kinds == ["silent-groups"]] == [5, 6, 16, 17]
    assert [record.step for record in records if record.begun] == [5]
    assert json.loads(records[4].line())["alarms"] == ["silent-groups"]


@pytest.mark.parametrize("killed", [3, 5, 9])
def test_alarms_depend_on_the_lines_alone(killed):
    """Numbers that are not finite are NaN in a record and null in its line."""
    whole = steps([math.nan, *[1.0] * 9])
    past = [json.loads(record.line()) for record in whole[:killed]]
    again = Record.after(past, killed + 1, {"refused": "", "silent_groups": 1.0}, None)
    assert again == whole[killed]
    assert again == Record.after([record.metrics for record in whole[:killed]], killed + 1, again.metrics, None)


def test_before_the_first_step_there_are_no_alarms():
    assert Record.after([], 0, {}, REPORT) == Record(0, {}, REPORT)
