"""The results of each method of a comparison: means over the seeds that finished, each with its denominator.

A finished run is read from its folder: held-out success, what was spent by then, entropy by turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from itertools import pairwise
from operator import add
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from ...agents.evaluation.scores import Interval, interval
from ...agents.evaluation.statistics import Estimate, mean_of
from ..runs.folder import METRICS
from .effect import Effect, read_effect
from .plan import Comparison

TURN = "entropy_turn/"
ACTIONS = ("action_entropy", "decision_entropy", "valid_actions", "surprise", "mutual_information")
SMALLEST_PERCENT = 0.001  # that is written out
COSTS = ("steps", "tokens", "tool_calls", "turns", "seconds")
PARTS = ("mean", "variance", "jumps")  # of `Entropy`


@dataclass(frozen=True)
class Spent:
    """What training has cost by the end of some step. Validations are not counted."""

    steps: int = 0
    tokens: int = 0  # drawn by the policy, those of probes too
    tool_calls: int = 0
    turns: int = 0  # of the agent; turns that paths share count once
    seconds: float = 0.0  # rollout and update, of the steps whose time is known

    def after(self, line: dict[str, Any]) -> Spent:
        turns = round((line["turns"] or 0.0) * line["paths"])
        more = (1, line["tokens"], line["tool_calls"], turns, line["seconds"] or 0.0)
        return Spent(*map(add, astuple(self), more))


@dataclass(frozen=True)
class Validation:
    """Held-out success after some training."""

    spent: Spent
    success: float
    episodes: int  # that were scored

    @property
    def won(self) -> int:
        return round(self.success * self.episodes)


@dataclass(frozen=True)
class Entropy:
    """The mean entropy of one turn index (nats), step by step."""

    values: dict[int, float]  # by step; steps in which no path came so far are left out

    @property
    def mean(self) -> float:
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
        near = [
            (b - a) ** 2 for (s, a), (t, b) in pairwise(sorted(self.values.items())) if t == s + 1
        ]
        return fmean(near) / 2 if near else None

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in PARTS}, "steps": len(self.values)}


@dataclass(frozen=True)
class History:
    """A finished run: its validations in order, the first before training, and its entropies by turn index."""

    validations: tuple[Validation, ...]
    spent: Spent
    entropy: dict[int, Entropy]
    actions: dict[str, float] = field(
        default_factory=dict
    )  # means over steps of `ACTIONS` by turn, as NAME/TURN
    clipped: float | None = None  # share of slots past either bound, mean over steps

    def reached(self, success: float) -> Spent | None:
        """Return what was spent when a validation first showed `success`; None where none did."""
        return next((found.spent for found in self.validations if found.success >= success), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "spent": asdict(self.spent),
            "validations": [
                {
                    "success": found.success,
                    "won": found.won,
                    "episodes": found.episodes,
                    **asdict(found.spent),
                }
                for found in self.validations
            ],
            "entropy_by_turn": {str(turn): one.to_json() for turn, one in self.entropy.items()},
            "actions_by_turn": self.actions,
            "clipped": self.clipped,
        }


def read_history(folder: Path) -> History:
    """Read the history of the run in `folder`. Raises OSError or ValueError where its metrics cannot be read."""
    spent, validations, columns = Spent(), list[Validation](), dict[str, dict[int, float]]()
    for text in (folder / METRICS).read_text("utf-8").splitlines():
        line = json.loads(text)
        if line["step"]:
            spent = spent.after(line)
        if "valid/success" in line:
            validations.append(Validation(spent, line["valid/success"], line["valid/episodes"]))
        for name, value in line.items():
            if value is not None:
                columns.setdefault(name, {})[line["step"]] = value
    by_turn = {
        name.removeprefix(TURN): one for name, one in columns.items() if name.startswith(TURN)
    }
    turns = {turn: Entropy(by_turn[f"{turn}"]) for turn in sorted(map(int, by_turn))}
    acted = {
        name: fmean(one.values())
        for name, one in columns.items()
        if re.match(f"({'|'.join(ACTIONS)})/", name)
    }
    low, high = (columns.get(name, {}).values() for name in ("clip_low", "clip_high"))
    return History(
        tuple(validations), spent, turns, acted, fmean(map(add, low, high)) if low else None
    )


@dataclass(frozen=True)
class MethodResult:
    """A method after its finished seeds. Costs and differences are means over seeds."""

    histories: dict[int, History]  # by seed
    unfinished: dict[int, str]  # by seed: how far it came
    ahead: (
        Estimate | None
    )  # held-out success at the end less that of the reference, pairwise by seed
    reached: dict[
        int, Spent
    ]  # by seed: what was spent when the reference's final success was first seen
    compared: int  # seeds that the reference has finished, too

    def success(self, at: int) -> Estimate | None:
        """Return the held-out success over seeds; `at` is 0 before training, -1 after it."""
        return mean_of(history.validations[at].success for history in self.histories.values())

    def pooled(self, at: int) -> tuple[Interval, int, int] | None:
        """Return Wilson's interval of the episodes of all seeds, how many succeeded, and how many there are."""
        found = [history.validations[at] for history in self.histories.values()]
        won, of = sum(one.won for one in found), sum(one.episodes for one in found)
        return (interval([1.0] * won + [0.0] * (of - won), of), won, of) if of else None

    def cost(self, name: str) -> Estimate | None:
        return mean_of(getattr(history.spent, name) for history in self.histories.values())

    def cost_until(self, name: str) -> Estimate | None:
        """Return what was spent until the reference's final success was first seen, over the seeds where it was."""
        return mean_of(getattr(spent, name) for spent in self.reached.values())

    def entropy(self, turn: int, name: str) -> Estimate | None:
        found = [
            history.entropy[turn] for history in self.histories.values() if turn in history.entropy
        ]
        return mean_of(value for one in found if (value := getattr(one, name)) is not None)

    def acted(self, name: str, turn: int) -> Estimate | None:
        """Return the mean over seeds of one of `ACTIONS` at a turn."""
        found = (history.actions.get(f"{name}/{turn}") for history in self.histories.values())
        return mean_of(value for value in found if value is not None)

    @property
    def turns(self) -> list[int]:
        return sorted({turn for history in self.histories.values() for turn in history.entropy})

    def to_json(self) -> dict[str, Any]:
        return {
            "finished": sorted(self.histories),
            "unfinished": {str(seed): why for seed, why in self.unfinished.items()},
            **{name: self._success(at) for name, at in (("before", 0), ("after", -1))},
            "ahead_of_reference": self.ahead and asdict(self.ahead),
            "spent": {name: (mean := self.cost(name)) and asdict(mean) for name in COSTS},
            "until_success_of_reference": {"reached": len(self.reached), "of": self.compared}
            | {name: (mean := self.cost_until(name)) and asdict(mean) for name in COSTS},
            "entropy_by_turn": {
                str(turn): {
                    name: (mean := self.entropy(turn, name)) and asdict(mean) for name in PARTS
                }
                for turn in self.turns
            },
            "runs": {str(seed): history.to_json() for seed, history in self.histories.items()},
        }

    def _success(self, at: int) -> dict[str, Any]:
        mean, pooled = self.success(at), self.pooled(at)
        over = pooled and {**asdict(pooled[0]), "won": pooled[1], "episodes": pooled[2]}
        return {"over_seeds": mean and asdict(mean), "pooled": over}


