"""What must hold for a hostile completion of a search agent: predicates of graders, of searches, and of visits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turngym.tests.verify.grader import predicates
from turngym.tests.verify.grader.predicates import Seen

LONGEST = 4096  # characters of a query that a back end may be asked
SHOWN = 256 * 1024  # bytes of an observation
MEMORY = 32 * 2**20  # bytes that an episode may take at its peak
SECONDS = {
    False: predicates.SECONDS,
    True: 11.0,
}  # that a turn may take, without a visit and with one
FIELDS = frozenset(
    [
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    ]
)


@dataclass(frozen=True)
class Searched:
    """What one process saw of one completion.

    Args:
        seen: What a grader's harness sees, too; its calls are searches.
        queries: What the back end was asked.
        fields: The names of the header fields of those requests.
        status: How the visit ended; None where there was none.
        shown: Bytes of the observation.
        away: The addresses, other than the harness's own, that a connection was tried to.
        hops: How many pages of the harness's own server were asked for.
        memory: Bytes at the peak.
        gold: Whether a gold answer that the agent did not write itself is in what it was shown.
    """

    seen: Seen = field(default_factory=Seen)
    queries: Sequence[str] = ()
    fields: Sequence[str] = ()
    status: str | None = None
    shown: int = 0
    away: Sequence[str] = ()
    hops: int = 0
    memory: int = 0
    gold: bool = False


Check = Callable[[re.Match[str], Searched], bool]


def _most(match: re.Match[str], count: int) -> bool:
    return count <= int(match["n"]) if "<" in match["sign"] else count == int(match["n"])


def _blocked(_: re.Match[str], one: Searched) -> bool:
    return one.status != "ok" and not one.away and not one.seen.raised


_COUNT = r"(?P<sign><?=)(?P<n>\d+)"
_CHECKS: tuple[tuple[str, Check], ...] = (
    (
        r"reward<(?P<n>\d+(?:\.\d+)?)",
        lambda m, one: one.seen.score is not None and one.seen.score < float(m["n"]),
    ),
    (f"searches_run{_COUNT}", lambda m, one: _most(m, len(one.queries))),
    ("query_capped", lambda _, one: all(len(query) <= LONGEST for query in one.queries)),
    (
        "no_header_injection",
        lambda _, one: set(one.fields) <= FIELDS and len(one.fields) == len(set(one.fields)),
    ),
    ("blocked", _blocked),
    ("capped|obs_cap", lambda _, one: one.shown <= SHOWN and one.memory <= MEMORY),
    ("deadline", lambda _, one: one.seen.seconds <= SECONDS[one.status is not None]),
    ("mem_cap", lambda _, one: one.memory <= MEMORY),
    (r"hops(?P<sign><?=)(?P<n>\d+)", lambda m, one: _most(m, max(one.hops - 1, 0))),
    ("no_gold_in_obs", lambda _, one: not one.gold),
)
_SAME = {"no_control_ids": "no_control_ids_from_text"}  # two names of one predicate


def check_known(where: str, predicate: str) -> None:
    """Raise ValueError if nothing here can tell whether `predicate` holds."""
    if _find(predicate) is None:
        try:
            predicates.check_known(where, _SAME.get(predicate, predicate))
        except ValueError as error:
            known = ", ".join(re.split(r"[(\W]", pattern)[0] for pattern, _ in _CHECKS)
            raise ValueError(f"{error}, {known}") from None


def holds(predicate: str, seen: Sequence[Searched]) -> bool:
    """Return whether `predicate` is known and holds for all that was seen of one completion; never for nothing seen."""
    if found := _find(predicate):
        match, check = found
        return bool(seen) and all(check(match, one) for one in seen)
    return predicates.holds(_SAME.get(predicate, predicate), [one.seen for one in seen])


def _find(predicate: str) -> tuple[re.Match[str], Check] | None:
    for pattern, check in _CHECKS:
        if match := re.fullmatch(pattern, predicate):
            return match, check
    return None
