import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from turngym.agents.journal import checkpoint
from turngym.agents.journal.checkpoint import CheckpointError
from turngym.agents.journal.trees import Incident

STATE = {"control": {"ema": 0.1 + 0.2, "n": 3}, "names": ["é", "b"]}


def write(mark):
    def tensors(folder: Path) -> None:
        (folder / "adapter").mkdir()
        (folder / "adapter" / "adapter.safetensors").write_bytes(bytes([mark]) * 64)
        (folder / "optimizer.safetensors").write_bytes(bytes([mark + 1]) * 32)

    return tensors


def save(folder, step):
    return checkpoint.save(folder, step, STATE, write(step % 200))


PICKLED = Path("pickled")
WATCHING: list[list[Path]] = []  # who wants to know what is opened; an audit hook cannot be removed


def on_event(event: str, arguments: tuple[Any, ...]) -> None:
    for opened in WATCHING or ():  # None as Python ends
        if event == "pickle.find_class":
            opened.append(PICKLED)
        elif event == "open" and isinstance(arguments[0], str | Path):
            opened.append(Path(arguments[0]))


sys.addaudithook(on_event)


@pytest.fixture
def opened() -> Iterator[list[Path]]:
    """The files that were opened, and `PICKLED` where anything was unpickled."""
    WATCHING.append([])
    yield WATCHING[-1]
    WATCHING.clear()


def test_a_checkpoint_holds_tensors_state_and_a_manifest(tmp_path):
    path = save(tmp_path / "checkpoints", 7)
    assert (
        path
        == checkpoint.latest(tmp_path / "checkpoints")
        == tmp_path / "checkpoints" / "step-000007"
    )
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
    save(tmp_path, 1_000_001)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1000000", "step-1000001"]


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


@pytest.mark.parametrize(
    "name", ["adapter/adapter.safetensors", "optimizer.safetensors", "state.json"]
)
def test_a_truncated_and_a_missing_file_are_named_and_the_checkpoint_before_is_used(
    tmp_path, caplog, name
):
    save(tmp_path, 1)
    path, incidents = save(tmp_path, 2), []
    (path / name).write_bytes((path / name).read_bytes()[:-1])
    assert checkpoint.latest(tmp_path, incidents.append) == tmp_path / "step-000001"
    assert incidents == [
        Incident("checkpoint", f"{path}: the file {name!r} is not what was written")
    ]
    assert f"step-000001 is used: {path}: the file {name!r} is not what was written" in caplog.text
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=rf"step-000002: the file '{name}' is missing$"):
        checkpoint.verify(path)
    shutil.rmtree(path)
    assert (
        checkpoint.latest(tmp_path, incidents.append).name == "step-000001" and len(incidents) == 1
    )


# --- damage that its checksums do not show


def plant(name):
    def damage(path: Path) -> None:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(PICKLE)

    return damage


def manifest(text):
    def damage(path: Path) -> None:
        listed = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_bytes(
            text if isinstance(text, bytes) else text(listed, path).encode()
        )

    return damage


def state(text):
    """Write another state, and its checksum with it."""

    def damage(path: Path) -> None:
        (path / "state.json").write_text(text)
        listed = json.loads((path / "manifest.json").read_text())
        listed["state.json"] = sha256(text.encode()).hexdigest()
        (path / "manifest.json").write_text(json.dumps(listed))

    return damage


def linked(path: Path) -> None:
    """A link to the very bytes that were written."""
    (path / "state.json").rename(path.parent / "elsewhere.json")
    (path / "state.json").symlink_to(path.parent / "elsewhere.json")


