"""Engines by name, and what a server of our own is started with."""

from pathlib import Path

import pytest

from turngym.agents.cli.settings import EngineChoice, LoraOptions
from turngym.agents.engines import open_engine
from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[VllmServer]:
    """The servers that were started, none of which has a process."""
    servers: list[VllmServer] = []
    monkeypatch.setattr(VllmServer, "__enter__", lambda server: servers.append(server) or server)
    return servers


def test_a_server_of_our_own_on_a_cpu(started: list[VllmServer], tmp_path: Path) -> None:
    policy = load_policy(TINY, lora=LoraOptions(rank=8))
    choice = EngineChoice("vllm", server_option=("max-num-seqs=4",))
    with open_engine(choice, policy, tmp_path, deadline=7.0) as engine:
        assert isinstance(engine, VllmEngine) and engine.fleet.deadline == 7.0
        assert [server.url for server in engine.fleet.servers] == [started[0].url]
    command = started[0].command
    # Its CPU build ends at a prompt in parts whose request has a seed. What is given comes behind and so wins.
    assert command[command.index("--no-enable-chunked-prefill") :][1:] == ["--max-num-seqs", "4"]
    assert command[command.index("--max-lora-rank") + 1] == "8"
    with pytest.raises(RuntimeError, match="closed"):
        engine.check()
