"""The limits of our servers, against clients that are slow, many or large."""

HEAD = 16 * 2**10  # bytes of a request's head
SMALL = 64 * 2**10  # bytes that a request or an answer may have in memory in any case
# Bytes that are read of a request that is refused: many clients send all of it before they read.
SWALLOWED = 8 * 2**20
PART = 64 * 2**10  # bytes of an answer that are sent at once
CONNECTIONS = 512
PATIENCE = 30.0  # seconds that a client may take for a request, and for taking its answer
GRACE = 1  # seconds that requests under way get when the server stops
