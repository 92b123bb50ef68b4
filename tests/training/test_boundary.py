import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turngym.agents import checkpoint
from turngym.agents.checkpoint import CheckpointError
from turngym.training.run_folder import Boundary, read_boundary, to_line, to_text
from turngym.training.schedule import Schedule

AT = Boundary(
    control='[{}, {"sum": 0.30000000000000004}]',
    step=7,
    cursor=56,
    version=6,
    tokens=9000,
    refused=1,
    line='{"reward": 0.1, "loss": null}',
)


def save(folder: Path, data: dict[str, Any]) -> Path:
    return checkpoint.save(folder, data["step"], {k: v for k, v in data.items() if k != "step"}, lambda path: None)


def test_a_boundary_survives_a_checkpoint(tmp_path):
    assert read_boundary(save(tmp_path, AT.to_json())) == AT
    assert replace(AT, stop=True) == read_boundary(save(tmp_path, replace(AT, stop=True).to_json())) != AT


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
