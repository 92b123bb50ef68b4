"""A connection of a server: uvicorn's, with timeouts for its client.

This module needs uvicorn, which is an extra: only `server.make_server_with_timeouts` imports it.
"""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from . import server_limits


class ConnectionWithTimeouts(H11Protocol):
    """A connection that is closed when its client makes the server wait for too long.

    uvicorn waits without limit for the head of a request, and for a client to read its answer. Here
    a client may take `server_limits.CLIENT_TIMEOUT` seconds. If there are more than
    `server_limits.CONNECTIONS` connections, the one that has waited longest is closed.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # asyncio reads up to 256 KiB at once, which is much for each of many connections.
        transport.max_size = server_limits.GUARANTEED_BYTES
        self.waiting_since = self.loop.time()  # only valid while `waits_for_client`
        self.check_timeout()
        if len(self.connections) > server_limits.CONNECTIONS:
            self._close_longest_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self.next_check.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        self.next_check.cancel()  # from here on the application is responsible
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    @property
    def waits_for_client(self) -> bool:
        """Whether the server waits for a request, for more of it, or for its answer to be read."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_started

    def check_timeout(self) -> None:
        """Close the connection if its client took too long; else check again later."""
        now = self.loop.time()
        if not self.waits_for_client:
            self.waiting_since = now
        if now < self.waiting_since + server_limits.CLIENT_TIMEOUT:
            delay = server_limits.CLIENT_TIMEOUT / 4
            self.next_check = self.loop.call_later(delay, self.check_timeout)
        else:
            self.transport.abort()

    def _close_longest_waiting(self) -> None:
        """Close the other connection that has waited longest for its client, if any waits."""
        waiting_connections = [
            connection
            for connection in self.connections
            if isinstance(connection, ConnectionWithTimeouts)
            and connection is not self
            and connection.waits_for_client
        ]
        if waiting_connections:
            longest_waiting = min(
                waiting_connections, key=lambda connection: connection.waiting_since
            )
            self.connections.discard(longest_waiting)
            longest_waiting.transport.abort()
