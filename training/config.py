"""What a training run is: one frozen dataclass, recipes that override it, and the `config.toml` of a run folder."""

from __future__ import annotations

import dataclasses
import difflib
import json
import subprocess
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ..agents.engines.opening import EngineChoice
from ..agents.source import DTYPES, check_machine
from ..envs.registry import EnvOptions, refuse_weaker

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class TrainConfig:
    """A training run. Every field can be set in a recipe and on the command line."""

    env: str = "turngym/MathPython-v0"
    """Environment id."""
    tasks: str | None = None
    """Questions: a JSONL file, a data set by name or `OWNER/NAME` on the hub, or `reasoning-gym:NAME,NAME`, as in
    `turngym eval`; the built-in generator when left out."""
    difficulty: tuple[int, ...] | None = None
    """Difficulties of generated tasks, 1 to 5."""
    option: tuple[str, ...] = ()
    """Further options of the environment as `name=value`."""
    policy: str = "tiny"
    """`tiny`, a model folder, or a hub name."""
    method: str = "grpo,epo"
    """Methods, chained from left to right; parameters as in `epo:alpha=0.2,high=1.5` (`turngym methods`)."""
    steps: int = 80
    """Training steps: each is a rollout and one or more optimizer steps on it."""
    token_budget: int = 0
    """Tokens drawn in training after which the run ends, at the end of the step that reaches it; 0 is no limit."""
    prompts: int = 8
    """Tasks a step."""
    group: int = 8
    """Rollouts a task."""
    updates: int = 1
    """Optimizer steps on each rollout, all of them on the whole of it."""
    max_tokens: int = 96
    """Most tokens a turn."""
    temperature: float = 1.0
    """Sampling temperature."""
    lr: float = 1e-3
    """Learning rate of AdamW on the LoRA weights."""
    lr_end: float = 0.1
    """Share of the learning rate that is left at the last step, or where the token budget is spent, if that comes
    first; it falls linearly."""
    rank: int = 32
    """LoRA rank."""
    alpha: float = 64.0
    """LoRA scale: updates are multiplied by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Layers that LoRA adapts, by the last part of their names: `q_proj v_proj`; all linear ones and the head when left
    out."""
    clip_norm: float = 1.0
    """Largest gradient norm."""
    micro_tokens: int = 8192
    """Most tokens a forward pass; changes memory, never results."""
    eval_every: int = 20
    """Steps between validations."""
    eval_tasks: int = 256
    """Held-out tasks a validation."""
    shuffle_rewards: bool = False
    """Deal the scores out at random: the control run, which must not learn."""
    seed: int = 0
    """Keys all randomness."""
    device: str = "cpu"
    """`cpu`, `cuda` or `mps`."""
    dtype: str = "float32"
    """Of the frozen weights: `float32` or `bfloat16`."""
    lora_dtype: str = "float32"
    """Of the LoRA weights: `float32` or `bfloat16`."""
    checkpointing: bool = False
    """Compute each layer again in the backward pass: far less memory, a forward pass more."""
    compile: bool = False
    """Compile the learner's layers by `torch.compile`: slow to begin with, faster on a GPU."""
    threads: int = 1
    """CPU threads of torch: more for larger models; part of what makes runs bit-identical."""
    engine: str = "torch"
    """What draws tokens: `torch` in this process, or `vllm`, a server."""
    server: tuple[str, ...] = ()
    """URLs of running vLLM servers; without one, a server is started and stopped."""
    server_option: tuple[str, ...] = ()
    """Options of the server that is started, as `name=value`: `gpu-memory-utilization=0.5`."""
    turn_deadline: float = 600.0
    """Seconds that drawing a turn, or an answer of the environment, may take before its path counts as failed."""
    episode_deadline: float = 3600.0
    """Seconds that a path may take."""
    step_deadline: float = 7200.0
    """Seconds that a step's rollout may take; what is under way then has failed."""
    retries: int = 2
    """How often a path that an infrastructure failure ended begins again, with the same key."""
    out: str = ""
    """Run folder; the first free one of runs/ENV, runs/ENV-2, … when left out."""
    resume: bool = False
    """Go on from the newest checkpoint of the run folder."""

    def check(self) -> TrainConfig:
        """Return the config itself; raise ValueError where a value is out of range."""
        for name in (
            "steps",
            "prompts",
            "group",
            "updates",
            "max_tokens",
            "rank",
            "micro_tokens",
            "eval_every",
            "eval_tasks",
        ):
            _require(self, name, getattr(self, name) >= 1, "must be at least 1")
        for name in (
            "lr",
            "alpha",
            "clip_norm",
            "temperature",
            "turn_deadline",
            "episode_deadline",
            "step_deadline",
        ):
            value = getattr(self, name)
            _require(self, name, 0 < value < float("inf"), "must be above 0 and finite")
        for name in ("retries", "token_budget"):
            _require(self, name, getattr(self, name) >= 0, "must be 0 or more")
        _require(self, "lr_end", 0 <= self.lr_end <= 1, "must lie in [0, 1]")
        _require(self, "lr", self.lr <= 1, "must be at most 1; LoRA learns at about 1e-4 to 1e-3")
        check_machine(self.device, self.dtype, self.threads, self.seed)
        _require(self, "lora_dtype", self.lora_dtype in DTYPES, f"must be {' or '.join(DTYPES)}")
        self.engine_choice.check()
        return self

    @property
    def env_options(self) -> EnvOptions:
        """Return what the environment is made with."""
        return EnvOptions(self.tasks, self.difficulty, self.option)

    @property
    def engine_choice(self) -> EngineChoice:
        """Return which engine draws."""
        return EngineChoice(self.engine, self.server, self.server_option)


