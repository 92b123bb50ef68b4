"""Alarms: signs in the metrics that a run goes wrong, and what to do about each.

Invariant: an alarm depends on lines of metrics alone, and nothing depends on an alarm, so a run that was resumed raises
the same ones. The limits are ours, from no paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import fmean
from typing import Any, Literal

Kind = Literal["entropy-collapse", "entropy-explosion", "silent-tools", "silent-groups", "clipping", "cut-turns"]
Line = Mapping[str, Any]

WINDOW = 5  # lines whose mean is a level
COLLAPSED, EXPLODED = 0.2, 2.0  # times the early level
LEAST = 0.1  # nats: less than this is no early level to fall from, and as much as this is none to explode from
GONE, USED = 0.1, 0.1  # share that is left of a level of at least USED
SILENT = 0.8  # share of groups
CLIPPED = 0.1  # share of slots
CUT, CUT_AT_ONCE = 0.2, 0.5  # share of turns: the mean of a window, and of a validation

ADVICE: dict[Kind, str] = {
    "entropy-collapse": "hold the entropy of each turn with --method …,turn-pi, or draw with a higher --temperature",
    "entropy-explosion": "hold the entropy of each turn with --method …,turn-pi, or lower --lr",
    "silent-tools": "hold the entropy of calls with --method …,turn-pi:axis=phase, or lower --lr; where answers do as "
    "well without the tool, choose tasks that need it",
    "silent-groups": "draw others in place of tasks that teach nothing with --method dapo, raise --group, or choose "
    "tasks that succeed about half the time (--difficulty)",
    "clipping": "take fewer --updates on a rollout, or lower --lr",
    "cut-turns": "the policy cannot finish what it says: allow longer turns with a higher --max-tokens",
}


@dataclass(frozen=True)
class Level:
    """A metric past its limit: its mean over the last `WINDOW` lines, or that of a validation."""

    metric: str
    value: float
    limit: float

    def __str__(self) -> str:
        """Return it as text."""
        return f"{self.metric} is {self.value:.3g} (limit {self.limit:.3g})"


@dataclass(frozen=True)
class Alarm:
    """A warning: its kind, what was measured, and what to do."""

    kind: Kind
    levels: tuple[Level, ...]

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.kind}: {', '.join(map(str, self.levels))}; {ADVICE[self.kind]}"


def alarms(lines: Sequence[Line]) -> list[Alarm]:
    """Return what is wrong at the last of a run's `lines`, in the order of `ADVICE`; refused steps count for nothing.

    entropy-collapse: entropy of a turn below COLLAPSED times its early level, and falling
    entropy-explosion: above EXPLODED times it, and rising
    silent-tools: calls a path, or the share of them that is ok, at GONE of what it was when it was highest
    silent-groups: more than SILENT of the groups teach nothing
    clipping: more than CLIPPED of the slots, of all or of a turn, are past one bound of the ratio
    cut-turns: more than CUT of the turns ended at the token limit, or more than CUT_AT_ONCE of those of a validation
    """
    taken = [line for line in lines if line.get("refused") == ""]
    found: dict[Kind, list[Level]] = {
        "entropy-collapse": list(_moved(taken, up=False)),
        "entropy-explosion": list(_moved(taken, up=True)),
        "silent-tools": list(_silent_tools(taken)),
        "silent-groups": list(_above(taken, ("silent_groups",), SILENT)),
        "clipping": list(_above(taken, _names(taken, "clip_"), CLIPPED)),
        "cut-turns": list(_above(taken, ("turns/cut",), CUT)),
    }
    if lines and (now := _number(lines[-1], "valid/cut")) > CUT_AT_ONCE:
        found["cut-turns"].append(Level("valid/cut", now, CUT_AT_ONCE))
    return [Alarm(kind, tuple(levels)) for kind, levels in found.items() if levels]


def begun(found: Iterable[Alarm], past: Sequence[Line]) -> tuple[Alarm, ...]:
    """Return the alarms of a kind that no `past` line names: each is reported once a run."""
    known = {kind for line in past for kind in line.get("alarms", ())}
    return tuple(alarm for alarm in found if alarm.kind not in known)


def _moved(lines: Sequence[Line], up: bool) -> Iterable[Level]:
    """Yield the turns whose entropy has collapsed, or exploded if `up`, and still goes that way."""
    for name in _names(lines, "entropy_turn/"):
        early, before, now = _levels(lines, name)
        limit = EXPLODED * max(early, LEAST) if up else COLLAPSED * early
        if (isfinite(early) and limit < now > before) if up else (early >= LEAST and limit > now < before):
            yield Level(name, now, limit)


def _silent_tools(lines: Sequence[Line]) -> Iterable[Level]:
    for name in ("tool_calls_path", "tool_ok"):
        highest = _mean(sorted(_finite(lines, name))[-WINDOW:])
        now = _mean([_number(line, name) for line in lines[-WINDOW:]])
        if highest >= USED and now < GONE * highest:
            yield Level(name, now, GONE * highest)


def _above(lines: Sequence[Line], names: Iterable[str], limit: float) -> Iterable[Level]:
    for name in names:
        if (now := _mean([_number(line, name) for line in lines[-WINDOW:]])) > limit:
            yield Level(name, now, limit)


def _names(lines: Sequence[Line], prefix: str) -> list[str]:
    return [name for name in (lines[-1] if lines else {}) if name.startswith(prefix)]


def _levels(lines: Sequence[Line], name: str) -> tuple[float, float, float]:
    """Return a metric's level early on, in the window before the last, and now.

    Early are its first `WINDOW` numbers; a window that misses one has no level (NaN): rare turns are too noisy.
    """
    last = [_number(line, name) for line in lines[-2 * WINDOW :]]
    return _mean(_finite(lines, name)[:WINDOW]), _mean(last[:-WINDOW]), _mean(last[-WINDOW:])


def _finite(lines: Sequence[Line], name: str) -> list[float]:
    return [value for value in (_number(line, name) for line in lines) if isfinite(value)]


def _number(line: Line, name: str) -> float:
    value = line.get(name)
    return nan if value is None else float(value)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if len(values) == WINDOW else nan
