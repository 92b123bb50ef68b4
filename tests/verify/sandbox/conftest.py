import pytest

from turngym.tools import process
from turngym.tools.python import server


@pytest.fixture(autouse=True)
def alone():
    """End what earlier tests keep warm: the processes below this one are what is looked at here."""
    for kept in list(server._servers.values()):
        kept.child.close()
    server._servers.clear()
    for workers in [one for one in process._living if isinstance(one, process.Pool)]:
        workers.close()
