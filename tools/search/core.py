"""What a search back end is: a query and a number go in, passages come out, best first."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ..core import ToolFailure


@dataclass(frozen=True)
class Passage:
    """A piece of a corpus; `score` says how well it fits a query, in the back end's own unit."""

    id: str
    title: str
    text: str
    score: float = 0.0


class Fault(StrEnum):
    """Why a back end gave no passages."""

    CONNECT = "connect"  # it could not be reached, or the connection broke
    TIMEOUT = "timeout"  # it did not answer in time
    STATUS = "status"  # it answered with an error
    TOO_LARGE = "too_large"  # its answer is larger than allowed
    MALFORMED = "malformed"  # its answer is not what its protocol says


class SearchFailure(ToolFailure):
    """A search that could not be run, through no fault of the agent."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Retriever(Protocol):
    """A back end. `search` may be called from any thread, by many at once."""

    @property
    def name(self) -> str:
        """What is searched, for messages."""

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; raises `SearchFailure` when the back end cannot answer."""

    def close(self) -> None:
        """Release what it holds; it may be called twice."""
