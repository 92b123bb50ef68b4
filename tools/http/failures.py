"""How a request can fail, as typed data, and the limits on an answer."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Why a server gave no usable answer."""

    CONNECT = "connect"  # it could not be reached, or the connection broke
    TIMEOUT = "timeout"  # it did not answer in time
    STATUS = "status"  # it answered with an error
    TOO_LARGE = "too_large"  # its answer is larger than allowed
    MALFORMED = "malformed"  # its answer is not what its protocol prescribes


class HttpFailure(Exception):
    """A request that failed.

    Args:
        fault: The type of the failure.
        what: The message, without the server's address.
        wait: The least seconds before a retry; None if a retry would not help.
        status: The HTTP status of the answer; 0 if there was none.
        page: The beginning of the body of an error answer; "" if there was none.
    """

    def __init__(
        self, fault: Fault, what: str, wait: float | None = None, status: int = 0, page: str = ""
    ) -> None:
        super().__init__(what)
        self.fault = fault
        self.what = what
        self.wait = wait
        self.status = status
        self.page = page


@dataclass(frozen=True)
class Limits:
    """The limits of a request."""

    deadline: float = 10.0  # seconds for all tries together
    tries: int = 4  # the most attempts
    max_bytes: int = 8 * 2**20  # the largest answer, as sent and as decompressed

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ValueError(f"deadline is {self.deadline}; give seconds above 0")


class ShapeError(ValueError):
    """A value that a protocol does not allow; the message has its path."""
