import pytest

from turngym.tools.python.server import client as server
from turngym.tools.subprocesses import process


@pytest.fixture(autouse=True)
def alone():
    """End what earlier tests keep warm: the processes below this one are what is looked at here."""
    for kept in list(server._servers.values()):
        kept.child.close()
    server._servers.clear()
    for workers in [one for one in process._living if isinstance(one, process.Pool)]:
        workers.close()
