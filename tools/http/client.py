"""A client for threads: pooled connections, one deadline a request, bounded sizes.

The deadline covers a whole request: name lookup, waiting for a connection, each byte both ways, and all tries. Timeouts
of sockets cannot promise that, since a server that sends a byte a second restarts them with each. So requests run on an
event loop in a thread of the client's, where they can be cancelled at any point.
"""

import asyncio
import os
import threading
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from .connections import Connections, retried, split_url
from .core import Fault, HttpFailure, Limits, Node, ShapeError, parse, serialize

PROBE = 1.5  # seconds in which a server must show that it is there


class JsonClient:
    """Sends and receives JSON, from any thread; it may be used again in a forked process, with connections of its own.

    Args:
        url: `http(s)://[user:password@]host[:port][/path]`; user and password are sent as basic authentication.
        path: Added to the URL.
        authorization: The value of that header, in place of one from the URL; never shown.
        limits: For each request.

    Raises:
        ValueError: The URL is none, or no header can carry the authorization.
    """

    _lock: threading.Lock
    _runner: "_Runner | None"

    def __init__(self, url: str, path: str = "", *, authorization: str = "", limits: Limits | None = None) -> None:
        base, secret = split_url(url)
        self.url, self.limits = base + path, limits or Limits()
        self._secret = authorization or secret
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ValueError(f"the secret for {self.url} holds characters that no header can carry")
        self._closed = False
        self._reset()
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<client of {self.url}>"

    def post(self, body: Any) -> Node:
        """Send `body` and return the answer; raises `HttpFailure`."""
        answer = self._send("POST", self.url, serialize(body), self.limits)
        try:
            return Node(parse(answer))
        except ShapeError as error:
            raise HttpFailure(Fault.MALFORMED, str(error)) from None

    def probe(self, query: str = "") -> None:
        """Raise `HttpFailure` unless a server answers soon that something takes requests at the URL."""
        try:
            self._send("GET", self.url + query, b"", Limits(PROBE, 1, self.limits.max_bytes))
        except HttpFailure as failure:
            # A server that takes only POST there says so; one that has no such path says 404.
            if not 400 <= failure.status < 500 or failure.status in (401, 403, 404, 407):
                raise

    def close(self) -> None:
        """Cancel requests under way and close all connections; it may be called twice."""
        with self._lock:
            self._closed, runner, self._runner = True, self._runner, None
        if runner is not None:
            runner.stop(wait=True)

    def _reset(self) -> None:
        self._lock, self._runner = threading.Lock(), None

    def _send(self, method: str, url: str, content: bytes, limits: Limits) -> bytes:
        with self._lock:
            if self._closed:
                raise HttpFailure(Fault.CONNECT, "the client is closed")
            if self._runner is None:
                headers = {"Authorization": self._secret} if self._secret else {}
                self._runner = _Runner(Connections(secure=self.url.startswith("https:"), headers=headers))
                weakref.finalize(self, self._runner.stop).atexit = False  # for who forgets to close it
            connections = self._runner.connections
            request = connections.request(method, url, content)
            sending = retried(lambda: connections.send(request, limits.max_bytes), limits)
            future = asyncio.run_coroutine_threadsafe(sending, self._runner.loop)
        try:
            return future.result()
        except CancelledError:
            raise HttpFailure(Fault.CONNECT, "the client was closed meanwhile") from None
        except HttpFailure as failure:
            if self._secret:
                failure.what = failure.what.replace(self._secret, "…")
                failure.args = (failure.what,)
            raise
        finally:
            future.cancel()  # where the caller was interrupted


class _Runner:
    """An event loop in a daemon thread, with the connections that live on it."""

    def __init__(self, connections: Connections) -> None:
        self.loop, self.connections = asyncio.new_event_loop(), connections
        self._thread = threading.Thread(target=self._run, name="turngym-http", daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """Cancel all requests and end; it may be called twice."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.loop.stop)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        own = asyncio.current_task()
        for request in asyncio.all_tasks() - {own}:
            request.cancel()
        while left := asyncio.all_tasks() - {own}:
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0)  # a cancelled request has yet to begin the task that ends its body
        await self.connections.aclose()
        await self.loop.shutdown_asyncgens()


_clients: weakref.WeakSet[JsonClient] = weakref.WeakSet()
_inherited: list[Any] = []


def _reset_after_fork() -> None:
    """Leave the event loops of the parent process alone: it goes on using their sockets."""
    for client in list(_clients):
        _inherited.append(client._runner)
        client._reset()


os.register_at_fork(after_in_child=_reset_after_fork)