def method_results(comparison: Comparison) -> dict[str, MethodResult]:
    """Return the result of each method from the run folders. Raises OSError or ValueError where one is unreadable."""
    histories: dict[str, dict[int, History]] = {method: {} for method in comparison.methods}
    unfinished: dict[str, dict[int, str]] = {method: {} for method in comparison.methods}
    for trial in comparison.trials:
        if trial.finished:
            histories[trial.method][trial.config.seed] = read_history(trial.folder)
        else:
            unfinished[trial.method][trial.config.seed] = _progress(trial.folder)
    peers, found = histories[comparison.reference], dict[str, MethodResult]()
    for method, own in histories.items():
        both = [seed for seed in own if seed in peers]
        final = {seed: peers[seed].validations[-1].success for seed in both}
        ahead = mean_of(own[seed].validations[-1].success - final[seed] for seed in both)
        reached = {
            seed: spent for seed in both if (spent := own[seed].reached(final[seed])) is not None
        }
        found[method] = MethodResult(own, unfinished[method], ahead, reached, len(both))
    return found


def _progress(folder: Path) -> str:
    path = folder / METRICS
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    lines = [line for line in text.splitlines() if line.endswith("}")]  # one that was torn does not
    if not lines:
        return "not begun"
    refused = json.loads(lines[-1]).get("refused")
    return f"{len(lines) - 1} steps taken" + (f", the last refused: {refused}" if refused else "")


