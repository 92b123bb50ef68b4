"""Loggers that follow a run: order, steps that are taken again, failures; with fake ones in place of their packages."""

import json
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import StopReason
from turngym.tests.support.pages import ROOT
from turngym.training.runs import loggers as sinks
from turngym.training.runs import run
from turngym.training.runs.config import TrainConfig, to_toml
from turngym.training.runs.loggers import (
    CUT,
    ENDED,
    SINKS,
    LoggedRun,
    follow,
    following,
    parse_loggers,
    traced,
)

FAKE = """
import json, os, time
class Settings:
    def __init__(self, **options): pass
class Run:
    def __init__(self, options):
        self.dir = os.path.join(options["dir"], "wandb", "run", "files")
        self.file = open(os.path.join(options["dir"], "seen.jsonl"), "a")
    def write(self, **what): self.file.write(json.dumps(what) + "\\n"); self.file.flush()
    def log(self, metrics, step):
        if os.environ.get("FAKE") == "fails" and step == 2: raise ConnectionError("the server [is] gone")
        if os.environ.get("FAKE") == "hangs": time.sleep(600)
        self.write(step=step, reward=metrics.get("reward"))
    def finish(self, exit_code): self.write(exit_code=exit_code)
def init(**options):
    found = Run(options)
    found.write(id=options["id"], name=options["name"], method=options["config"]["method"])
    return found
"""


