import json
import os
import shutil
from pathlib import Path

import pytest

from turngym.agents import checkpoint
from turngym.agents.checkpoint import CheckpointError

STATE = {"control": {"ema": 0.1 + 0.2, "n": 3}, "names": ["é", "b"]}


def write(mark):
    def tensors(folder: Path) -> None:
        (folder / "adapter").mkdir()
        (folder / "adapter" / "adapter.safetensors").write_bytes(bytes([mark]) * 64)
        (folder / "optimizer.safetensors").write_bytes(bytes([mark + 1]) * 32)

    return tensors


def save(folder, step, **options):
    return checkpoint.save(folder, step, STATE, write(step % 200), **options)


def test_a_checkpoint_holds_tensors_state_and_a_manifest(tmp_path):
    path = save(tmp_path / "checkpoints", 7)
    assert path == checkpoint.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-000007"
    assert checkpoint.read_state(path) == {"step": 7, **STATE}
    assert set(json.loads((path / "manifest.json").read_text())) == {
        "adapter/adapter.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
    assert (path / "adapter" / "adapter.safetensors").read_bytes() == bytes([7]) * 64


def test_only_the_newest_stay(tmp_path):
    for step in (1, 2, 10, 3, 999_999, 1_000_000):
        save(tmp_path, step)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-999999", "step-1000000"]
    assert checkpoint.latest(tmp_path).name == "step-1000000"
    save(tmp_path, 1_000_001, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1000001"]


def test_keeping_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep is 0; a run needs at least its newest checkpoint"):
        save(tmp_path, 1, keep=0)
    assert [*tmp_path.iterdir()] == []


def test_a_step_can_be_saved_again(tmp_path):
    save(tmp_path, 3)
    checkpoint.save(tmp_path, 3, {}, write(99))
    assert (checkpoint.latest(tmp_path) / "optimizer.safetensors").read_bytes() == bytes([100]) * 32
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]


def test_without_a_checkpoint_there_is_no_latest(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None


def test_every_flipped_bit_is_found(tmp_path):
    path = save(tmp_path, 1)
    for file in [file for file in path.rglob("*") if file.is_file()]:
        whole = file.read_bytes()
        for bit in range(0, 8 * len(whole), 5):
            broken = bytearray(whole)
            broken[bit // 8] ^= 1 << bit % 8
            file.write_bytes(broken)
            with pytest.raises(CheckpointError):
                checkpoint.verify(path)
        file.write_bytes(whole)
    assert checkpoint.verify(path) == path


@pytest.mark.parametrize("name", ["adapter/adapter.safetensors", "optimizer.safetensors", "state.json"])
def test_a_truncated_and_a_missing_file_are_named_with_the_way_out(tmp_path, name):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    (path / name).write_bytes((path / name).read_bytes()[:-1])
    with pytest.raises(CheckpointError) as caught:
        checkpoint.latest(tmp_path)
    assert str(caught.value) == f"{path / name} is not what was written; remove {path} to use the checkpoint before it"
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=r"is missing; remove .*step-000002 to use the checkpoint before it"):
        checkpoint.latest(tmp_path)
    shutil.rmtree(path)
    assert checkpoint.latest(tmp_path).name == "step-000001"


@pytest.mark.parametrize("manifest", [None, b"", b"{", b"[1]", b"3", b"\xff"])
def test_a_manifest_that_cannot_be_read_is_named(tmp_path, manifest):
    path = save(tmp_path, 1)
    (path / "manifest.json").unlink()
    if manifest is not None:
        (path / "manifest.json").write_bytes(manifest)
    with pytest.raises(CheckpointError, match=r"step-000001 has no readable manifest.json"):
        checkpoint.latest(tmp_path)


def test_state_that_is_no_json_is_refused_and_leaves_the_last_checkpoint(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path, 2, {"loss": float("nan")}, write(2))
    assert checkpoint.latest(tmp_path).name == "step-000001"
    assert save(tmp_path, 2) == checkpoint.latest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


class Killed(BaseException):
    """Stands for the process being killed."""


def test_a_kill_at_any_instant_leaves_a_whole_checkpoint_and_the_next_save_cleans_up(tmp_path, monkeypatch):
    """Every fsync, rename and removal of a save that overwrites and prunes is a moment at which it may end."""
    moments = 0
    while True:
        folder = tmp_path / str(moments)
        for step in (1, 2):
            save(folder, step, keep=3)
        with monkeypatch.context() as patch:
            _end_after(patch, moments)
            try:
                checkpoint.save(folder, 2, STATE, write(50), keep=1)
                break
            except Killed:
                pass
        assert [checkpoint.verify(path) for path in checkpoint.steps(folder)] != []
        checkpoint.save(folder, 2, STATE, write(50), keep=1)
        assert [path.name for path in folder.iterdir()] == ["step-000002"]
        assert (checkpoint.latest(folder) / "optimizer.safetensors").read_bytes() == bytes([51]) * 32
        moments += 1
    assert moments > 9


def _end_after(patch, moments):
    """Let `moments` file operations happen; the one after that is begun, at most, and the process ends."""
    left = [moments]

    def tick():
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    def fsync(handle, real=os.fsync):
        tick()
        real(handle)

    def rename(path, target, real=Path.rename):
        tick()
        return real(path, target)

    def rmtree(path, ignore_errors=False, real=shutil.rmtree):
        first = next((file for file in Path(path).rglob("*") if file.is_file()), None)
        if left[0] == 0 and first is not None:
            first.unlink()  # killed in the middle
        tick()
        real(path, ignore_errors)

    patch.setattr(os, "fsync", fsync)
    patch.setattr(Path, "rename", rename)
    patch.setattr(shutil, "rmtree", rmtree)


def test_everything_is_synced_before_it_is_given_its_name(tmp_path, monkeypatch):
    synced, renamed = [], []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").resolve()) or fsync(fd))
    monkeypatch.setattr(Path, "rename", lambda path, to: renamed.append(len(synced)) or rename(path, to))
    save(tmp_path, 1)
    temporary = tmp_path.resolve() / ".step-000001.tmp"
    names = ("adapter", "adapter/adapter.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
    assert set(synced[: renamed[0]]) == {temporary, *(temporary / name for name in names)}
    assert synced[renamed[0] :] == [tmp_path.resolve()]
