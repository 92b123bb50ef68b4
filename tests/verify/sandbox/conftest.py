import pytest

from turngym.tests.verify.sandbox import proc
from turngym.tools.python.server import client as server
from turngym.tools.subprocesses import process


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """End what earlier tests keep warm, and look past what they left: here the processes that a test starts are counted."""
    for kept in list(server._servers.values()):
        kept.child.close()
    server._servers.clear()
    for workers in [one for one in process._disowned_after_fork if isinstance(one, process.Pool)]:
        workers.close()
    earlier, read = set(proc.descendants()), proc._read
    monkeypatch.setattr(proc, "_read", lambda pid: None if pid in earlier else read(pid))
