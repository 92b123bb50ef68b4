"""What a search task is: a question, and what a retrieval report and an expert with gold queries need."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..tasks import Task


@dataclass(frozen=True)
class QATask(Task):
    """A question to answer with searches.

    Args:
        passages: The ids of the gold passages, which together give the answer; empty where they are unknown.
        queries: Searches that show them, in order; none holds the answer. Empty where they are unknown.
    """

    passages: tuple[str, ...] = field(default=(), repr=False)
    queries: tuple[str, ...] = field(default=(), repr=False)
