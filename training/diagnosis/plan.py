"""A diagnosis: methods in worlds, with several seeds, each a run of its own; several processes make them.

Its folder holds WORLD/start/seed-S, the policies that seeds begin with, and WORLD/METHOD/seed-S, which are ordinary run
folders with what the trained policy measured. What is whole is kept, so a diagnosis that died goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...agents.journal import writable
from ...agents.settings import flat
from .. import run
from ..comparison.plan import REFERENCE, Trial, folder_of, method_configs
from ..config import TrainConfig
from ..methods import check_methods
from ..run_folder import METRICS
from .begin import FILE
from .cases import Case, find_case
from .measure import Measured

RESULT = "diagnosis.json"  # of a run: written last
BASE = {"prompts": 8, "group": 8, "lr": 3e-4, "lr_end": 0.1, "rank": 32, "eval_tasks": 64}


@dataclass(frozen=True)
class Job:
    """One method in one world with one seed."""

    case: Case
    trial: Trial

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.trial.config.seed

    def __str__(self) -> str:
        """Return how the job is called."""
        return f"{self.case.name}, {self.trial.method}, seed {self.seed}"

    @property
    def total(self) -> int:
        """Steps that it takes."""
        return self.trial.config.schedule.steps

    @property
    def done(self) -> bool:
        """Whether the run is over and measured."""
        return (self.trial.folder / RESULT).is_file()

    @property
    def steps(self) -> int:
        """Steps that were taken by now."""
        path = self.trial.folder / METRICS
        return max(path.read_bytes().count(b"\n") - 1, 0) if path.is_file() else 0

    def result(self) -> dict[str, Any]:
        """Return what was measured: `sampled`, `greedy`, and `curve`, step by step."""
        return dict(json.loads((self.trial.folder / RESULT).read_text("utf-8")))

    def measured(self, how: str = "sampled") -> Measured:
        """Return what the trained policy measured."""
        return Measured(**self.result()[how])


@dataclass(frozen=True)
class Diagnosis:
    """A checked diagnosis. Jobs go seed by seed, so that an unfinished one has whole seeds to show."""

    folder: Path
    methods: dict[str, TrainConfig]
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]

    @property
    def reference(self) -> str:
        """The method that the others are compared with."""
        return REFERENCE if REFERENCE in self.methods else next(iter(self.methods))

    @property
    def starts(self) -> list[tuple[Case, int, Path]]:
        """World, seed and folder of the policies that runs begin with."""
        return [(case, seed, self._start(case, seed)) for seed in self.seeds for case in self.cases]

    def begun(self, case: Case) -> dict[int, Measured]:
        """Return what the policies measured that runs in a world begin with, by seed, as far as they are made."""
        files = {seed: folder / FILE for one, seed, folder in self.starts if one is case and (folder / FILE).is_file()}
        return {seed: Measured(**json.loads(file.read_text("utf-8"))["measured"]) for seed, file in files.items()}

    @property
    def jobs(self) -> list[Job]:
        """The runs, in the order in which they are made."""
        return [
            Job(case, Trial(method, self._config(config, case, method, seed)))
            for seed in self.seeds
            for case in self.cases
            for method, config in self.methods.items()
        ]

    def _start(self, case: Case, seed: int) -> Path:
        return self.folder / case.name / "start" / f"seed-{seed}"

    def _config(self, config: TrainConfig, case: Case, method: str, seed: int) -> TrainConfig:
        out, policy = self.folder / case.name / method / f"seed-{seed}", self._start(case, seed)
        return config.changed(env=case.env, policy=str(policy), max_tokens=case.max_tokens, seed=seed, out=str(out))


def plan(
    methods: Sequence[str], worlds: Sequence[str], seeds: int, first: int, steps: int, out: str, resume: bool
) -> Diagnosis:
    """Check everything that can be wrong before the first policy is made.

    Raises:
        ValueError, OSError: what is wrong, its value and the fix.
    """
    if not methods:
        raise ValueError("no method is named; name recipes of methods, such as: turngym diagnose grpo epo")
    if seeds < 1 or first < 0:
        raise ValueError(f"seeds is {seeds} and seed {first}; there must be at least 1, and the first be 0 or more")
    cases = tuple(find_case(name) for name in dict.fromkeys(worlds))
    base = TrainConfig().changed(**BASE, steps=steps, eval_every=steps)
    base.check()
    configs = method_configs(methods, flat(base))
    for name, config in configs.items():
        try:
            check_methods(config.method)
            with TemporaryDirectory() as scratch:  # what does not fit a run is found with another policy, too
                run.prepare(config.changed(env=cases[0].env, out=scratch)).close()
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    folder = folder_of("diagnose", out, resume)
    diagnosis = Diagnosis(folder, configs, cases, tuple(range(first, first + seeds)))
    for job in diagnosis.jobs:
        job.trial.check_same()
    writable(folder)
    return diagnosis