@dataclass(frozen=True)
class MethodEffect:
    """What a method did beside the reference, over the seeds that both have finished."""

    first_other: Mapping[
        int, int | None
    ]  # by seed: the first step whose episodes differ; None where none did
    steps: int  # that were compared, at most
    own_term: Mapping[int, float]  # by step, mean over seeds; empty where it could not be measured

    @property
    def changed_nothing(self) -> bool:
        """Whether there is a seed to judge by, and every episode of every seed was the reference's."""
        return bool(self.first_other) and not any(self.first_other.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data, with what the reports say of it."""
        first_other = {str(seed): step for seed, step in self.first_other.items()}
        own_term = {str(step): share for step, share in self.own_term.items()}
        return {
            "first_other": first_other,
            "steps": self.steps,
            "own_term": own_term,
            "said": self.described(),
        }

    def described(self) -> str:
        """Return in some words when episodes began to differ."""
        if not self.first_other:
            return ""
        if self.changed_nothing:
            return f"changed no episode in {self.steps} steps"
        known = [step for step in self.first_other.values() if step is not None]
        if len(known) < len(self.first_other):
            return f"first other episode in step {min(known)}, on {len(known)} of {len(self.first_other)} seeds"
        return f"first other episode in step {min(known)}" + (
            f" to {max(known)}" if max(known) > min(known) else ""
        )

    def advice(self, method: str, reference: str) -> str:
        """Return what to do about a method that changed nothing."""
        largest = percent(max(self.own_term.values(), default=0.0))
        share = f", its own term at most {largest} % of the gradient" if self.own_term else ""
        return (
            f"{method} {self.described()}{share}: its numbers are those of {reference}. "
            "Give it a larger coefficient or more steps, or compare where the control of entropy decides: "
            "--on late-bloomer."
        )


def percent(share: float) -> str:
    """Return a share in percent, with two digits that count and never with an exponent."""
    value = 100 * share
    if 0 < value < SMALLEST_PERCENT:
        return f"< {SMALLEST_PERCENT}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def effects(comparison: Comparison) -> dict[str, MethodEffect]:
    """Return by method, but for the reference, what it did. Raises OSError or ValueError if a file is unreadable."""
    finished: dict[str, dict[int, Effect]] = {method: {} for method in comparison.methods}
    for trial in comparison.trials:
        if trial.finished:
            finished[trial.method][trial.config.seed] = read_effect(trial.folder)
    reference = finished.pop(comparison.reference)
    return {method: _beside(runs, reference) for method, runs in finished.items()}


def _beside(runs: Mapping[int, Effect], reference: Mapping[int, Effect]) -> MethodEffect:
    """Return what runs of a method did beside those of the reference, by seed."""
    both = [
        seed
        for seed in runs
        if seed in reference and runs[seed].episodes and reference[seed].episodes
    ]
    first_other = {seed: runs[seed].differs_from(reference[seed]) for seed in both}
    steps = max((len(runs[seed].episodes) for seed in both), default=0)
    measured = sorted({step for run in runs.values() for step in run.own_term})
    own_term = {
        step: fmean(run.own_term[step] for run in runs.values() if step in run.own_term)
        for step in measured
    }
    return MethodEffect(first_other, steps, own_term)
