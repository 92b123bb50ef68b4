"""Settings of commands, most of them shared by several: each field is named, documented and checked here alone.

Commands and recipes take the fields of nested settings by their names alone, as `--max-tokens 96` or `rank = 32`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from statistics import median
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ...tools.checks import did_you_mean

T = TypeVar("T")
DTYPES = ("float32", "bfloat16")
SLOW = 1.5  # times as long as float32 that bfloat16 may take
ENGINES = ("torch", "vllm")
API_KEY = "OPENAI_API_KEY"
SIZES: dict[str, dict[str, Any]] = {
    "mini": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "small": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    },
    "medium": {
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
    },
}
"""Architectures of new models, by name."""


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling of the agent's turns."""

    max_tokens: int | None = None
    """Largest number of tokens of a turn. By default 96 for `tiny` and policies of `turngym warmup`, 512 or 1024 for
    other models, and for the policy of a run what the run had."""
    temperature: float = 1.0
    """Sampling temperature. 0 is greedy; training refuses it."""

    def check(self) -> None:
        check_least(self, 1, "max_tokens")


@dataclass(frozen=True)
class EngineChoice:
    """The engine that draws tokens and, for `vllm`, its servers."""

    engine: str = "torch"
    """`torch` draws tokens in this process, `vllm` on a server."""
    server: tuple[str, ...] = ()
    """URLs of running vLLM servers. By default turngym starts a server and stops it at the end."""
    server_option: tuple[str, ...] = ()
    """Options of the server that turngym starts, as `name=value`: `gpu-memory-utilization=0.5`."""

    def check(self) -> None:
        _require(self, ["engine"], ENGINES.__contains__, f"one of {', '.join(ENGINES)}")
        for name in ("server", "server_option"):
            if self.engine != "vllm" and (value := getattr(self, name)):
                raise ValueError(
                    f"{name} is {value!r}, but the engine is {self.engine}; add --engine vllm"
                )
        if self.server and self.server_option:
            what = f"server_option is {self.server_option!r}, but the server {self.server[0]} is already running"
            raise ValueError(f"{what}; leave one of the two out")

    def check_installed(self) -> None:
        """Raise ValueError where a server would have to be started that is not installed here."""
        if self.own_server and find_spec("vllm") is None:
            fix = "pip install 'turngym[vllm]', or name a running server with --server http://127.0.0.1:8000"
            raise ValueError(f"engine vllm starts a server, and vllm is not installed here: {fix}")

    @property
    def own_server(self) -> bool:
        return self.engine == "vllm" and not self.server


@dataclass(frozen=True)
class EndpointOptions:
    """A model behind a URL that takes OpenAI's `/chat/completions`."""

    model: str = ""
    """Name of the model at `--base-url`, which is evaluated in place of `--policy`."""
    base_url: str = ""
    """Address of its server, such as `https://api.openai.com/v1` or `http://127.0.0.1:8000`."""
    api_key_env: str = API_KEY
    """Environment variable with the key."""
    tool_calls: Literal["structured", "text"] = "structured"
    """`structured` sends the tools' schemas and reads `tool_calls`; with `text` the system prompt teaches the calls."""
    concurrency: int = 8
    """The most requests at a time; fewer while the server is full."""
    retries: int = 6
    """How often a request is sent again."""
    timeout: float = 600.0
    """Seconds in which an answer must have come."""
    token_budget: int | None = None
    """Tokens, of prompts and answers together, after which nothing more is asked."""
    request: tuple[str, ...] = ()
    """Other fields of each request as `name=value`, such as `reasoning_effort=low`; the value may be JSON, and `none`
    leaves a field out."""
    return_reasoning: Literal["auto", "always", "never"] = "auto"
    """Whether what the model thought (`reasoning_content` and the like) is sent back with the rest of an episode:
    `auto` where the server refuses a request without it."""
    finish_reason: tuple[str, ...] = ()
    """Other words by which the server says that an answer is complete."""

    def check(self) -> None:
        for one, other in (("model", "base_url"), ("base_url", "model")):
            if getattr(self, one) and not getattr(self, other):
                flags = [f"--{name.replace('_', '-')}" for name in (one, other)]
                raise ValueError(
                    f"{flags[0]} is {getattr(self, one)!r}, and {flags[1]} is not given; give both"
                )
        check_least(self, 1, "concurrency", "token_budget")
        check_least(self, 0, "retries")
        check_positive(self, "timeout")


