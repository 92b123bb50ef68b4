"""What a training run is: one frozen dataclass, recipes that override it, the `config.toml` of a run folder.

What a shipped recipe sets was found with one small policy. A model that turngym did not make takes the defaults for
models instead, and an environment takes no options that were meant for another.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ... import __version__
from ...agents.cli import settings
from ...agents.cli.settings import (
    Deadlines,
    EngineChoice,
    LoraOptions,
    MachineOptions,
    SamplingOptions,
    flat,
)
from ...agents.models.folder import read_toml
from ...agents.models.resolve import Source, find, max_tokens
from ...envs import choices
from ...envs.options import EnvOptions
from ...envs.registry import entries
from ...envs.reserved_choices import (
    find_outside_paths,
    format_choice,
    is_plugin,
    plugin_tools,
    refuse_unnamed,
    reserved_choices,
)
from ...envs.tasks import did_you_mean
from ...tools import files
from ..methods import METHOD_RECIPES, foreign, of_others, others, plugin_recipe

RECIPES = Path(__file__).parent / "recipes"
OF_ENV = (
    "tasks",
    "difficulty",
    "shots",
    "option",
)  # settings that belong to a recipe's environment
OF_POLICY = ("difficulty", "option")  # those of them that make it hard or easy
OWN_ENVIRONMENT = re.compile(r"[\w./-]+:[A-Za-z_]\w*")  # module:Class, file.py:factory
GRADED = ("turngym/Math-v0", "turngym/MathPython-v0")  # where models have a difficulty of their own


@dataclass(frozen=True)
class Schedule:
    """The length of a run, its validations, and its learning rate."""

    steps: int = 80
    """Number of training steps. A step is a rollout and one or more optimizer steps on it."""
    token_budget: int = 0
    """The run ends after the step in which training has drawn this many tokens. 0 means no limit."""
    updates: int = 1
    """Number of passes of the learner over each rollout."""
    minibatches: int = 1
    """Number of optimizer steps in a pass. Each uses a part of the trees; the advantages are those among all."""
    eval_every: int = 20
    """Steps between validations."""
    lr_end: float = 0.1
    """The learning rate falls linearly to this share of `--lr` at the last step, or when the token budget is spent, if
    that is earlier."""

    def check(self) -> None:
        """Raise ValueError for a value out of range."""
        settings.check_least(self, 1, "steps", "updates", "minibatches", "eval_every")
        settings.check_least(self, 0, "token_budget")
        if not 0 <= self.lr_end <= 1:
            raise ValueError(f"lr_end is {self.lr_end!r}; it must lie in [0, 1]")

    def over(self, step: int, tokens: int) -> bool:
        """Return whether a run ends that has taken `step` steps and drawn `tokens` tokens."""
        return step >= self.steps or 0 < self.token_budget <= tokens

    def lr_share(self, step: int, tokens: int) -> float:
        """Return the share of the learning rate after `step` steps and `tokens` tokens."""
        spent = tokens / self.token_budget if self.token_budget else 0.0
        return 1 - (1 - self.lr_end) * max(step / max(self.steps - 1, 1), spent)


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training run. Recipes and the command line can set every field."""

    env: str = "turngym/MathPython-v0"
    """Environment id."""
    environment: EnvOptions = EnvOptions()
    policy: str = "tiny"
    """`tiny`, a model folder, or the name of a model on the Hugging Face hub."""
    chat_template: str = ""
    """File of a chat template (jinja) in place of the policy's own. The run folder keeps a copy."""
    method: str = "grpo"
    """Methods, separated by commas and applied from left to right, with parameters as in `epo:alpha=0.2,high=1.5`
    (`turngym methods NAME` lists them). One of your own is `module:factory`, as in `grpo,my_module:factory:alpha=1`."""
    schedule: Schedule = Schedule()
    prompts: int = 8
    """Number of tasks in a step."""
    group: int = 8
    """Number of paths of a task: the group size of GRPO."""
    sampling: SamplingOptions = SamplingOptions()
    lr: float = 1e-3
    """Learning rate of AdamW on the LoRA weights."""
    clip_norm: float = 1.0
    """Largest gradient norm."""
    micro_tokens: int = 8192
    """Largest number of tokens in a forward pass. It changes the use of memory, never the results."""
    lora: LoraOptions = LoraOptions()
    eval_tasks: int = 256
    """Number of held-out tasks in a validation. Success has a standard error of at most 0.5 / √number: 3 % with 256."""
    shuffle_rewards: bool = False
    """Assign the scores to paths at random: a control experiment, which must not learn."""
    seed: int = 0
    """Seed of all randomness."""
    from_optimizer: bool = False
    """Begin with the optimizer's moments, too, where `--policy` or `--from` is a run folder."""
    machine: MachineOptions = MachineOptions()
    checkpointing: bool = False
    """Compute each layer again in the backward pass: needs far less memory and one more forward pass."""
    compile: bool = False
    """Compile the learner's layers with `torch.compile`: slow at the start, faster on a GPU."""
    engine: EngineChoice = EngineChoice()
    deadlines: Deadlines = Deadlines()
    log: str = ""
    """Loggers that get the metrics of each step, separated by commas: `tensorboard`, `wandb`, `trackio`, `mlflow`."""
    out: str = ""
    """Run folder. By default the first of runs/ENV, runs/ENV-2, … that does not exist."""
    resume: bool = False
    """Continue from the newest checkpoint of the run folder `--out`."""

    def check(self) -> TrainConfig:
        """Return the config itself; raise ValueError where a value is out of range."""
        settings.check_least(self, 1, "prompts", "group", "micro_tokens", "eval_tasks")
        settings.check_least(self, 0, "seed")
        settings.check_positive(self, "lr", "clip_norm")
        if self.lr > 1:
            raise ValueError(
                f"lr is {self.lr!r}; it must be at most 1; LoRA learns at about 1e-4 to 1e-3"
            )
        self.sampling.check()
        settings.check_positive(self.sampling, "temperature")
        for part in (self.schedule, self.lora, self.machine, self.engine, self.deadlines):
            part.check()
        return self

    def changed(self, **values: Any) -> TrainConfig:
        """Return the config with other values, by the names of fields, nested ones included: `max_tokens=64`."""
        return settings.changed(self, values)


