"""Whether a method did anything: its own term in the gradient, and the first step whose episodes differ.

Two methods that act differently give different numbers only once an episode differs. A coefficient may be so small that
none does, and then a table shows the same row twice. So each run of a comparison writes down its own term (see
`own_term`) and a digest of the tokens of each step's episodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ...tools.files import open_plain, read_text, write_file

if TYPE_CHECKING:
    from .plan import Comparison

EFFECT = "effect.json"  # of a run of a comparison
_TOKENS = re.compile(rb'"tokens": \[[^\]]*\]')  # inside a text the quotes would be escaped


@dataclass(frozen=True)
class Effect:
    """What a run wrote down about itself, by step."""

    own_term: Mapping[int, float] = field(default_factory=dict)
    """|g - g_ref| / |g|; of no reference, or of one that needs what the run does not compute, there is none."""
    episodes: Mapping[int, str] = field(default_factory=dict)
    """A digest of the tokens of the step's episodes, once the run is over."""

    def write(self, folder: Path) -> None:
        """Write it into a run folder. Raises OSError."""
        write_file(folder / EFFECT, json.dumps(asdict(self)) + "\n")

    def differs_from(self, reference: Effect) -> int | None:
        """Return the first step whose episodes are others than the reference's; None if there is none."""
        both = sorted(self.episodes.keys() & reference.episodes.keys())
        return next((step for step in both if self.episodes[step] != reference.episodes[step]), None)


def read_effect(folder: Path) -> Effect:
    """Return what a run wrote down; nothing of a run that has not. Raises OSError or ValueError if it is unreadable."""
    path = folder / EFFECT
    try:
        data = json.loads(read_text(path))
        own_term = {int(step): float(share) for step, share in data["own_term"].items()}
        episodes = {int(step): str(digest) for step, digest in data["episodes"].items()}
    except FileNotFoundError:
        return Effect()
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not what a comparison wrote ({error!r}); remove it") from error
    return Effect(own_term, episodes)


def digests(folder: Path) -> dict[int, str]:
    """Return a digest of the tokens of each step's episodes, from the journals of a run."""
    found = dict[int, str]()
    for path in sorted((folder / "trees").glob("step-*.jsonl")):
        digest = blake2b(digest_size=8)
        with open_plain(path) as journal:
            for tokens in _TOKENS.findall(journal.read()):
                digest.update(tokens)
        found[int(path.stem.removeprefix("step-"))] = digest.hexdigest()
    return found


@dataclass(frozen=True)
class MethodEffect:
    """What a method did beside the reference, over the seeds that both have finished."""

    first_other: Mapping[int, int | None]  # by seed: the first step whose episodes differ; None where none did
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
        return {"first_other": first_other, "steps": self.steps, "own_term": own_term, "said": self.described()}

    def described(self) -> str:
        """Return in some words when episodes began to differ."""
        if not self.first_other:
            return ""
        if self.changed_nothing:
            return f"changed no episode in {self.steps} steps"
        known = [step for step in self.first_other.values() if step is not None]
        if len(known) < len(self.first_other):
            return f"first other episode in step {min(known)}, on {len(known)} of {len(self.first_other)} seeds"
        return f"first other episode in step {min(known)}" + (f" to {max(known)}" if max(known) > min(known) else "")

    def advice(self, method: str, reference: str) -> str:
        """Return what to do about a method that changed nothing."""
        largest = f", its own term at most {100 * max(self.own_term.values()):.2g} % of the gradient"
        return (
            f"{method} {self.described()}{largest if self.own_term else ''}: its numbers are those of {reference}. "
            "Give it a larger coefficient or more steps, or compare where the control of entropy decides: "
            "--on late-bloomer."
        )


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
    both = [seed for seed in runs if seed in reference and runs[seed].episodes and reference[seed].episodes]
    first_other = {seed: runs[seed].differs_from(reference[seed]) for seed in both}
    steps = max((len(runs[seed].episodes) for seed in both), default=0)
    measured = sorted({step for run in runs.values() for step in run.own_term})
    own_term = {step: fmean(run.own_term[step] for run in runs.values() if step in run.own_term) for step in measured}
    return MethodEffect(first_other, steps, own_term)
