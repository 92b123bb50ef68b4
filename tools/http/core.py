"""Failures of a request, and its limits."""

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

    Attributes:
        fault: The kind of failure.
        what: A description, without the address.
        wait: Least seconds before another try; None where another try would not help.
        status: The status of the answer, 0 where there was none.
    """

    def __init__(self, fault: Fault, what: str, wait: float | None = None, status: int = 0) -> None:
        super().__init__(what)
        self.fault, self.what, self.wait, self.status = fault, what, wait, status


@dataclass(frozen=True)
class Limits:
    """What a request may take.

    Attributes:
        deadline: Seconds for all tries together.
        tries: The most attempts.
        max_bytes: The largest answer, as sent and as unpacked.
    """

    deadline: float = 10.0
    tries: int = 4
    max_bytes: int = 8 * 2**20

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ValueError(f"deadline is {self.deadline}; give seconds above 0")
        for name in ("tries", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")
