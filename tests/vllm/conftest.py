"""A real vLLM server on the tiny policy, one for all tests here: `make test-vllm`, in an environment with vLLM.

`TURNGYM_VLLM_PYTHON` names an interpreter with vLLM where this one has none.
"""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turngym.agents.engines.servable import servable
from turngym.agents.engines.server import VllmServer
from turngym.agents.policy import LoraSpec, Policy, load_policy
from turngym.agents.source import TINY

PYTHON = os.environ.get("TURNGYM_VLLM_PYTHON")
if PYTHON is None and importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]
SMALL = ("enforce-eager=true", "max-num-seqs=64")
RANK = 32


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A server takes a minute to start, and much longer on a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session", autouse=True)
def small_server() -> Iterator[None]:
    """A small cache; nothing compiled, which takes longer than these tests; CPU threads that are not pinned."""
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, os.environ.get(name, value))
        yield


@pytest.fixture(scope="session")
def vllm_python() -> Path | None:
    """The interpreter that runs vLLM."""
    return None if PYTHON is None else Path(PYTHON)


@pytest.fixture(scope="session")
def served_policy() -> Policy:
    """The policy that the server has; tests that change its weights must put them back and leave `version` risen."""
    return load_policy(TINY, lora=LoraSpec(rank=RANK))


@pytest.fixture(scope="session")
def server(
    served_policy: Policy, vllm_python: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    """A running server."""
    folder = tmp_path_factory.mktemp("served")
    model = servable(served_policy, folder / "model")
    with VllmServer(
        model, log=folder / "vllm.log", rank=RANK, max_context=1024, options=SMALL, python=vllm_python, start=1500
    ) as running:
        yield running