@dataclass(frozen=True)
class Deadlines:
    """Time limits of a rollout, and retries of failed paths. What overruns is a failure and has no score."""

    turn_deadline: float = 600.0
    """Seconds for drawing a turn, and for an answer of the environment; a path that takes longer fails."""
    episode_deadline: float = 3600.0
    """Seconds for a path; one that takes longer fails."""
    step_deadline: float = 7200.0
    """Seconds for the rollout of a step; paths that have not ended by then fail."""
    stall_after: float = 120.0
    """Seconds without any movement after which an incident names what is pending."""
    retries: int = 2
    """How often a path with an infrastructure failure is started again, with the same key."""

    def check(self) -> None:
        check_positive(self, "turn_deadline", "episode_deadline", "step_deadline", "stall_after")
        check_least(self, 0, "retries")


@dataclass(frozen=True)
class LoraOptions:
    """The LoRA adapter."""

    rank: int = 32
    """LoRA rank."""
    alpha: float = 64.0
    """LoRA scale: the adapter's output is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Layers that get LoRA weights, named by the last part of their names: `q_proj v_proj`. By default all linear
    layers and the head."""
    lora_dtype: str = "float32"
    """Data type of the LoRA weights: `float32` or `bfloat16`."""

    def check(self) -> None:
        check_least(self, 1, "rank")
        check_positive(self, "alpha")
        _require(self, ["lora_dtype"], DTYPES.__contains__, " or ".join(DTYPES))


@dataclass(frozen=True)
class MachineOptions:
    """The device, the data type and the threads that compute the policy."""

    device: str = "cpu"
    """`cpu`, `cuda` or `mps`."""
    dtype: str = "float32"
    """Data type of the frozen weights: `float32` or `bfloat16`."""
    threads: int | None = None
    """CPU threads of torch. By default one learns, and as many draw as pay when it is measured at the start, which
    changes no token. Only runs that learn with the same number are bit-identical."""
    slow_dtype: bool = False
    """Take `bfloat16` also on a processor that is slower with it, for the memory that it spares."""

    def loading(self) -> dict[str, Any]:
        """Return what `load_policy` takes of this."""
        return {"device": self.device, "dtype": self.dtype, "threads": self.threads or 1}

    def check(self) -> None:
        """Raise ValueError for what no machine has; `check_device` knows whether this one has the device."""
        known = re.compile(r"cpu|mps|cuda(:\d+)?").fullmatch
        _require(
            self,
            ["device"],
            lambda name: known(name) is not None,
            "cpu, cuda (or cuda:0, cuda:1, …) or mps",
        )
        _require(self, ["dtype"], DTYPES.__contains__, " or ".join(DTYPES))
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; torch needs at least 1")

    def check_dtype(self) -> None:
        """Raise ValueError for bfloat16 where this processor is slower with it than with float32, unless asked for."""
        narrow = (self.device, self.dtype, self.slow_dtype) == ("cpu", "bfloat16", False)
        if narrow and find_spec("torch") and (ratio := slowness()) > SLOW:
            what = f"dtype is 'bfloat16', whose products take {ratio:.1f} times as long as float32's on this processor"
            raise ValueError(
                f"{what}; use --dtype float32, or add --slow-dtype for the memory that bfloat16 spares"
            )


def slowness() -> float:
    """Return how long products of 64 rows take on this processor in bfloat16, in units of float32's time, measured."""
    import torch

    took: dict[torch.dtype, list[float]] = {torch.bfloat16: [], torch.float32: []}
    for kind in [*took] * 6:
        rows, weight = (torch.ones(count, 1024, dtype=kind) for count in (64, 1024))
        began = time.process_time()
        torch.nn.functional.linear(rows, weight)
        took[kind].append(time.process_time() - began)
    narrow, wide = map(median, took.values())
    return narrow / wide


def check_device(name: str) -> None:
    """Raise ValueError where this machine lacks a device; torch is imported only where it is built for GPUs."""
    kind, _, index = name.partition(":")
    torch = find_spec("torch")
    if (
        kind == "cpu" or torch is None or torch.origin is None
    ):  # without torch it is missing, which is said elsewhere
        return
    version = Path(torch.origin).with_name("version.py").read_text("utf-8")
    built = re.search(r"^(cuda|hip)\b.*= '", version, re.MULTILINE)
    if kind == "mps":
        wrong = "" if sys.platform == "darwin" else "only Macs have it"
    elif not built:
        wrong = "the installed torch is built for CPUs alone"
    else:
        from torch.cuda import device_count

        wrong = (
            "" if int(index or 0) < (count := device_count()) else f"torch finds {count} GPUs here"
        )
    if wrong:
        raise ValueError(f"device is {name!r}, but {wrong}; use --device cpu")


