import pytest

from turngym.envs.qa.world import InventedWorld


@pytest.fixture(scope="session")
def small():
    return InventedWorld()


@pytest.fixture(scope="session")
def tiny():
    return InventedWorld(size="tiny")
