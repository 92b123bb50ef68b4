"""What must hold for a hostile completion, as predicates over what was seen when it was graded in fresh processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SECONDS = 5.0  # that grading one completion may take, from the start of its grading


@dataclass(frozen=True)
class Seen:
    """What one process saw of one completion.

    Args:
        score: The reward; None where there is none: the episode goes on, or something was raised.
        seconds: How long the grading took.
        raised: What came out of the grader or the environment instead of a result.
        next_ok: Whether a right and a wrong answer after it were graded as ever.
        refused: Whether the grader and the loader of task files both refuse the gold.
        executed: What the grading made this process run or start.
        files: What appeared, changed or disappeared in its folders.
        calls: How often the tool was called; `most_calls` is how often it could be in the episode.
        turns: How many turns the episode had; None while it goes on.
        cut: Whether nothing behind the first call counted.
        error: Whether the agent was told of an error.
        control: How many control tokens the texts of the turn are encoded with.
        limits: Whether the limits of the tool and of the episode are unchanged.
    """

    score: float | None = None
    seconds: float = 0.0
    raised: str = ""
    next_ok: bool = False
    refused: bool = False
    executed: Sequence[str] = ()
    files: Sequence[str] = ()
    calls: int = 0
    most_calls: int = 0
    turns: int | None = None
    cut: bool = False
    error: bool = False
    control: int = 0
    limits: bool = True


Check = Callable[[re.Match[str], Sequence[Seen]], bool]


def _each(holds: Callable[[Seen], bool]) -> Check:
    return lambda _, seen: all(map(holds, seen))


def _reward(match: re.Match[str], seen: Sequence[Seen]) -> bool:
    if match["score"] == "any":
        return all(not one.raised for one in seen)
    return all(one.score == float(match["score"]) for one in seen)


def _stable(_: re.Match[str], seen: Sequence[Seen]) -> bool:
    return len({(one.score, one.calls, one.turns) for one in seen}) == 1 and not any(
        one.raised for one in seen
    )


def _counted(of: Callable[[Seen], int | None]) -> Check:
    def check(match: re.Match[str], seen: Sequence[Seen]) -> bool:
        for one in seen:
            count, most = of(one), one.most_calls if match["n"] == "max_calls" else int(match["n"])
            if count is None or not (count <= most if match["sign"] == "<=" else count == most):
                return False
        return True

    return check


_CHECKS: tuple[tuple[str, str, Check], ...] = (  # a name, what may follow it, and what it means
    ("reward", r"=(?P<score>any|\d+(?:\.\d+)?)", _reward),
    ("stable", "", _stable),
    ("rejected_gold", "", _each(lambda one: one.refused)),
    ("deadline", "", _each(lambda one: one.seconds <= SECONDS)),
    ("no_crash", "", _each(lambda one: not one.raised)),
    ("next_ok", "", _each(lambda one: one.next_ok)),
    ("no_exec", "", _each(lambda one: not one.executed)),
    ("fs_clean", "", _each(lambda one: not one.files)),
    ("calls_run", r"(?P<sign><?=)(?P<n>\d+|max_calls)", _counted(lambda one: one.calls)),
    ("cut_after_first_call", "", _each(lambda one: one.cut)),
    ("turns", r"(?P<sign><?=)(?P<n>\d+)", _counted(lambda one: one.turns)),
    ("no_control_ids_from_text", "", _each(lambda one: not one.control)),
    ("error_observed", "", _each(lambda one: one.error)),
    ("limits_unchanged", "", _each(lambda one: one.limits)),
)
_CONDITION = " when a box is required"  # as it always is


def check_known(where: str, predicate: str) -> None:
    """Raise ValueError if nothing here can tell whether `predicate` holds."""
    if _find(predicate) is None:
        known = ", ".join(name for name, _, _ in _CHECKS)
        raise ValueError(f"{where}: unknown predicate {predicate!r}; known are {known}")


def holds(predicate: str, seen: Sequence[Seen]) -> bool:
    """Return whether `predicate` is known and holds for all that was seen of one completion; never for nothing seen."""
    found = _find(predicate)
    return found is not None and bool(seen) and found[1](found[0], seen)


def _find(predicate: str) -> tuple[re.Match[str], Check] | None:
    for name, rest, check in _CHECKS:
        if match := re.fullmatch(name + rest, predicate.removesuffix(_CONDITION)):
            return match, check
    return None