@dataclass(frozen=True)
class WarmupOptions:
    """Training of a small policy on episodes of an expert."""

    episodes: int = 12000
    """Number of expert episodes to train on."""
    steps: int = 1000
    """Optimizer steps."""
    batch: int = 16
    """Episodes in an optimizer step."""
    lr: float = 8e-3
    """Largest learning rate."""
    noise: float = 0.3
    """Share of turns that are wrong on purpose, so that reinforcement learning has something to improve."""
    size: str = "mini"
    """`mini` (about 0.6M parameters), `small` (1M) or `medium` (5M)."""
    vocabulary: int = 4096
    """Largest number of tokens in the vocabulary."""
    context: int = 1024
    """Largest number of tokens in an episode; longer ones are left out."""
    seed: int = 0
    """Seed of all randomness."""
    threads: int = 1
    """CPU threads of torch. Two are faster if two cores are idle."""

    def check(self) -> None:
        check_least(self, 1, "episodes", "steps", "batch", "threads")
        check_least(self, 0, "seed")
        check_positive(self, "lr")
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise is {self.noise}; it is a share of turns, from 0 to below 1")
        if self.vocabulary < 300:
            raise ValueError(
                f"vocabulary is {self.vocabulary}; bytes and control tokens alone need 300"
            )
        _require(self, ["size"], SIZES.__contains__, f"one of {', '.join(SIZES)}")


FINETUNING = WarmupOptions(episodes=160, steps=40, batch=4, lr=1e-3, noise=0.0)
"""What `turngym warmup --policy` takes by default."""


def check_least(settings: Any, least: int, *names: str) -> None:
    """Raise ValueError for the first of the named fields that is less than `least`; None is left out."""
    rule = f"at least {least}" if least else "0 or more"
    _require(settings, names, lambda value: value is None or value >= least, rule)


def check_positive(settings: Any, *names: str) -> None:
    """Raise ValueError for the first of the named fields that is not above 0, or not finite."""
    _require(settings, names, lambda value: 0 < value < inf, "above 0 and finite")


def _require(settings: Any, names: Iterable[str], holds: Callable[[Any], bool], rule: str) -> None:
    for name in names:
        if not holds(value := getattr(settings, name)):
            raise ValueError(f"{name} is {value!r}; it must be {rule}")


def flat(settings: Any) -> dict[str, Any]:
    """Return the values of settings, those of nested settings included, by name."""
    values: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        values |= flat(value) if is_dataclass(value) else {field.name: value}
    return values


def changed(settings: T, values: Mapping[str, Any]) -> T:
    """Return settings with other values by the names of fields, nested ones too; TypeError for an unknown name."""
    if unknown := sorted(values.keys() - flat(settings).keys()):
        raise TypeError(f"{type(settings).__name__} has no field {', '.join(unknown)}")
    new, rest = dict[str, Any](), dict(values)
    for field in fields(settings):  # type: ignore[arg-type]
        if is_dataclass(value := getattr(settings, field.name)):
            new[field.name] = changed(
                value, {name: rest.pop(name) for name in flat(value) if name in rest}
            )
    return replace(settings, **new, **rest)  # type: ignore[type-var]


def parsed(settings: T, values: Mapping[str, Any], where: str) -> T:
    """Return settings with values of a file, `where` in errors. Raises ValueError: an unknown key, a wrong type."""
    known = {field.name: (field, kind) for field, kind in _flat_fields(type(settings))}
    for key, value in values.items():
        if key not in known:
            raise ValueError(
                f"{where}: unknown key {key!r}; {did_you_mean(key, known)}keys are {', '.join(known)}"
            )
        field, kind = known[key]
        if not _fits(value, kind):
            raise ValueError(f"{where}: {key} is {value!r}; it must be of type {field.type}")
    return changed(
        settings,
        {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()},
    )


def _flat_fields(settings: type) -> Iterator[tuple[Field[Any], Any]]:
    kinds = get_type_hints(settings)
    for field in fields(settings):
        if is_dataclass(kind := kinds[field.name]):
            yield from _flat_fields(kind)  # type: ignore[arg-type]
        else:
            yield field, kind


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(
            _fits(item, get_args(kind)[0]) for item in value
        )
    return type(value) in ((int, float) if kind is float else (kind,))
