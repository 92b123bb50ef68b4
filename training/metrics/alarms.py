"""Alarms: signs in the metrics of a run that it goes wrong.

An alarm depends on lines of metrics alone, and nothing depends on an alarm, so a run that was resumed raises the same
ones. The limits are ours, from no paper; they were set on runs of small policies and of SmolLM2-135M.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

_Behaviour = Literal[
    "early-collapse", "entropy-collapse", "entropy-explosion", "gibberish", "length-explosion"
]
Kind = Literal[
    _Behaviour, "entropy-eruption", "silent-tools", "silent-groups", "clipping", "cut-turns"
]
ACTIONS, TOKENS = "action_entropy/", "entropy_turn/"  # behind them the turn
WINDOW = 5  # lines whose mean is a level
FEW, SOON = 3, 12  # lines whose mean is a level at the beginning, which is so many lines long
OPEN = 0.3  # nats: a policy that begins with less was made certain before, and may go on so
COLLAPSED, EXPLODED = 0.2, 2.0  # times the early level
ERUPTED, CYCLES = 2.0, 2  # times the level before, and how often it has subsided as far again
LEAST = 0.1  # nats: less than this is no early level to fall from, and as much as this is none to explode from
SPREAD, CIRCLING = (
    3.5,
    0.5,
)  # nats a token (a perplexity of 33), and share of runs of tokens: no text is like that
LONGER, LONG = 2.0, 32  # times the early length, and tokens: less is not long
GAIN = 0.05  # share of successes: with so many more than at first a policy learns
GONE, USED = 0.1, 0.1  # share that is left of a level of at least USED
SILENT = 0.8  # share of groups
CLIPPED = 0.1  # share of slots
CUT, CUT_AT_ONCE = 0.2, 0.5  # share of turns: the mean of a window, and of a validation
ADVICE: dict[Kind, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))  # type: ignore[assignment]
SHARES: dict[str, tuple[Kind, float]] = {  # metrics, and the limit of their means
    "silent_groups": ("silent-groups", SILENT),
    "clip_": ("clipping", CLIPPED),
    "turns/cut": ("cut-turns", CUT),
}


@dataclass(frozen=True)
class Level:
    """A metric past its limit: its mean over the last `WINDOW` lines, or that of a validation."""

    metric: str
    value: float
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} is {self.value:.3g} (limit {self.limit:.3g})"


@dataclass(frozen=True)
class Alarm:
    """A warning: its kind, what was measured, and what to do."""

    kind: Kind
    levels: tuple[Level, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(map(str, self.levels))}; {ADVICE[self.kind]}"


def alarms(lines: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """Return what is wrong at the last of a run's `lines`, in the order of `ADVICE`; refused steps count for nothing.

    early-collapse: in the first SOON lines, entropy of a turn's tokens below COLLAPSED times that of the first FEW
    entropy-collapse: entropy of a turn's actions below COLLAPSED times its early level, and falling, while the policy
        does not learn; that of its tokens where no siblings were ever compared, as free text can keep tokens open when
        every action is the same
    entropy-explosion: entropy of a turn's tokens above EXPLODED times its early level, and rising
    entropy-eruption: the entropy of all tokens has erupted and subsided CYCLES times or more, by ERUPTED each time, as
        it does where agents learn and degenerate texts stay (the abstract of arXiv 2605.27954; the limits are ours)
    gibberish: entropy of a token above SPREAD, or more than CIRCLING of the runs of tokens said before in their turn
    length-explosion: turns LONGER times as long as early ones, at least LONG, still growing, and no more successful
    silent-tools: calls a path, or the share of them that is ok, at GONE of what it was when it was highest
    silent-groups: more than SILENT of the groups teach nothing
    clipping: more than CLIPPED of the slots, of all or of a turn, are past one bound of the ratio
    cut-turns: more than CUT of the turns ended at the token limit, or more than CUT_AT_ONCE of those of a validation

    Early are a metric's first `WINDOW` numbers; a later window that misses one has no level: rare turns are too noisy.
    """
    taken = [line for line in lines if line.get("refused") == ""]
    found: dict[Kind, list[Level]] = {kind: [] for kind in ADVICE}
    compared = {name for line in taken for name in line if name.startswith(ACTIONS)}
    learns = _learns(taken)
    for name in taken[-1] if taken else ():
        share, open_ = (
            SHARES.get("clip_" if name.startswith("clip_") else name),
            name.startswith((ACTIONS, TOKENS)),
        )
        if not (share or open_ or name in ("tool_calls_path", "tool_ok")):
            continue
        values = [_number(line, name) for line in taken]
        finite = [value for value in values if math.isfinite(value)]
        before, now = _mean(values[-2 * WINDOW : -WINDOW]), _mean(values[-WINDOW:])
        if share and now > share[1]:
            found[share[0]].append(Level(name, now, share[1]))
        elif open_:
            early = _mean(finite[:WINDOW])
            low, high = COLLAPSED * early, EXPLODED * max(early, LEAST)
            told = name.startswith(ACTIONS) or name.replace(TOKENS, ACTIONS) not in compared
            if told and early >= LEAST and low > now < before and not learns:
                found["entropy-collapse"].append(Level(name, now, low))
            if name.startswith(TOKENS) and high < now > before:
                found["entropy-explosion"].append(Level(name, now, high))
        elif (
            not share
            and (highest := _mean(sorted(finite)[-WINDOW:])) >= USED
            and now < GONE * highest
        ):
            found["silent-tools"].append(Level(name, now, GONE * highest))
    for kind, level in _of_text(taken):
        found[kind].append(level)
    if lines and (now := _number(lines[-1], "valid/cut")) > CUT_AT_ONCE:
        found["cut-turns"].append(Level("valid/cut", now, CUT_AT_ONCE))
    return [Alarm(kind, tuple(levels)) for kind, levels in found.items() if levels]


def _of_text(taken: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Kind, Level]]:
    """Yield what is wrong with what the policy says at the last of the lines, whoever it is and whatever it may do."""
    for name in taken[-1] if 0 < len(taken) <= SOON else ():
        values = [_number(line, name) for line in taken] if name.startswith(TOKENS) else []
        early, now = _mean(values[:FEW], FEW), _mean(values[-FEW:], FEW)
        if len(values) > FEW and early >= OPEN and now < COLLAPSED * early:
            yield "early-collapse", Level(name, now, COLLAPSED * early)
    for name, limit in (("entropy", SPREAD), ("repetition", CIRCLING)):
        if (now := _mean([_number(line, name) for line in taken[-WINDOW:]])) > limit:
            yield "gibberish", Level(name, now, limit)
    if (count := eruptions([_number(line, "entropy") for line in taken])) >= CYCLES:
        yield "entropy-eruption", Level("eruptions of entropy", count, CYCLES)
    length = [_number(line, "turns/length") for line in taken]
    limit, before = max(LONGER * _mean(length[:WINDOW]), LONG), _mean(length[-2 * WINDOW : -WINDOW])
    if limit < (now := _mean(length[-WINDOW:])) > before and not _learns(taken):
        yield "length-explosion", Level("turns/length", now, limit)


def eruptions(values: Sequence[float]) -> int:
    """Return how often entropies (nats) rose to `ERUPTED` times what they were, and subsided again as far."""
    count, up, edge = 0, False, math.inf
    for end in range(FEW, len(values) + 1):
        level = _mean(values[end - FEW : end], FEW)
        if not math.isfinite(level):
            continue
        edge = max(edge, level) if up else min(edge, level)
        if not up and level > max(ERUPTED * edge, LEAST):
            up, edge = True, level
        elif up and level < edge / ERUPTED:
            count, up, edge = count + 1, False, level
    return count


def _learns(taken: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether there are more successes than at first, and at least half of what was gained is still there."""
    success = [_number(line, "success") for line in taken]
    past = [_mean(success[end - WINDOW : end]) for end in range(WINDOW, len(success) + 1)]
    return bool(past) and past[-1] - past[0] > max(GAIN, (max(past) - past[0]) / 2)


def _number(line: Mapping[str, Any], name: str) -> float:
    value = line.get(name)
    return math.nan if value is None else float(value)


def _mean(values: Sequence[float], lines: int = WINDOW) -> float:
    return fmean(values) if len(values) == lines else math.nan