def read_recipe(
    name: str, base: Mapping[str, Any] = MappingProxyType({}), allowed: Collection[str] = ()
) -> TrainConfig:
    """Return the config of a recipe, as in `recipe_values`, over `base`; `allowed` is what of `reserved_of` it may ask.

    Raises FileNotFoundError where there is none, and ValueError for a key, type, range or request that is not allowed.
    """
    values, where = recipe_values(name)
    config = from_mapping(values, where)
    asked = [*reserved_of(config), *reserved_of_recipe(config, name)]
    refuse_unnamed(asked, [*allowed, *methods_named_by(name)], where)
    return from_mapping({**base, **values}, where)


def recipe_keys(name: str, allowed: Collection[str] = ()) -> dict[str, Any]:
    """Return what a recipe sets. Raises as `read_recipe` does."""
    read_recipe(name, allowed=allowed)
    return recipe_values(name)[0]


def recipe_names() -> list[str]:
    """Return the recipes by name: the files in `training/runs/recipes`, the methods that make sense alone, and plugins."""
    files_of_recipes = {path.stem for path in RECIPES.glob("*.toml")}
    return sorted(files_of_recipes | METHOD_RECIPES.keys() | {plugin.name for plugin in others()})


def methods_named_by(recipe: str) -> list[str]:
    """Return the methods of other packages that the name of a recipe stands for, as `reserved_of` has them.

    Who names such a recipe has named the code that it runs.
    """
    plugins = {plugin.name for plugin in others()}
    parts = [
        part
        for part in recipe.split("+")
        if part in plugins and not (RECIPES / f"{part}.toml").is_file()
    ]
    return [f"method={plugin_recipe(part)['method']}" for part in parts]


def recipe_values(name: str) -> tuple[dict[str, Any], str]:
    """Return what a recipe sets, and its name for errors; of several joined by `+` a later one counts."""
    if "+" in name and not Path(name).is_file():
        parts, wheres = zip(*map(recipe_values, name.split("+")))
        return {key: value for part in parts for key, value in part.items()}, " + ".join(wheres)
    if name in METHOD_RECIPES:
        return dict(METHOD_RECIPES[name]), f"recipe {name}"
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if path.is_file():
        return read_toml(path), str(path)
    if of_plugin := plugin_recipe(name):
        return dict(of_plugin), f"recipe {name}"
    raise FileNotFoundError(f"there is no recipe {name!r}; {_hint_of_recipe(name)}")


