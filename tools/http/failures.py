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
    """A request that failed, and `what` happened, without the address.

    `wait`: least seconds before another try, None where that would not help; `status`: of the answer, 0 without one;
    `page`: the beginning of what came with an error, "" without one.
    """

    def __init__(
        self, fault: Fault, what: str, wait: float | None = None, status: int = 0, page: str = ""
    ) -> None:
        super().__init__(what)
        self.fault, self.what, self.wait, self.status, self.page = fault, what, wait, status, page


@dataclass(frozen=True)
class Limits:
    """What a request may take."""

    deadline: float = 10.0  # seconds for all tries together
    tries: int = 4  # the most attempts
    max_bytes: int = 8 * 2**20  # the largest answer, as sent and as unpacked

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ValueError(f"deadline is {self.deadline}; give seconds above 0")


class ShapeError(ValueError):
    """A value that a protocol does not allow; the text names its path."""
