"""The real packages of other people's trainers: `make test-bridges`, in environments that have one each."""

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

collect_ignore_glob = [
    f"test_{name}.py"
    for name in ("openenv", "trl", "verifiers")
    if importlib.util.find_spec(name) is None
]


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serve an application on loopback until the test ends; gives its address."""
    import uvicorn

    running = []

    def begin(application: Any) -> str:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
        thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
        running.append((server, thread, listening))
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield begin
    for server, thread, listening in running:
        server.should_exit = True
        thread.join()
        with closing(listening):
            pass
