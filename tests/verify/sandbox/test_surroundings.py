"""A world: its secrets are found in disguise, its listeners hear, what was set is restored."""

import base64
import os
import socket
import tempfile

import pytest

from turngym.tests.verify.sandbox.surroundings import VARIABLES, Surroundings


@pytest.fixture(scope="module")
def world():
    with Surroundings(0) as world:
        yield world


def test_the_environment_is_set_and_restored(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "mine")
    monkeypatch.delenv("RLGYM_CANARY", raising=False)
    before, folder = dict(os.environ), tempfile.gettempdir()
    with Surroundings(1) as world:
        assert all(os.environ[name] == world.secrets[0] for name in VARIABLES)
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(world.scratch)
        assert world.canary.read_text().strip().endswith(world.secrets[1])
    assert (
        dict(os.environ) == before and tempfile.gettempdir() == folder and not world.folder.exists()
    )


@pytest.mark.parametrize(
    "disguise",
    [
        str,
        lambda secret: secret[::-1],
        lambda secret: secret.encode().hex(),
        lambda secret: base64.b64encode(secret.encode()).decode(),
    ],
)
def test_a_secret_is_found_in_disguise(world, disguise):
    assert all(world.told(f"so: {disguise(secret)}.") for secret in world.secrets)
    assert not world.told(f"so: {disguise('CANARY-0123456789abcdef01234567')}.")


def test_listeners_hear(world):
    port = int(world.values["HOST_PORT"])
    assert world.heard() == []
    with (
        socket.create_connection(("127.0.0.1", port)),
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.sendto(b"x", ("127.0.0.1", port))
        with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
            abstract.connect(f"\0{world.abstract}")
            named.connect(f"{world.values['OUTSIDE_DIR']}/s.sock")
            assert sorted(world.heard()) == ["TCP", "UDP", "abstract unix", "unix"]
    assert world.heard() == []


def test_changes_outside_are_seen(world):
    before = world.outside_files()
    (world.outside / "new").write_text("x")
    (world.outside / "notes.txt").write_text("other")
    now = world.outside_files()
    assert {path for path in now if now[path] != before.get(path)} == {
        str(world.outside / name) for name in ("", "new", "notes.txt")
    }