def linked_whole(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def piped(path: Path) -> None:
    (path / "optimizer.safetensors").unlink()
    os.mkfifo(path / "optimizer.safetensors")


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("{}")


def older(path: Path) -> None:
    """A whole file of the step before."""
    shutil.copy(path.parent / "step-000001" / "optimizer.safetensors", path)


PICKLE = b"cbuiltins\nopen\n(S'unpickled'\nS'w'\ntR."
OUTSIDE = sha256(PICKLE).hexdigest()
DAMAGE = {
    "a planted pickle": plant("evil.pkl"),
    "a planted torch file": plant("adapter/adapter_model.bin"),
    "a planted hidden file": plant(".hidden"),
    "a planted folder": plant("more/more.json"),
    "a file of another step": older,
    "a link": linked,
    "a linked checkpoint": linked_whole,
    "a pipe": piped,
    "an empty folder": emptied,
    "a file for a folder": a_file,
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "an empty manifest": manifest(b""),
    "half a manifest": manifest(b"{"),
    "a list for a manifest": manifest(b'["state.json"]'),
    "a number for a manifest": manifest(b"3"),
    "a manifest that is no text": manifest(b"\xff"),
    "a manifest that nests": manifest(b"[" * 100_000),
    "a manifest of nothing": manifest(b"{}"),
    "a checksum that is none": manifest(
        lambda listed, path: json.dumps({**listed, "state.json": None})
    ),
    "a checksum in capitals": manifest(
        lambda listed, path: json.dumps({name: digest.upper() for name, digest in listed.items()})
    ),
    "a name too few": manifest(
        lambda listed, path: json.dumps({"state.json": listed["state.json"]})
    ),
    "a name that leaves": manifest(
        lambda listed, path: json.dumps({**listed, "../outside": OUTSIDE})
    ),
    "a name from the root": manifest(
        lambda listed, path: json.dumps({**listed, f"{path.parent}/outside": OUTSIDE})
    ),
    "a name twice": manifest(
        lambda listed, path: json.dumps(listed).replace("{", '{"state.json": "", ', 1)
    ),
    "a name roundabout": manifest(
        lambda listed, path: json.dumps({**listed, "adapter/../state.json": listed["state.json"]})
    ),
    "the state of another step": state('{"step": 3}'),
    "a state without a step": state('{"control": {}}'),
    "a step that is no number": state('{"step": "2"}'),
    "a step that is a truth": state('{"step": true}'),
    "a state that is a list": state("[2]"),
    "a state with NaN": state('{"step": 2, "x": NaN}'),
    "a state with a key twice": state('{"step": 2, "step": 2}'),
    "a state that is no JSON": state("step = 2"),
    "a state that nests": state("[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_nothing_of_a_damaged_checkpoint_is_used(tmp_path, opened, damage):
    """It is passed over and named; alone it is an error; what was planted is not opened, and a new save removes it."""
    save(tmp_path, 1)
    path, incidents = save(tmp_path, 2), []
    (tmp_path / "outside").write_bytes(PICKLE)
    written = {file.relative_to(path) for file in path.rglob("*") if file.is_file()}
    damage(path)
    opened.clear()
    assert checkpoint.latest(tmp_path, incidents.append) == tmp_path / "step-000001"
    assert {file.relative_to(path) for file in opened if path in file.parents} <= written
    assert (
        tmp_path / "outside" not in opened
        and PICKLED not in opened
        and not Path("unpickled").exists()
    )
    ((kind, what),) = [(incident.kind, incident.what) for incident in incidents]
    assert kind == "checkpoint" and "step-000002" in what
    shutil.rmtree(tmp_path / "step-000001")
    with pytest.raises(
        CheckpointError,
        match=r"all 1 checkpoints in .* are damaged: .*step-000002.*; restore a copy",
    ):
        checkpoint.latest(tmp_path)
    assert save(tmp_path, 2) == checkpoint.latest(tmp_path)


def test_a_check_of_the_caller_passes_a_checkpoint_over_too(tmp_path):
    def check(path: Path) -> None:
        if path.name != "step-000001":
            raise CheckpointError(f"{path} is not liked")

    save(tmp_path, 1)
    save(tmp_path, 2)
    assert checkpoint.latest(tmp_path, check=check).name == "step-000001"
    with pytest.raises(
        CheckpointError,
        match=r"all 2 .*step-000002 is not liked; .*.state.json. is not what was written",
    ):
        (tmp_path / "step-000001" / "state.json").write_text("{}")
        checkpoint.latest(tmp_path, check=check)


def test_a_checkpoint_that_cannot_be_read_is_passed_over(tmp_path, monkeypatch):
    save(tmp_path, 1)
    path, read = save(tmp_path, 2), os.open

    def refuse(file: Any, *args: Any, **options: Any) -> Any:
        if path in Path(file).parents and Path(file).suffix == ".safetensors":
            raise PermissionError(13, "Permission denied", str(file))
        return read(file, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CheckpointError, match=r"step-000002 cannot be read \(.*Permission denied"):
        checkpoint.verify(path)
    assert checkpoint.latest(tmp_path).name == "step-000001"


def test_what_was_passed_over_is_gone_when_the_run_has_gone_on(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "KEPT", 3)
    for step in (10, 20, 30):
        save(tmp_path, step)
    linked_whole(tmp_path / "step-000030")
    (tmp_path / "step-000020" / "state.json").unlink()
    assert checkpoint.latest(tmp_path).name == "step-000010"
    save(tmp_path, 15)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-000010", "step-000015"]


# --- saving where something goes wrong


def test_state_that_is_no_json_is_refused_and_leaves_the_last_checkpoint(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path, 2, {"loss": float("nan")}, write(2))
    assert checkpoint.latest(tmp_path).name == "step-000001"
    assert save(tmp_path, 2) == checkpoint.latest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


class Killed(BaseException):
    """Stands for the process being killed."""


@pytest.mark.slow
def test_a_kill_at_any_instant_leaves_a_whole_checkpoint_and_the_next_save_cleans_up(
    tmp_path, monkeypatch
):
    """Every fsync, rename and removal of a save that overwrites and prunes is a moment at which it may end."""
    moments = 0
    while True:
        folder = tmp_path / str(moments)
        for step in (1, 2):
            save(folder, step)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "KEPT", 1)
            _end_after(patch, moments)
            try:
                checkpoint.save(folder, 2, STATE, write(50))
                break
            except Killed:
                pass
        assert [checkpoint.verify(path) for path in checkpoint.steps(folder)] != []
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "KEPT", 1)
            checkpoint.save(folder, 2, STATE, write(50))
        assert [path.name for path in folder.iterdir()] == ["step-000002"]
        assert (checkpoint.latest(folder) / "optimizer.safetensors").read_bytes() == bytes(
            [51]
        ) * 32
        moments += 1
    assert moments > 9


@pytest.mark.parametrize("step", [2, 3])
def test_two_whole_checkpoints_are_there_at_every_instant(tmp_path, monkeypatch, step):
    """Also while a step is saved again; what was saved last is found as soon as `save` has returned."""
    moments, over = 0, False
    while not over:
        folder = tmp_path / str(moments)
        for earlier in (1, 2):
            save(folder, earlier)
        with monkeypatch.context() as patch:
            _end_after(patch, moments)
            try:
                checkpoint.save(folder, step, STATE, write(50))
                over = True
            except Killed:
                pass
        assert len([checkpoint.verify(path) for path in checkpoint.steps(folder)]) >= 2
        moments += 1
    newest = checkpoint.latest(folder)
    assert (newest.name, len(checkpoint.steps(folder))) == (f"step-{step:06d}", 2) and moments > 9
    assert (newest / "optimizer.safetensors").read_bytes() == bytes([51]) * 32


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_at_any_instant_is_told_and_leaves_what_was_there(
    tmp_path, monkeypatch, number
):
    """Every open, write, fsync and rename of a save can fail; a failed save leaves nothing that is taken for one."""
    moments, told = 0, 0
    while True:
        folder = tmp_path / str(moments)
        for step in (1, 2):
            save(folder, step)
        with monkeypatch.context() as patch:
            _end_after(patch, moments, OSError(number, os.strerror(number)))
            try:
                save(folder, 3)
                break
            except CheckpointError as error:
                told += 1
                assert re.search(
                    rf"the checkpoint .*step-000003 cannot be written \(.*{os.strerror(number)}",
                    str(error),
                )
            except OSError:  # while it removed the oldest: the new one is there
                assert checkpoint.latest(folder).name == "step-000003"
        assert len([checkpoint.verify(path) for path in checkpoint.steps(folder)]) >= 2
        assert [path for path in folder.iterdir() if path.name.endswith(".tmp")] == []
        assert save(folder, 3) == checkpoint.latest(folder)
        assert [path.name for path in sorted(folder.iterdir())] == ["step-000002", "step-000003"]
        moments += 1
    assert told >= 12


def test_a_checkpoint_that_its_writer_refuses_leaves_nothing(tmp_path):
    def refuse(folder: Path) -> None:
        (folder / "optimizer.safetensors").write_bytes(b"half")
        raise CheckpointError("exp_avg has a value that is not finite")

    save(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"^exp_avg has a value that is not finite$"):
        checkpoint.save(tmp_path, 2, STATE, refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def _end_after(patch, moments, end=Killed):
    """Let `moments` file operations happen; the one after that is begun, at most, and ends in `end`."""
    left = [moments]

    def tick():
        left[0] -= 1
        if left[0] < 0 if end is Killed else left[0] == -1:
            raise end

    def opened(path, mode="r", *args, real=Path.open, **options):
        file = real(path, mode, *args, **options)
        if end is not Killed and mode[0] in "wa":
            with file:
                tick()  # it is there, and empty
            file = real(path, mode, *args, **options)
        return file

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

    patch.setattr(Path, "open", opened)
    patch.setattr(os, "fsync", fsync)
    patch.setattr(Path, "rename", rename)
    patch.setattr(shutil, "rmtree", rmtree)


def test_everything_is_synced_before_it_is_given_its_name(tmp_path, monkeypatch):
    synced, renamed = [], []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").resolve()) or fsync(fd)
    )
    monkeypatch.setattr(
        Path, "rename", lambda path, to: renamed.append(len(synced)) or rename(path, to)
    )
    save(tmp_path, 1)
    temporary = tmp_path.resolve() / ".step-000001.tmp"
    names = (
        "adapter",
        "adapter/adapter.safetensors",
        "optimizer.safetensors",
        "state.json",
        "manifest.json",
    )
    assert set(synced[: renamed[0]]) == {temporary, *(temporary / name for name in names)}
    assert synced[renamed[0] :] == [tmp_path.resolve()]


def test_checkpoints_behind_a_link_are_neither_used_nor_written(tmp_path):
    save(tmp_path / "elsewhere", 1)
    (tmp_path / "run").mkdir()
    folder = tmp_path / "run" / "checkpoints"
    folder.symlink_to("../elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    for use in (checkpoint.steps, checkpoint.latest, lambda folder: save(folder, 2)):
        with pytest.raises(CheckpointError, match="is a link"):
            use(folder)
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


def test_what_a_killed_save_left_is_removed_also_where_it_is_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / ".step-000001.tmp").symlink_to("../../elsewhere")
    (folder / ".step-000002.tmp").mkdir()
    (folder / ".step-000003.tmp").touch()
    save(folder, 1)
    assert [path.name for path in folder.iterdir()] == ["step-000001"]
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["file"]