class Fake:
    """A sink that keeps what it is given."""

    def __init__(self, place: LoggedRun, settings) -> None:
        self.id, self.place, self.settings, self.seen = (
            "a-1" if not place.resumed else place.id,
            place,
            settings,
            [],
        )
        self.closed, self.fails_at = None, None

    def send(self, step, metrics):
        if step == self.fails_at:
            raise ConnectionError("gone")
        self.seen.append((step, metrics))

    def close(self, finished):
        self.closed = finished


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two steps, and a third that is being written."""
    (tmp_path / "loggers" / "fake").mkdir(parents=True)
    (tmp_path / "config.toml").write_text(to_toml(TrainConfig(), {}))
    lines = [
        {"step": 0, "valid/success": 0.5},
        {"step": 1, "reward": 1.5, "entropy": None, "refused": "", "alarms": []},
    ]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 2, "rew'
    )
    return tmp_path


def followed(folder: Path, *moments, end=ENDED, fails_at=None) -> Fake:
    """What a sink gets of a run in whose folder `moments` write more, one at each look."""
    made, left = [], list(moments)

    def kind(place, settings):
        made.append(Fake(place, settings))
        made[0].fails_at = fails_at
        return made[0]

    def over():
        if not left:
            return end
        left.pop(0)(folder / "metrics.jsonl")
        return ""

    try:
        follow(kind, folder, "fake", over)
    except ConnectionError:
        assert fails_at is not None
    return made[0]


def rest(path: Path) -> None:
    path.write_text(path.read_text() + 'ard": 2.5}\n{"step": 3, "reward": 0}\n')


def test_numbers_go_in_order_and_once_and_what_is_no_number_does_not(folder):
    found = followed(folder, lambda path: None, rest)
    assert found.seen == [
        (0, {"valid/success": 0.5}),
        (1, {"reward": 1.5}),
        (2, {"reward": 2.5}),
        (3, {"reward": 0.0}),
    ]
    assert found.closed and found.settings["method"] == "grpo"


def test_a_run_that_goes_on_sends_no_step_twice_and_keeps_its_name(folder):
    assert [step for step, _ in followed(folder, end=CUT).seen] == [0, 1]
    again = followed(folder, rest)
    assert [step for step, _ in again.seen] == [2, 3]
    assert again.place.resumed and (again.id, again.place.id) == ("a-1", "a-1")


def test_a_step_whose_sending_failed_is_not_sent_again(folder):
    first = followed(folder, rest, fails_at=1)
    assert [step for step, _ in first.seen] == [0] and first.closed is None
    assert [step for step, _ in followed(folder).seen] == [2, 3]


def test_a_run_that_was_interrupted_is_closed_as_that(folder):
    assert followed(folder, end=CUT).closed is False


def test_an_episode_is_told_as_messages_with_a_span_for_each_turn_and_call(tree):
    found = traced(3, tree, tree.leaves[0])
    assert [one["role"] for one in found["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(one["name"], one["kind"], one.get("status")) for one in found["spans"]] == [
        ("turn", "generation", None),
        ("python", "tool", "ok"),
        ("turn", "generation", None),
    ]
    assert found["spans"][0]["metadata"] == {"tokens": 2, "entropy": 0.5, "ended": "closer"}
    assert found["metadata"]["score"] is None and found["metadata"]["step"] == 3
    json.dumps(found, allow_nan=False)


@pytest.fixture
def tree():
    def turn(parent, role, text, drawn=(), info=None, ended=""):
        tokens = np.arange(max(len(drawn), 1), dtype=np.int32)
        sampled, entropy = np.full(len(tokens), bool(drawn)), np.array(drawn or [0.0], np.float32)
        return Turn(
            parent, role, text, tokens, sampled, -entropy, entropy, info=info or {}, ended=ended
        )

    opening = {
        "messages": [{"role": "system", "content": "Think."}, {"role": "user", "content": "1+1?"}]
    }
    call = turn(
        0, "assistant", "a call", (0.25, 0.75), {"tool": "python", "tool_status": "ok"}, "closer"
    )
    turns = [
        turn(-1, "user", "1+1?", info=opening),
        call,
        turn(1, "tool", "2"),
        turn(2, "assistant", "2", (1.0,)),
    ]
    tree = Tree((0, 2, 7), 7, "t7", turns)
    tree.leaves = [Leaf.ended(3, 0, StopReason.INFRA_ERROR, float("nan"), {})]
    return tree


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "tensorbord",
            "log names 'tensorbord', which is no logger; loggers are tensorboard, wandb, trackio, mlflow",
        ),
        ("wandb,wandb", "log names wandb twice"),
        ("tensorboard , mlflow", "which is not installed: pip install 'turngym[tensorboard]'"),
    ],
)
def test_a_mistake_is_said_before_the_run(names, message, monkeypatch, tmp_path):
    monkeypatch.setattr(sinks, "find_spec", lambda name: object() if name == "wandb" else None)
    with pytest.raises(ValueError) as told:
        run.prepare(TrainConfig(log=names, out=str(tmp_path / "out")))
    assert message in str(told.value) and not (tmp_path / "out").exists()


def test_no_logger_is_none():
    assert parse_loggers("") == parse_loggers(" , ") == [] and [*SINKS] == [
        "tensorboard",
        "wandb",
        "trackio",
        "mlflow",
    ]


def test_every_logger_has_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert SINKS.keys() <= project["optional-dependencies"].keys()


# --- loggers as processes of their own


@pytest.fixture
def fake(tmp_path_factory, monkeypatch):
    """A package in place of wandb's, which a logger's process finds as well."""
    place = tmp_path_factory.mktemp("packages")
    (place / "wandb.py").write_text(FAKE)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)


def seen(folder: Path) -> list[dict]:
    return [
        json.loads(line) for line in (folder / "loggers" / "seen.jsonl").read_text().splitlines()
    ]


@pytest.mark.slow
def test_a_logger_that_fails_is_one_incident_and_the_run_goes_on(folder, fake, monkeypatch, caplog):
    monkeypatch.setenv("FAKE", "fails")
    incidents = []
    with following(
        ["wandb"], folder, lambda step, incident: incidents.append((step, incident))
    ) as go:
        go(1)
        rest(folder / "metrics.jsonl")
        while not incidents:  # the test's own timeout ends a wait in vain
            go(3)
            time.sleep(0.05)
        go(4)
    ((step, found),) = incidents
    assert (step, found.kind) == (3, "log")
    assert found.what == "wandb takes no more steps: ConnectionError: the server [is] gone"
    assert [line.get("step") for line in seen(folder)] == [None, 0, 1] and len(caplog.records) == 1


@pytest.mark.slow
def test_a_logger_that_hangs_is_ended_and_an_incident(folder, fake, monkeypatch):
    monkeypatch.setenv("FAKE", "hangs")
    monkeypatch.setattr(sinks, "PATIENCE", 3.0)
    incidents = []
    with following(["wandb"], folder, lambda step, incident: incidents.append(incident.what)) as go:
        go(1)
    assert incidents == ["wandb takes no more steps: it was not done 3 s after the run"]


@pytest.mark.slow
def test_a_run_comes_to_the_same_bytes_with_and_without_loggers(fake, tmp_path, one_thread):
    def digests(name, **more):
        small = {
            "steps": 2,
            "eval_every": 1,
            "eval_tasks": 2,
            "prompts": 2,
            "group": 2,
            "max_tokens": 12,
            "threads": 1,
        }
        prepared = run.prepare(TrainConfig(out=str(tmp_path / name)).changed(**small, **more))
        list(run.execute(prepared))
        prepared.close()
        place = tmp_path / name
        weights = (
            place / "checkpoints" / "step-000002" / "adapter" / "adapter_model.safetensors"
        ).read_bytes()
        return [weights, *(path.read_bytes() for path in sorted((place / "trees").iterdir()))]

    assert digests("without") == digests("with", log="wandb")
    lines = seen(tmp_path / "with")
    assert [line.get("step") for line in lines] == [None, 0, 1, 2, None] and lines[-1] == {
        "exit_code": 0
    }
    assert lines[0]["method"] == "grpo"
    # The same run goes on: nothing is sent twice.
    prepared = run.prepare(
        TrainConfig(out=str(tmp_path / "with"), log="wandb", resume=True).changed(
            steps=3, eval_every=1, eval_tasks=2, prompts=2, group=2, max_tokens=12, threads=1
        )
    )
    list(run.execute(prepared))
    prepared.close()
    assert [line.get("step") for line in seen(tmp_path / "with")][5:] == [None, 3, None]
    assert seen(tmp_path / "with")[5]["id"] == lines[0]["id"]