def _hint_of_recipe(name: str) -> str:
    """Return how to name what somebody meant who asked for a recipe that there is not."""
    if name.endswith((".yaml", ".yml", ".json")):
        return "a recipe is a .toml file whose lines are such as steps = 60"
    if name in (entry.id for entry in entries()):
        return f"that is an environment: turngym train --env {name}"
    if name.endswith(".py"):
        return f"that is a file of Python; name the factory in it: turngym train --env {name}:make"
    if OWN_ENVIRONMENT.fullmatch(name):
        return f"if it is an environment of your own: turngym train --env {name}"
    return f"{did_you_mean(name, recipe_names())}recipes are {listed_recipes()}, or the path of a .toml file"


def listed_recipes() -> str:
    """Return the names of recipes for an error; those of turngym's methods are too many for a line."""
    of_files_and_plugins = [name for name in recipe_names() if name not in METHOD_RECIPES]
    return f"{', '.join(of_files_and_plugins)}, every method that `turngym methods` lists"


def adjusted(
    recipe: str, changes: Mapping[str, Any], allowed: Collection[str] = ()
) -> tuple[TrainConfig, tuple[str, ...]]:
    """Return the config of a recipe with `changes`, adjusted, and lines that say how. Raises as `adjust` does."""
    values = recipe_keys(recipe, allowed)
    return adjust(from_mapping({**values, **changes}, recipe), recipe, changes)


def adjust(
    config: TrainConfig, recipe: str, named: Collection[str], source: Source | None = None
) -> tuple[TrainConfig, tuple[str, ...]]:
    """Return the config of a recipe, adjusted to its policy and environment, and lines that say what came from where.

    A model that turngym did not make takes the defaults of its size, except what the command has `named`, or what is
    set by a recipe file of the user's own, or by a recipe for just that policy. `source` is the policy's, where it was
    found before. Raises ValueError or OSError where there is no such recipe or policy, or it is damaged.
    """
    values, source = recipe_values(recipe)[0], source or find(config.policy)
    elsewhere = config.env != values.get("env", TrainConfig.env)
    own = recipe.endswith(".toml") or config.policy == values.get("policy", TrainConfig.policy)
    row = {**source.defaults()}
    if config.env not in GRADED or config.environment.tasks is not None:
        row.pop("difficulty", None)
    for_others = {*(OF_ENV if elsewhere else ()), *(OF_POLICY if row and not own else ())}
    away = for_others - {*named}
    dropped = {name: value for name, value in values.items() if name in away}
    kept = {*named, *(values if own else ())} - dropped.keys()
    taken = {name: value for name, value in row.items() if name not in kept}
    defaults = flat(TrainConfig())
    config = config.changed(**{name: defaults[name] for name in dropped} | taken)
    if "option" in named:
        of_recipe = () if "option" in for_others else values.get("option", ())
        of_model = row.get("option", ()) if "option" not in (values if own else ()) else ()
        config = with_options(config, of_recipe or of_model, named)
    if config.sampling.max_tokens is None or "max_tokens" in taken:
        config = config.changed(
            max_tokens=max_tokens(source)
        )  # a run's own, where it goes on from one
    lines, policy = list[str](), values.get("policy", TrainConfig.policy)
    if taken:
        found = ", ".join(f"{name} {_shown(flat(config)[name])}" for name in taken)
        why = (
            f"{recipe} leaves them out"
            if own
            else f"the recipe {recipe} is made for the policy {policy}"
        )
        lines = [f"from the defaults for models, as {why}: {found}"]
    if gone := ", ".join(
        f"{name} {_shown(value)}" for name, value in dropped.items() if name not in taken
    ):
        other = (
            f"the environment {values.get('env', TrainConfig.env)}"
            if elsewhere
            else f"the policy {policy}"
        )
        lines.append(f"not taken from the recipe {recipe}, as they are for {other}: {gone}")
    return config, tuple(lines)


def with_options(
    config: TrainConfig, options: Collection[str], named: Collection[str]
) -> TrainConfig:
    """Return a config whose own options are added to `options`, those of a recipe or a run.

    Raises ValueError where an option is given twice, or the command has `named` it as a setting, too.
    """
    environment = config.environment
    given = {item.partition("=")[0] for item in environment.option}
    if both := sorted(given & {*named} & {*OF_ENV}):
        raise ValueError(
            f"{both[0]} is given twice, by --{both[0]} and by --option {both[0]}=…; give it once"
        )
    return replace(config, environment=environment.merge_recipe(options))


