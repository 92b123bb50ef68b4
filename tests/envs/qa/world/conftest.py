import pytest

from turngym.envs.qa.world import World


@pytest.fixture(scope="session")
def small():
    return World()


@pytest.fixture(scope="session")
def tiny():
    return World(size="tiny")
