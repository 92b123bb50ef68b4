"""A short run with each logger's real package, offline: what arrives, that it goes on, and that nothing changes."""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngym import __main__ as cli
from turngym.training.runs.loggers import PROJECT

SMALL = [
    "--eval-every",
    "1",
    "--eval-tasks",
    "2",
    "--prompts",
    "2",
    "--group",
    "2",
    "--max-tokens",
    "12",
]
SMALL += ["--threads", "1", "--seed", "3"]
BLOCK, HEAD = 1 << 15, 7  # of a file of wandb's, which is a log of LevelDB behind a head of its own
pytestmark = pytest.mark.filterwarnings("default")  # what these packages warn of is theirs
NAMES = ("tensorboard", "wandb", "trackio", "mlflow")


def train(*args: str) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["train", *args])
    assert left.value.code == 0


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def product(run: Path) -> dict[str, bytes]:
    """The bytes of journals and weights."""
    files = [*run.glob("trees/*"), *run.glob("checkpoints/*/adapter/*.safetensors")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def logged(data: bytes) -> Iterator[bytes]:
    """The entries of a file of wandb's: parts with checksum, length and kind (whole, first, middle, last) in front."""
    at, parts = HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # too little is left of the block
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (1, 4):
            yield parts
            parts = b""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run without loggers, and one with all of them that was ended after two steps and went on."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("TRACKIO_DIR", str(place / "trackio"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
        patch.setenv("HF_HUB_OFFLINE", "1")
        train(*SMALL, "--steps", "3", "--out", "plain")
        train(*SMALL, "--steps", "2", "--lr-end", "1", "--out", "short", "--log", ",".join(NAMES))
        # A file cannot choose who gets metrics, so a resumed run names its loggers again.
        train("--resume", "--steps", "3", "--out", "short", "--log", ",".join(NAMES))
        train(*SMALL, "--steps", "3", "--out", "logged", "--log", ",".join(NAMES))
        yield place


def test_loggers_change_nothing_and_none_has_failed(place):
    assert product(place / "plain") == product(place / "logged") != {}
    for run in ("short", "logged"):
        told = [(place / run / "loggers" / name / "output.txt").read_text() for name in NAMES]
        assert not (place / run / "incidents.jsonl").exists(), told


@pytest.mark.parametrize("run", ["short", "logged"])
def test_tensorboard_has_every_number_once(place, run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place / run / "loggers" / "tensorboard"))
    found.Reload()
    for name in ("entropy", "entropy_turn/0", "valid/success"):
        wanted = {
            line["step"]: line[name] for line in lines(place / run) if line.get(name) is not None
        }
        assert {one.step: one.value for one in found.Scalars(name)} == pytest.approx(wanted)
        assert len(found.Scalars(name)) == len(wanted) > 1


@pytest.mark.parametrize("run", ["short", "logged"])
def test_wandb_keeps_every_step_once_under_one_name(place, run):
    from wandb.proto import wandb_internal_pb2

    steps, names = [], set()
    for file in sorted(place.glob(f"{run}/loggers/wandb/offline-run-*/*.wandb")):
        for data in logged(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            names |= {record.run.run_id} - {""}
            if items := record.history.item:
                keys = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in items
                }
                steps.append((keys["_step"], keys.get("entropy")))
    assert steps == [(line["step"], line.get("entropy")) for line in lines(place / run)]
    assert len(names) == 1


@pytest.mark.parametrize("run", ["short", "logged"])
def test_trackio_has_every_step_once_and_traces_of_episodes(place, run):
    ask = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as S; p = sys.argv[1]; "
        "names = [n for n in S.get_runs(p) if sys.argv[2] in n]; "
        "print(json.dumps([S.get_logs(p, n) for n in names], default=str)); "
        "print(json.dumps([S.get_traces(p, n) for n in names], default=str))"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask, PROJECT, run], capture_output=True, text=True, check=True
    )
    logs, traces = map(json.loads, done.stdout.splitlines()[-2:])
    assert len(logs) == 1
    found = [(row["step"], row.get("entropy")) for row in logs[0]]
    assert found == [(line["step"], line.get("entropy")) for line in lines(place / run)]
    assert len(traces[0]) == 2 * 3  # a task's first episode, for two tasks and three steps
    assert "assistant" in json.dumps(traces[0][0])


@pytest.mark.parametrize("run", ["short", "logged"])
def test_mlflow_has_every_number_once_and_the_settings(place, run):
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(PROJECT)
    (found,) = [
        one
        for one in client.search_runs([experiment.experiment_id])
        if one.info.run_name.endswith(run)
    ]
    for name in ("entropy", "entropy_turn/0", "valid/success"):
        wanted = [
            (line["step"], line[name]) for line in lines(place / run) if line.get(name) is not None
        ]
        history = client.get_metric_history(found.info.run_id, name)
        assert sorted((one.step, one.value) for one in history) == wanted
    assert found.data.params["method"] == "grpo" and found.info.status == "FINISHED"
