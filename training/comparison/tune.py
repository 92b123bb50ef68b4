"""Tuning before a comparison: as many settings for every method, tried on seeds of their own, the best one judged."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...agents.evaluation.statistics import mean_of
from ...agents.models.folder import read_toml
from ..methods import foreign
from .outcomes import as_text, outcomes
from .plan import Comparison, method_configs, try_runs

FOLDER = "tune"  # of the runs, in that of the comparison


@dataclass(frozen=True)
class Tuning:
    """A checked tuning: a comparison of all settings, and which of them are a method's."""

    comparison: Comparison
    settings: dict[str, tuple[str, ...]]


def check_tuning(path: str, plan: Comparison) -> Tuning:
    """Return the tuning of a file: `seeds` and, by method, `settings`. Raises ValueError or OSError."""
    data = read_toml(Path(path))
    seeds, settings = data.get("seeds"), data.get("settings")
    if not (
        data.keys() == {"seeds", "settings"}
        and isinstance(settings, dict)
        and isinstance(seeds, list)
        and seeds
    ):
        raise ValueError(
            f"{path} needs `seeds`, a list, and `settings`, a table of lists, and nothing else"
        )
    if wrong := [seed for seed in seeds if type(seed) is not int or seed < 0]:
        raise ValueError(f"{path}: a seed is {wrong[0]!r}; give numbers from 0 on")
    for name, some in settings.items():
        if not (isinstance(some, list) and some and all(isinstance(one, str) for one in some)):
            raise ValueError(
                f"{path}: the settings of {name} are {some!r}; give a list of methods or recipes"
            )
        if len({*some}) < len(some):
            raise ValueError(f"{path}: a setting of {name} is named twice: {', '.join(some)}")
    if missing := sorted(settings.keys() ^ plan.methods.keys()):
        raise ValueError(
            f"{path} and the command differ in {', '.join(missing)}; give each method a list of settings"
        )
    if len({len(some) for some in settings.values()}) > 1:
        counts = ", ".join(f"{name} {len(some)}" for name, some in settings.items())
        raise ValueError(
            f"{path} gives methods different numbers of settings ({counts}); give each as many"
        )
    if both := sorted({*seeds} & {*plan.seeds}):
        raise ValueError(
            f"{path}: the seeds {both} are judged, too; choose others, or methods are tuned on their test"
        )
    if not plan.final.episodes:
        raise ValueError(
            "--tune chooses by the final validation, which --final 0 leaves out; give --final a number"
        )
    names = tuple(dict.fromkeys(name for some in settings.values() for name in some))
    if others := [name for name in names if foreign(name) or any(map(foreign, name.split("+")))]:
        raise ValueError(
            f"{path} names {others[0]!r} of another package; a file cannot choose that"
        )
    configs = method_configs(names, dict(plan.values))
    try_runs(configs)
    stems = {name: Path(name).stem if name.endswith(".toml") else name for name in names}
    chosen = {method: tuple(stems[name] for name in some) for method, some in settings.items()}
    own = tuple(dict.fromkeys(seeds))
    tried = replace(
        plan, folder=plan.folder / FOLDER, methods=configs, seeds=own, against=stems[names[0]]
    )
    tried.check()
    return Tuning(tried, chosen)


def tuned(plan: Comparison, tuning: Tuning, say: Callable[[str], object]) -> Comparison:
    """Return the plan, each method at its best setting, and say how all did. Raises ValueError if one is missing."""
    found = outcomes(tuning.comparison)
    methods, tried = dict(plan.methods), dict[str, dict[str, Any]]()
    for method, settings in tuning.settings.items():
        means = {
            name: mean_of(one.success for one in found[name].sampled.values()) for name in settings
        }
        ended = {name: mean.value for name, mean in means.items() if mean is not None}
        if len(ended) < len(settings):
            lost = ", ".join(name for name in settings if name not in ended)
            raise ValueError(
                f"no tuning run of {lost} has finished; leave it out, or continue with --resume"
            )
        best = max(ended, key=ended.__getitem__)  # the first of equal ones
        methods[method] = tuning.comparison.methods[best]
        tried[method] = {"chosen": best, "success": ended, "seeds": list(tuning.comparison.seeds)}
        each = ", ".join(f"{name} {as_text(mean, '.1f', 100)} %" for name, mean in means.items())
        say(f"{method} is judged as {best}: {each}")
    judged = replace(plan, methods=methods, tried=tried)
    judged.check()
    return judged