def read_recipe(name: str, base: Mapping[str, Any] = MappingProxyType({}), weaker: Collection[str] = ()) -> TrainConfig:
    """Return the config of a recipe: a name in `training/recipes` or the path of a TOML file.

    What the recipe leaves out is as in `base`. `weaker` are isolation levels below the default that it may ask for.

    Raises:
        FileNotFoundError: there is no such recipe.
        ValueError: a key is unknown, a value has the wrong type or range, or an isolation level is too weak.
    """
    path = _recipe_file(name)
    _trusted(from_mapping(values := _toml(path), str(path)), weaker, path)
    return from_mapping({**base, **values}, str(path))


def recipe_keys(name: str, weaker: Collection[str] = ()) -> dict[str, Any]:
    """Return what a recipe sets. Raises as `read_recipe` does."""
    read_recipe(name, weaker=weaker)
    return _toml(_recipe_file(name))


def _recipe_file(name: str) -> Path:
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        known = sorted(found.stem for found in RECIPES.glob("*.toml"))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise FileNotFoundError(
            f"there is no recipe {name!r}; {hint}recipes are {', '.join(known)}, or the path of a .toml file"
        )
    return path


def from_mapping(values: Mapping[str, Any], where: str) -> TrainConfig:
    """Return the config with `values` set; `where` names their source in errors."""
    fields, kinds = {field.name: field for field in dataclasses.fields(TrainConfig)}, get_type_hints(TrainConfig)
    for key, value in values.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{where}: unknown key {key!r}; {hint}keys are {', '.join(fields)}")
        if not _fits(value, kinds[key]):
            raise ValueError(f"{where}: {key} is {value!r}; it must be of type {fields[key].type}")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return TrainConfig(**given).check()


def to_toml(config: TrainConfig, record: Mapping[str, Any]) -> str:
    """Return `config.toml`: the resolved config and a record of what made the run (version, levels, …)."""
    lines = ["[train]"]
    for key, value in dataclasses.asdict(config).items():
        if value is not None and key != "resume":
            lines.append(f"{key} = {_literal(value)}")
    lines += ["", "[record]", *(f"{key} = {_literal(value)}" for key, value in record.items())]
    return "\n".join(lines) + "\n"


def from_run(folder: Path, weaker: Collection[str] = ()) -> TrainConfig:
    """Return the config of a run folder; `weaker` are isolation levels below the default that it may ask for.

    Raises:
        ValueError: it is no config of a run, or it asks for another level below the default.
    """
    path = folder / "config.toml"
    values = _toml(path).get("train")
    if not isinstance(values, dict):
        raise ValueError(f"{path} has no table [train]; it is no config of a run")
    return _trusted(from_mapping(values, str(path)), weaker, path)


def _trusted(config: TrainConfig, weaker: Collection[str], path: Path) -> TrainConfig:
    refuse_weaker(config.env_options.kwargs(), weaker, str(path))
    return config


def recorded(folder: Path) -> dict[str, Any]:
    """Return the record of what made the run of a folder; empty where there is none."""
    record = _toml(folder / "config.toml").get("record")
    return record if isinstance(record, dict) else {}


def revision() -> str:
    """Return the git revision of the code, with `+` where files differ from it; `unknown` outside a checkout."""
    folder = Path(__file__).parent
    try:
        git = ["git", "-C", str(folder)]
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=5
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True, timeout=5
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head + ("+" if changed else "")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    return type(value) in ((int, float) if kind is float else (kind,))


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_literal(key)} = {_literal(item)}' for key, item in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _require(config: TrainConfig, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {getattr(config, name)!r}; it {rule}")
