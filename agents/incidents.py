"""What went wrong on the way and was dealt with: data for `incidents.jsonl`, never for the journal.

The journal of a run depends on its keys and weights alone, so a retried failure or a refused update is written down
here instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Incident:
    """One incident.

    kind: `retry` (a failed path begins again with the same key), `failed` (a path has failed for good), `stall`
        (nothing moves, but no deadline has passed yet), `close` (an environment could not be closed), `refused` (an
        update was not applied), `checkpoint` (a damaged one was passed over), `alarm` (metrics say that a run goes
        wrong).
    what: The thing and what is wrong with it.
    key: (seed, step, task, branch) as far as they apply.
    """

    kind: str
    what: str
    key: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"kind": self.kind, "what": self.what, "key": list(self.key)}


OnIncident = Callable[[Incident], None]


def ignore(incident: Incident) -> None:
    """Do nothing: for callers that write no run folder."""
