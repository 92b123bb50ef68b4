"""The limits of our servers, against clients that are slow, many or large."""

MAX_HEAD_BYTES = 16 * 2**10  # bytes of a request's head
# Bytes that each request and answer may have in memory, however much the others have.
GUARANTEED_BYTES = 64 * 2**10
# Bytes of a refused request that are read: many clients send all of it before they read the answer.
MAX_DISCARDED_BYTES = 8 * 2**20
BYTES_PER_SEND = 64 * 2**10  # bytes of an answer that are sent at once
CONNECTIONS = 512
CLIENT_TIMEOUT = 30.0  # seconds that a client may take to send a request, and to read its answer
GRACE = 1  # seconds in which running requests may finish when the server stops
