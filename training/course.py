"""The course of a finished run, read from its folder: held-out success, what was spent by then, entropy by turn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from .logbook import METRICS

TURN = "entropy_turn/"


@dataclass(frozen=True)
class Spent:
    """What training has cost by the end of some step. Validations are not counted."""

    steps: int = 0
    tokens: int = 0  # drawn by the policy, those of probes too
    tool_calls: int = 0
    turns: int = 0  # of the agent; turns that paths share count once
    seconds: float = 0.0  # rollout and update, of the steps whose time is known
    untimed: int = 0  # steps whose time was lost with the process that took them

    def after(self, line: dict[str, Any]) -> Spent:
        """Return what is spent after the step of a line of metrics."""
        seconds = line["seconds"]
        return Spent(
            self.steps + 1,
            self.tokens + line["tokens"],
            self.tool_calls + line["tool_calls"],
            self.turns + round((line["turns"] or 0.0) * line["paths"]),
            self.seconds + (seconds or 0.0),
            self.untimed + (seconds is None),
        )


@dataclass(frozen=True)
class Validation:
    """Held-out success after some training."""

    spent: Spent
    success: float
    episodes: int  # that were scored

    @property
    def won(self) -> int:
        """Return how many episodes succeeded."""
        return round(self.success * self.episodes)


@dataclass(frozen=True)
class Entropy:
    """The mean entropy of one turn index (nats), step by step."""

    values: dict[int, float]  # by step; steps in which no path came so far are left out

    @property
    def mean(self) -> float:
        """Return the mean over the steps."""
        return fmean(self.values.values())

    @property
    def variance(self) -> float | None:
        """Return the variance between steps, trend included; None of fewer than two."""
        return variance(self.values.values()) if len(self.values) > 1 else None

    @property
    def jumps(self) -> float | None:
        """Return half the mean squared change from a step to the next, which is the variance without the trend.

        von Neumann et al., Annals of Mathematical Statistics 12 (1941). None where no two steps follow each other.
        """
        near = [(b - a) ** 2 for (s, a), (t, b) in pairwise(sorted(self.values.items())) if t == s + 1]
        return fmean(near) / 2 if near else None


@dataclass(frozen=True)
class Course:
    """A run: its validations in order, the first before training, and its entropies by turn index."""

    validations: tuple[Validation, ...]
    spent: Spent
    entropy: dict[int, Entropy]

    def reached(self, success: float) -> Spent | None:
        """Return what was spent when a validation first showed `success`; None where none did."""
        return next((found.spent for found in self.validations if found.success >= success), None)


def read_course(folder: Path) -> Course:
    """Return the course of the run in `folder`.

    Raises:
        OSError, ValueError: its metrics cannot be read.
    """
    spent, validations, entropy = Spent(), list[Validation](), dict[int, dict[int, float]]()
    for text in (folder / METRICS).read_text("utf-8").splitlines():
        line = json.loads(text)
        if line["step"]:
            spent = spent.after(line)
        for name, value in line.items():
            if name.startswith(TURN) and value is not None:
                entropy.setdefault(int(name.removeprefix(TURN)), {})[line["step"]] = value
        if "valid/success" in line:
            validations.append(Validation(spent, line["valid/success"], line["valid/episodes"]))
    return Course(tuple(validations), spent, {turn: Entropy(values) for turn, values in sorted(entropy.items())})
