"""A comparison: methods on the same tasks, with the same seeds and budget, each a run of its own, one after another.

Its folder holds METHOD/seed-S, which are ordinary run folders. A method is a recipe that sets what is the method's own;
everything else comes from one base recipe.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...agents.journal import writable
from ...agents.settings import flat
from ...agents.source import find
from .. import run
from ..config import TrainConfig, adjusted, from_mapping, read_recipe, recipe_keys, recipe_values, reserved_of
from ..methods import check_methods, foreign
from ..process import launched
from ..run_folder import CONFIG

# What a method may set.
OWN = ("method", "updates", "group", "prompts", "lr", "lr_end", "clip_norm", "rank", "alpha", "targets")
REFERENCE = "grpo"  # what the others are compared with, where it takes part; else the first one
WARM = Path("runs/warm")  # where `turngym warmup` makes what shipped recipes start from
ANYTIME = tuple(name for name in run.FREE if name not in run.LENGTH)  # what may differ when a comparison goes on


@dataclass(frozen=True)
class Trial:
    """One method with one seed."""

    method: str
    config: TrainConfig

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return Path(self.config.out)

    @property
    def begun(self) -> bool:
        """Return whether there is a run to continue."""
        return (self.folder / CONFIG).is_file()

    @property
    def finished(self) -> bool:
        """Return whether the run is over and has its summary. Raises CheckpointError if its checkpoints are damaged."""
        return self.begun and run.finished(self.config)

    def check_same(self) -> None:
        """Raise ValueError where the run was begun with another value of what must stay."""
        if self.begun:
            fix = "use the same value, or choose another folder with --out"
            run.check_same(self.config, self.folder, ANYTIME, fix)

    def records(self) -> Generator[Any, None, None]:
        """Train, or continue, and yield the records of the run. Raises as `prepare` and `execute` do."""
        with closing(run.prepare(replace(self.config, resume=self.begun))) as prepared:
            yield from run.execute(prepared)


@dataclass(frozen=True)
class Comparison:
    """A checked comparison. Trials go seed by seed, so that an unfinished one has whole seeds to show."""

    folder: Path
    base: str
    methods: dict[str, TrainConfig]  # by name, as asked for
    seeds: tuple[int, ...]
    lines: tuple[str, ...] = ()  # what was taken from where

    @property
    def reference(self) -> str:
        """Return the method that the others are compared with."""
        return REFERENCE if REFERENCE in self.methods else next(iter(self.methods))

    @property
    def trials(self) -> list[Trial]:
        """Return the trials in the order in which they are made."""
        return [
            Trial(method, replace(config, seed=seed, out=str(self.folder / method / f"seed-{seed}")))
            for seed in self.seeds
            for method, config in self.methods.items()
        ]


def plan(
    methods: Sequence[str], on: str, seeds: int, changes: dict[str, Any], out: str = "", resume: bool = False
) -> Comparison:
    """Check everything that can be wrong before the first rollout, and return what is to be done.

    Args:
        methods: Recipes of methods, by name or path; or methods of others, as in `grpo,my_module:factory`.
        on: The recipe whose other keys they share.
        seeds: How many; the first is that of `on`.
        changes: Keys that replace those of `on`.
        out: Folder; the first free one of runs/compare, runs/compare-2, … when left out.
        resume: Whether `out` holds a comparison to continue.

    Raises:
        ValueError, OSError, LevelRefused: what is wrong, its value and the fix.
    """
    if not methods:
        raise ValueError("no method is named; name recipes of methods, such as: turngym compare grpo epo")
    if (size := launched().size) > 1:
        raise ValueError(f"{size} processes would write one comparison; start it once, without torchrun")
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; a comparison needs at least 1")
    allowed = reserved_of(from_mapping(changes, "the command"))
    _check_policy(on, changes.get("policy", read_recipe(on, allowed=allowed).policy))
    base, lines = adjusted(on, changes, allowed)
    configs = method_configs(methods, flat(base))
    if find_spec("matplotlib") is None:
        raise ValueError(
            "matplotlib is not installed; the picture of a comparison needs the report extra: "
            'pip install "turngym[report]"'
        )
    for name, config in configs.items():
        try:
            check_methods(config.method)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    first = next(iter(configs.values())).seed
    comparison = Comparison(folder_of("compare", out, resume), on, configs, tuple(range(first, first + seeds)), lines)
    for trial in comparison.trials:
        trial.check_same()
    with TemporaryDirectory() as scratch:  # a mistake leaves nothing behind
        for config in configs.values():
            run.prepare(replace(config, out=scratch)).close()
    writable(comparison.folder)
    return comparison


def method_configs(methods: Sequence[str], base: dict[str, Any]) -> dict[str, TrainConfig]:
    """Return the config of each method by its name: that of its recipe, without the ending of a file.

    Raises:
        ValueError, OSError: there is no such recipe, or it sets what methods share.
    """
    configs: dict[str, TrainConfig] = {}
    for recipe in methods:
        name = Path(recipe).stem if recipe.endswith(".toml") else recipe
        if name in configs:
            raise ValueError(f"method {name!r} is named twice; name it once, or give a recipe of its own another name")
        if ":" in recipe:  # no recipe but a method itself, as the command has it
            configs[name] = replace(from_mapping({**base, "method": recipe}, recipe), resume=False)
            continue
        method = recipe_values(recipe)[0].get("method", "")
        if method and foreign(method):
            raise ValueError(
                f"the recipe {recipe!r} has the method {method!r} of another package; a file cannot choose that. If "
                f"you trust its code, name it in place of the recipe: turngym compare {method}"
            )
        if shared := [key for key in recipe_keys(recipe) if key not in OWN]:
            raise ValueError(
                f"the recipe {recipe!r} sets {', '.join(shared)}, which all methods of a comparison share; "
                f"leave them out there, and name a recipe that sets them with --on"
            )
        configs[name] = replace(read_recipe(recipe, base), resume=False)
    return configs


def _check_policy(on: str, policy: str) -> None:
    """Raise FileNotFoundError where the policy is missing that `turngym warmup` makes for the base recipe."""
    if Path(policy) == WARM / on and not Path(policy).exists():
        raise FileNotFoundError(
            f"there is no {policy}, from which the recipe {on!r} starts; make it: turngym warmup {on}"
        )
    find(policy)


def folder_of(what: str, out: str, resume: bool) -> Path:
    """Return the folder of a command's runs: `out`, empty or to be resumed, or the first free runs/WHAT, runs/WHAT-2, …

    Raises:
        ValueError, OSError: `out` is not empty, or holds nothing to resume.
    """
    if resume:
        if not out:
            raise ValueError(f"--resume needs the folder of what is to be resumed: turngym {what} … --out FOLDER")
        if not Path(out).is_dir():
            raise FileNotFoundError(f"{out} holds nothing to resume; leave --resume out to start")
        return Path(out)
    if out:
        if Path(out).is_dir() and any(Path(out).iterdir()):
            raise ValueError(f"{out} is not empty; continue with --resume, or choose another folder with --out")
        return Path(out)
    return run.free_folder(what, Path.exists)
