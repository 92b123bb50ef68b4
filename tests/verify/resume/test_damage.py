import json
import random
from pathlib import Path

import pytest

from turngym.agents.journal import checkpoint
from turngym.tests.verify.resume import damage
from turngym.tests.verify.resume.corruption import WAYS
from turngym.tests.verify.resume.damage import Damage
from turngym.training.runs.folder import RunState


@pytest.fixture
def run(tmp_path) -> Path:
    """A run with two checkpoints."""

    def tensors(path: Path) -> None:
        (path / "adapter").mkdir()
        (path / "adapter" / "adapter_model.safetensors").write_bytes(
            random.Random(1).randbytes(300)
        )
        (path / "adapter" / "adapter_config.json").write_text('{"r": 4}')
        (path / "optimizer.safetensors").write_bytes(random.Random(2).randbytes(500))

    for step in (2, 4):
        data = RunState(control="[]", step=step).to_json()
        data.pop("step")
        checkpoint.save(tmp_path / "run" / "checkpoints", step, data, tensors)
    return tmp_path / "run"


@pytest.mark.parametrize("name", WAYS)
def test_every_way_changes_a_checkpoint(run, name):
    victim = run / "checkpoints" / "step-000004"
    before = {
        path: path.is_symlink() or path.read_bytes() for path in victim.rglob("*") if path.is_file()
    }
    WAYS[name](victim, random.Random(0))
    after = {
        path: path.is_symlink() or path.read_bytes()
        for path in victim.rglob("*")
        if path.is_file() and not victim.is_symlink()
    }
    assert after != before


def test_a_loader_that_trusts_too_much_makes_every_row_fall_short(run, tmp_path, monkeypatch):
    def trusting(folder, on_incident=None, check=None):
        newest = checkpoint.steps(folder)[-1]
        for path in newest.rglob("*.pkl") if newest.is_dir() else ():
            path.read_bytes()
        return newest

    monkeypatch.setattr(damage, "latest", trusting)
    rows = list(Damage(run, tmp_path / "damaged", seed=0).rows(len(WAYS) * 6))
    assert [row.good for row in rows] == [False] * 4 and rows[0].held == 0
    assert "0 bit flip" in rows[0].note


def test_a_state_is_damaged_with_its_checksum(run):
    """Else it would be just one more file that is not what was written."""
    victim, found = run / "checkpoints" / "step-000004", []
    whole = {name: (victim / name).read_bytes() for name in ("state.json", "manifest.json")}
    for seed in range(12):
        for name, text in whole.items():
            (victim / name).write_bytes(text)
        WAYS["state"](victim, random.Random(seed))
        assert checkpoint.verify(victim) == victim
        found.append((victim / "state.json").read_text())
    assert len(set(found)) > 6 and json.loads(whole["state.json"])["step"] == 4
