import json
from pathlib import Path

import pytest

from turngym.agents.journal import checkpoint
from turngym.tests.verify.resume.fingerprint import Fingerprint, saved_at, step_of_metrics, whole


@pytest.fixture
def run(tmp_path) -> Path:
    def tensors(path: Path) -> None:
        (path / "adapter").mkdir()
        (path / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
        (path / "optimizer.safetensors").write_bytes(b"moments")

    for step in (1, 2):
        checkpoint.save(tmp_path / "checkpoints", step, {}, tensors)
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "step-000001.jsonl").write_text("tree\n")
    lines = [{"step": n, "reward": n / 2, "seconds": n / 3} for n in range(3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("checkpoints/step-000002/adapter/adapter_model.safetensors", "adapter"),
        ("checkpoints/step-000002/optimizer.safetensors", "optimizer"),
        ("checkpoints/step-000002/state.json", "state"),
        ("trees/step-000001.jsonl", "journals"),
    ],
)
def test_a_change_of_one_byte_shows_in_its_part_alone(run, path, part):
    before = Fingerprint.of(run)
    (run / path).write_bytes((run / path).read_bytes() + b" ")
    same = Fingerprint.of(run).same(before)
    assert [name for name, equal in same.items() if not equal] == [part]


def test_only_the_times_of_metrics_may_differ(run):
    before, path = Fingerprint.of(run), run / "metrics.jsonl"
    path.write_text(path.read_text().replace('"seconds": 0.0', '"seconds": null'))
    assert Fingerprint.of(run) == before
    path.write_text(path.read_text().replace('"reward": 0.5', '"reward": 0.25'))
    assert not Fingerprint.of(run).same(before)["metrics"]


def test_a_run_that_has_hardly_begun_has_one_too(run, tmp_path):
    assert Fingerprint.of(tmp_path / "nowhere") != Fingerprint.of(run)
    assert step_of_metrics(tmp_path / "nowhere") == -1 and step_of_metrics(run) == 2


def test_checkpoints_are_counted_and_dated(run):
    good, bad = whole(run / "checkpoints")
    assert ([path.name for path in good], bad) == (["step-000001", "step-000002"], [])
    assert saved_at(run, 2) == (good[-1] / "manifest.json").stat().st_mtime and saved_at(
        run, 3
    ) == float("inf")
    (good[-1] / "state.json").unlink()
    assert [[path.name for path in paths] for paths in whole(run / "checkpoints")] == [
        ["step-000001"],
        ["step-000002"],
    ]