def _shown(value: Any) -> str:
    """Return a value as commands and recipes have it."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_mapping(values: Mapping[str, Any], where: str) -> TrainConfig:
    """Return the config with `values`, which are from `where`. Raises ValueError for a wrong key, type or range."""
    return settings.parsed(TrainConfig(), values, where).check()


def to_toml(config: TrainConfig, record: Mapping[str, Any]) -> str:
    """Return `config.toml`: the resolved config and a record of what made the run (version, levels, …)."""
    kept = {
        key: value for key, value in flat(config).items() if value is not None and key != "resume"
    }
    train, made = (
        [f"{key} = {_literal(value)}" for key, value in some.items()] for some in (kept, record)
    )
    return "\n".join(["[train]", *train, "", "[record]", *made]) + "\n"


def reserved_of(config: TrainConfig) -> list[str]:
    """Return what of a run's config only the present command may choose: all that `choices.SETTINGS` does not allow.

    Where a run is written, and whether it goes on, always is what the present command says.
    """
    asked = reserved_choices(config.environment.kwargs(), config.env)
    asked += [f"server={url}" for url in config.engine.server]
    asked += [f"method={config.method}"] if foreign(config.method) else []
    asked += [f"server_option={one}" for one in config.engine.server_option if not _is_plain(one)]
    elsewhere = (*OF_ENV, "server", "out", "resume")
    rules = {name: rule for name, rule in choices.SETTINGS.items() if name not in elsewhere}
    values = flat(config)
    return asked + [
        format_choice(name, values[name]) for name, rule in rules.items() if not rule(values[name])
    ]


def reserved_anew(config: TrainConfig) -> list[str]:
    """Return what of a run's config the command has to name that goes on with it in another process.

    That is `reserved_of`, and the plugins that this process has imported already.
    """
    asked = reserved_of(config)
    asked += [f"env={config.env}"] if is_plugin(config.env) else []
    asked += [f"method={config.method}"] if of_others(config.method) else []
    asked += [f"tools={name}" for name in plugin_tools(config.environment.kwargs())]
    return list(dict.fromkeys(asked))


def reserved_of_recipe(config: TrainConfig, name: str) -> list[str]:
    """Return what else a recipe may not choose: a folder to write, a run to go on with, and paths that lead away."""
    own = [
        str(RECIPES),
        *(str(Path(part).parent) for part in name.split("+") if part.endswith(".toml")),
    ]
    options = {**config.environment.kwargs(), "policy": config.policy}
    asked = find_outside_paths(options, *map(Path, own))
    asked += [format_choice("out", config.out)] if config.out else []
    return asked + ([format_choice("resume", True)] if config.resume else [])


def _is_plain(option: str) -> bool:
    """Return whether an option of a server is one that data may choose: of a known name, and a number or a flag."""
    name, _, value = option.partition("=")
    known = name.replace("_", "-") in choices.PLAIN_SERVER_OPTIONS
    return known and re.fullmatch(r"|true|false|\d+(\.\d+)?", value) is not None


def from_run(folder: Path, allowed: Collection[str] | None = ()) -> TrainConfig:
    """Return the config of a run folder; `allowed` is what of `reserved_of` it may ask for (None: anything).

    Raises FileNotFoundError where there is no config, and ValueError where it is none, or asks for what it may not.
    """
    path = folder / "config.toml"
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{folder} has no config.toml; give a run folder")
    values = files.read_toml(path).get("train")
    if not isinstance(values, dict):
        raise ValueError(f"{path} has no table [train]; it is no config of a run")
    written = recorded(folder).get("version", __version__)
    config = from_mapping(
        values, str(path) if written == __version__ else f"{path}, which turngym {written} wrote"
    )
    if allowed is not None:
        refuse_unnamed(reserved_of(config), allowed, str(path))
    return config


def recorded(folder: Path) -> dict[str, Any]:
    """Return the record of what made the run of a folder; empty where there is none."""
    record = files.read_toml(folder / "config.toml").get("record")
    return record if isinstance(record, dict) else {}


def revision() -> str:
    """Return the git revision of the code, with `+` where files differ from it; `unknown` outside a checkout."""
    try:
        line = ["git", "-C", str(Path(__file__).parent)]
        asked = ([*line, "rev-parse", "HEAD"], [*line, "status", "--porcelain", "-uno"])
        told = [
            subprocess.run(one, capture_output=True, text=True, check=True, timeout=5).stdout
            for one in asked
        ]
        return told[0].strip() + ("+" if told[1] else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_literal(key)} = {_literal(item)}' for key, item in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)
