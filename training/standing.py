"""What each method of a comparison came to: means over the seeds that finished, each with its denominator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..agents.scores import Interval, interval
from .compare import OWN, Comparison
from .course import Course, Spent, Validation, read_course
from .logbook import METRICS
from .spread import Mean, mean_of

COSTS = ("steps", "tokens", "tool_calls", "turns", "seconds")


@dataclass(frozen=True)
class Standing:
    """A method after its finished seeds. Costs and differences are means over seeds."""

    courses: dict[int, Course]  # by seed
    unfinished: dict[int, str]  # by seed: how far it came
    ahead: Mean | None  # held-out success at the end less that of the reference, pairwise by seed
    reached: dict[int, Spent]  # by seed: what was spent when the reference's final success was first seen
    compared: int  # seeds that the reference has finished, too

    def success(self, at: int) -> Mean | None:
        """Return the held-out success over seeds; `at` is 0 before training, -1 after it."""
        return mean_of([course.validations[at].success for course in self.courses.values()])

    def pooled(self, at: int) -> tuple[Interval, int, int] | None:
        """Return Wilson's interval of the episodes of all seeds, how many succeeded, and how many there are."""
        found = [course.validations[at] for course in self.courses.values()]
        won, of = sum(one.won for one in found), sum(one.episodes for one in found)
        return (interval([1.0] * won + [0.0] * (of - won), of), won, of) if of else None

    def cost(self, name: str) -> Mean | None:
        """Return what was spent by the end of training."""
        return _cost(name, [course.spent for course in self.courses.values()])

    def cost_until(self, name: str) -> Mean | None:
        """Return what was spent until the reference's final success was first seen, over the seeds where it was."""
        return _cost(name, self.reached.values())

    def entropy(self, turn: int, name: str) -> Mean | None:
        """Return the mean over seeds of a statistic of `Entropy`."""
        found = [course.entropy[turn] for course in self.courses.values() if turn in course.entropy]
        return mean_of([value for one in found if (value := getattr(one, name)) is not None])

    @property
    def turns(self) -> list[int]:
        """Return the turn indices that any seed came to."""
        return sorted({turn for course in self.courses.values() for turn in course.entropy})

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as JSON data."""
        return {
            "finished": sorted(self.courses),
            "unfinished": {str(seed): why for seed, why in self.unfinished.items()},
            **{name: self._success(at) for name, at in (("before", 0), ("after", -1))},
            "ahead_of_reference": _json(self.ahead),
            "spent": {name: _json(self.cost(name)) for name in COSTS},
            "until_success_of_reference": {
                "reached": len(self.reached),
                "of": self.compared,
                **{name: _json(self.cost_until(name)) for name in COSTS},
            },
            "entropy_by_turn": {
                str(turn): {name: _json(self.entropy(turn, name)) for name in ("mean", "variance", "jumps")}
                for turn in self.turns
            },
            "runs": {str(seed): _run(course) for seed, course in self.courses.items()},
        }

    def _success(self, at: int) -> dict[str, Any]:
        pooled = self.pooled(at)
        over = None if pooled is None else {**asdict(pooled[0]), "won": pooled[1], "episodes": pooled[2]}
        return {"over_seeds": _json(self.success(at)), "pooled": over}


def standings(comparison: Comparison) -> dict[str, Standing]:
    """Return the standing of each method from the run folders. Raises OSError or ValueError where one is unreadable."""
    courses: dict[str, dict[int, Course]] = {method: {} for method in comparison.methods}
    unfinished: dict[str, dict[int, str]] = {method: {} for method in comparison.methods}
    for trial in comparison.trials:
        if trial.finished:
            courses[trial.method][trial.config.seed] = read_course(trial.folder)
        else:
            unfinished[trial.method][trial.config.seed] = _progress(trial.folder)
    peers = courses[comparison.reference]
    return {method: _standing(courses[method], unfinished[method], peers) for method in comparison.methods}


def describe(comparison: Comparison) -> dict[str, Any]:
    """Return what was compared: the config that all methods share, and what each sets."""
    configs = {method: asdict(config) for method, config in comparison.methods.items()}
    first = next(iter(configs.values()))
    own = [key for key in OWN if key == "method" or any(config[key] != first[key] for config in configs.values())]
    return {
        "on": comparison.base,
        "seeds": list(comparison.seeds),
        "reference": comparison.reference,
        "shared": {key: value for key, value in first.items() if key not in (*own, "seed", "out", "resume")},
        "methods": {name: {key: config[key] for key in own} for name, config in configs.items()},
    }


def _standing(courses: dict[int, Course], unfinished: dict[int, str], peers: dict[int, Course]) -> Standing:
    both = [seed for seed in courses if seed in peers]
    final = {seed: peers[seed].validations[-1].success for seed in both}
    ahead = mean_of([courses[seed].validations[-1].success - final[seed] for seed in both])
    reached = {seed: spent for seed in both if (spent := courses[seed].reached(final[seed])) is not None}
    return Standing(courses, unfinished, ahead, reached, len(both))


def _cost(name: str, spent: Iterable[Spent]) -> Mean | None:
    return mean_of([float(getattr(one, name)) for one in spent])


def _progress(folder: Path) -> str:
    """Return how far a run came that is not finished, and why it ended where it says so."""
    path = folder / METRICS
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    lines = [line for line in text.splitlines() if line.endswith("}")]  # one that was torn does not
    if not lines:
        return "not begun"
    refused = json.loads(lines[-1]).get("refused")
    return f"{len(lines) - 1} steps taken" + (f", the last refused: {refused}" if refused else "")


def _run(course: Course) -> dict[str, Any]:
    return {
        "spent": asdict(course.spent),
        "validations": [_validation(found) for found in course.validations],
        "entropy_by_turn": {
            str(turn): {"mean": one.mean, "variance": one.variance, "jumps": one.jumps, "steps": len(one.values)}
            for turn, one in course.entropy.items()
        },
    }


def _validation(found: Validation) -> dict[str, Any]:
    return {"success": found.success, "won": found.won, "episodes": found.episodes, **asdict(found.spent)}


def _json(mean: Mean | None) -> dict[str, Any] | None:
    return None if mean is None else mean.to_json()
