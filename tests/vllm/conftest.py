"""A real vLLM server on the tiny policy, one for all tests here: `make test-vllm`, in an environment with vLLM.

`TURNGYM_VLLM_PYTHON` names an interpreter with vLLM where this one has none.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engines.vllm.server import VllmServer
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy

PYTHON = os.environ.get("TURNGYM_VLLM_PYTHON")
if PYTHON is None and importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]
FOLDER = Path(__file__).parent
NewServer = Callable[..., VllmServer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A server takes a minute to start, and much longer on a busy machine."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session", autouse=True)
def small_server() -> Iterator[None]:
    """A small cache; nothing compiled, which takes longer than these tests; CPU threads that are not pinned."""
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, os.environ.get(name, value))
        yield


@pytest.fixture(scope="session")
def new_server() -> NewServer:
    """Make a server for a policy, not started; its log goes to the folder."""

    def new_server(policy: Policy, folder: Path) -> VllmServer:
        return VllmServer(
            policy,
            log=folder / "vllm.log",
            options=("enforce-eager=true", "max-num-seqs=64", "block-size=32"),
            python=None if PYTHON is None else Path(PYTHON),
            start=1500,
        )

    return new_server


@pytest.fixture(scope="session")
def served_policy() -> Policy:
    """The policy that the server has; tests that change its weights must put them back and leave `version` risen."""
    return load_policy(TINY, lora=LoraOptions(rank=32))


@pytest.fixture(scope="session")
def server(
    new_server: NewServer, served_policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    """A running server."""
    with new_server(served_policy, tmp_path_factory.mktemp("served")) as running:
        yield running
