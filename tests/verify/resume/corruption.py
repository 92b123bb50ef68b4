"""Ways to damage a checkpoint: what disks, crashes, hands and strangers do to it."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

# What Python's unpickler would do with it: make a file of this name, where it is run.
TRAP = b"cbuiltins\nopen\n(S'unpickled'\nS'w'\ntR."
PLANTED = (
    "evil.pkl",
    "adapter/adapter_model.bin",
    "optimizer.pt",
    ".hidden",
    "adapter/deep/er.json",
    "state.json.bak",
)


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def _flip(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _cut(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    os.truncate(path, rng.randrange(path.stat().st_size))


def _grow(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 9)))


def _lose(checkpoint: Path, rng: random.Random) -> None:
    rng.choice(_files(checkpoint)).unlink()


def _mix(checkpoint: Path, rng: random.Random) -> None:
    one, other = rng.sample(_files(checkpoint), 2)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def _plant(checkpoint: Path, rng: random.Random) -> None:
    path = checkpoint / rng.choice(PLANTED)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(TRAP)


def _pickle(checkpoint: Path, rng: random.Random) -> None:
    rng.choice(_files(checkpoint)).write_bytes(TRAP)


def _link(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    target = checkpoint.parent / f"elsewhere-{path.name}"
    path.replace(target)
    path.symlink_to(target)


def _link_all(checkpoint: Path, rng: random.Random) -> None:
    target = checkpoint.parent / "elsewhere"
    shutil.rmtree(target, ignore_errors=True)
    checkpoint.rename(target)
    checkpoint.symlink_to(target)


def _pipe(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    path.unlink()
    os.mkfifo(path)


def _empty(checkpoint: Path, rng: random.Random) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def _folder(checkpoint: Path, rng: random.Random) -> None:
    path = rng.choice(_files(checkpoint))
    path.unlink()
    path.mkdir()


def _manifest(checkpoint: Path, rng: random.Random) -> None:
    path = checkpoint / "manifest.json"
    found = json.loads(path.read_text())
    name = rng.choice(sorted(found))
    text = path.read_text()
    (checkpoint.parent / "outside").write_bytes(TRAP)
    outside = sha256(TRAP).hexdigest()
    path.write_text(
        rng.choice(
            [
                "",
                "{",
                "[]",
                "null",
                "[" * 100_000,
                '{"state.json": NaN}',
                json.dumps({**found, name: found[name][::-1]}),
                json.dumps({**found, name: found[name].upper() + " "}),
                json.dumps({**found, name: None}),
                json.dumps({key: value for key, value in found.items() if key != name}),
                json.dumps({**found, "../outside": outside}),
                json.dumps({**found, str(checkpoint.parent / "outside"): outside}),
                json.dumps({**found, "adapter/../state.json": found["state.json"]}),
                text.replace(
                    "{", f'{{"{name}": "{found[name]}", ', 1
                ),  # a name that is there twice
            ]
        )
    )


def _state(checkpoint: Path, rng: random.Random) -> None:
    """Change the state and its checksum too, as somebody might by hand."""
    path, listed = checkpoint / "state.json", checkpoint / "manifest.json"
    state: dict[str, Any] = json.loads(path.read_text())
    name = rng.choice(["step", "cursor", "version", "refused", "stop", "line"])
    wrong: list[Any] = ["7", -1, None, 1.5, [], state["step"] + 1 if name == "step" else "x"]
    text = rng.choice(
        [
            json.dumps({**state, name: rng.choice(wrong)}),
            json.dumps({key: value for key, value in state.items() if key != name}),
            json.dumps({**state, "more": 1}),
            json.dumps(state).replace("{", '{"step": 1, ', 1),
            json.dumps(state).replace('"cursor": ', '"cursor": NaN, "was": ', 1),
            json.dumps([state]),
            "",
        ]
    )
    path.write_text(text)
    manifest = {**json.loads(listed.read_text()), path.name: sha256(text.encode()).hexdigest()}
    listed.write_text(json.dumps(manifest))


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "bit flip": _flip,
    "truncation": _cut,
    "more bytes": _grow,
    "missing file": _lose,
    "files mixed up": _mix,
    "foreign pickle": _plant,
    "pickle in place of a file": _pickle,
    "link": _link,
    "linked folder": _link_all,
    "pipe": _pipe,
    "empty folder": _empty,
    "folder in place of a file": _folder,
    "manifest": _manifest,
    "state": _state,
}
