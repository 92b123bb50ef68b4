"""The server's end of an HTTP connection: whole requests of bounded size, and JSON answers; h11 keeps the rules."""

import asyncio
from typing import Any

import h11

BODY = 4 * 2**20  # bytes of a request
HEAD = 64 * 2**10  # bytes of its head


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Wire:
    """One connection, as requests and answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)

    async def receive(self) -> tuple[h11.Request, bytes] | None:
        """The next request with its body, None where there is none; raises `Refusal`."""
        request, body = None, bytearray()
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(2**16))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY:
                    raise Refusal(413, f"the body has more than {BODY} bytes; send fewer queries at once")
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return request, bytes(body)
            else:
                return None

    async def send(self, body: bytes, refusal: Refusal | None, *, last: bool) -> bool:
        """Send JSON, with the status of a refusal or 200; whether the connection can go on."""
        status, headers = (refusal.status, refusal.headers) if refusal else (200, ())
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]
        fields += [("Connection", "close")] if last else []
        response = h11.Response(status_code=status, headers=fields)
        await self._write(response, h11.Data(data=body), h11.EndOfMessage())
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def _next(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, f"this is not HTTP: {error}") from None

    async def _write(self, *events: Any) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()
