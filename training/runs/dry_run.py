"""What `turngym train --dry-run` says: whether a run could begin, the memory it takes, and its first prompt.

Nothing is drawn or written, and no weights are read: the small files of a model are enough, and partly not needed.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich.markup import escape

from ...agents.chat.chat import Chat
from ...agents.cli.settings import check_device
from ...agents.cli.terminal import console, said_of
from ...agents.evaluation.run import checked_chat, pick_tasks
from ...agents.models.architecture import check_architecture
from ...agents.models.folder import read_toml
from ...agents.models.memory import (
    GIB,
    Load,
    Needed,
    count_of,
    free_bytes,
    needed,
    parameters,
    read_config,
)
from ...agents.models.resolve import Source, find, max_tokens, suited
from ...envs import TextEnv
from ...envs.options import check_levels, levels_of
from ...envs.registry import defaults_of
from ...envs.split_episodes import Split, begin
from ..methods import check_group, check_methods
from .config import TrainConfig, adjust
from .run import check_fit, open_splits, task_options

T = TypeVar("T")
OPENINGS = 64  # tasks whose opening is measured
SLOTS = 64  # conversations that the embedded engine keeps at a time
PROBE = 13_312  # tokens of its test, at its start, whether rows of a batch depend on each other
CHARACTERS = 3  # of a token, where there is no tokenizer to count with
ASSUMED = 1024  # tokens of an opening, where there are no tasks to measure
SIZES = (  # settings of a config.json that lengths and memory are computed from
    "max_position_embeddings",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
)
PUBLISHED = read_toml(
    Path(__file__).with_name("models.toml")
)  # the config.json of models that recipes name


@dataclass(frozen=True)
class Line:
    """What was found: `passed` is None where there is nothing to pass."""

    what: str
    about: str
    passed: bool | None = None


@dataclass(frozen=True)
class Lengths:
    """Tokens of some tasks' openings, the largest numbers of tokens of a turn and of turns, and the model's context."""

    openings: list[int]
    turn: int
    turns: int
    context: int

    @property
    def path(self) -> int:
        """The longest path, without what the environment answers."""
        return min(max(self.openings) + self.turns * self.turn, self.context)

    def check(self) -> str:
        """Say how long paths become. Raises ValueError where an opening leaves no room for a turn."""
        if (longest := max(self.openings)) + self.turn > self.context:
            what = f"an opening of {longest} tokens and a turn of {self.turn} are more than the model's context"
            raise ValueError(
                f"{what} of {self.context} tokens; lower --max-tokens, or choose another policy or tasks"
            )
        turns = f"{self.turns} turns of up to {self.turn}, and what the environment answers"
        return f"up to {self.path:,} tokens of {self.context:,} in {turns}"


@dataclass
class Findings:
    """The lines of a dry run, and the first prompt as the model will see it."""

    lines: list[Line] = field(default_factory=list)
    prompt: str = ""

    def add(self, what: str, about: str, passed: bool | None = None) -> None:
        self.lines.append(Line(what, about, passed))

    @property
    def failed(self) -> int:
        return sum(line.passed is False for line in self.lines)

    def check(self, what: str, work: Callable[[], T], say: Callable[[T], str] = str) -> T | None:
        """Return what `work` returns; None where it finds a mistake. Add a line about it if there is one to add."""
        try:
            result = work()
        except Exception as error:
            if (text := said_of(error)) is None:
                raise
            self.add(what, text, False)
            return None
        if about := say(result):
            self.add(what, about, True)
        return result


def dry_run(config: TrainConfig, recipe: str, named: Collection[str]) -> Findings:
    """Check a run; the arguments are those of `adjust`."""
    found = Findings()
    source = found.check(
        "model",
        lambda: _usable_model(config),
        lambda source: f"{source.folder}, {parameters(source.folder):,} weights",
    )
    if source is None and config.policy in PUBLISHED:
        found.add(
            "model",
            f"to get it: hf download {config.policy}; the sizes below are its published ones",
        )
    if recipe and source is not None:
        config, said = adjust(config, recipe, named, source)
        for line in said:
            found.add("recipe", line)
    sound = found.check("settings", lambda: _settings(config, source))
    found.check(
        "device", lambda: check_device(config.machine.device), lambda _: config.machine.device
    )
    here = bool(found.lines[-1].passed)
    found.check("dtype", config.machine.check_dtype, lambda _: config.machine.dtype)
    options = found.check(
        "options", lambda: task_options(config), lambda options: ", ".join(options) or "none"
    )
    if options is None:
        return found
    speaker, asked = (
        source,
        found.check("template", lambda: suited(config.env, options, source), lambda _: ""),
    )
    if asked is None:
        speaker, asked = None, suited(config.env, options, None)
    splits = found.check("tasks", lambda: open_splits(config, {**asked, **options}), _counted)
    if splits is None:
        found.add("prompts", f"taken to be of {ASSUMED:,} tokens, as there are no tasks to measure")
        turns = int({**defaults_of(config.env), **options}.get("max_turns") or 1)
        _size(found, config, source, [ASSUMED], turns, here)
        return found
    with closing(splits[0].env) as env, closing(splits[1].env):
        found.check("tools", lambda: check_levels(env), lambda _: _tools(env))
        chat = None
        if speaker is not None:
            style = getattr(env, "format", None) if env.tool_schemas() else None
            calls = f", calls as {style.name}" if style else ""
            chat = found.check(
                "template",
                lambda: checked_chat(speaker, env),
                lambda chat: f"{chat.template.name}, turns end with {_end(chat)}{calls}",
            )
        if chat is not None and sound:
            found.check(
                "method", lambda: check_fit(config, chat, env), lambda _: "fits the environment"
            )
        openings = found.check("prompts", lambda: _open(found, config, splits[0], chat), _spread)
        if openings is not None:
            _size(found, config, source, openings, env.max_turns, here)
    return found


def tell(found: Findings) -> int:
    marks = {True: "[green]ok   [/green]", False: "[bold red]FAILS[/bold red]", None: "     "}
    for line in found.lines:
        console.print(f"{line.what:9} {marks[line.passed]} {escape(line.about)}", soft_wrap=True)
    if found.prompt:
        console.print("\nthe first prompt, as the model sees it:", style="bold")
        console.print(found.prompt, markup=False, soft_wrap=True)
    if found.failed:
        console.print(f"\n{found.failed} checks failed; nothing was drawn or written", style="red")
    return 1 if found.failed else 0


def _end(chat: Chat) -> str:
    """Return what the template ends a turn with, the end token as the tokenizer names it."""
    return repr(
        str(chat.tokenizer.decode(chat.end.tolist(), skip_special_tokens=False))
        or str(chat.template.turn_end())
    )


def _usable_model(config: TrainConfig) -> Source:
    source = find(config.policy, template=config.chat_template, weights=False)
    check_architecture(source.folder, trains=True, engine=config.engine.engine)
    return source


def _settings(config: TrainConfig, source: Source | None) -> str:
    config.check()
    config.engine.check_installed()
    check_methods(config.method)
    check_group(config.method, config.group)
    if source is not None:
        source.check_targets(config.lora.targets)
    return f"method {config.method}"


def _counted(splits: tuple[Split, Split]) -> str:
    train, valid = splits
    notes = "".join(f"; {note}" for note in dict.fromkeys((train.note, valid.note)) if note)
    return f"{len(train.tasks):,} to train on, {len(valid.tasks):,} to validate on{notes}"


def _tools(env: TextEnv) -> str:
    levels = levels_of(env)
    names = [str(schema["function"]["name"]) for schema in env.tool_schemas()] or [*levels]
    return (
        ", ".join(f"{name} ({levels[name]})" if name in levels else name for name in names)
        or "none"
    )


def _open(found: Findings, config: TrainConfig, train: Split, chat: Chat | None) -> list[int]:
    """Return the tokens of some tasks' openings, and keep the first prompt of the run where there is a tokenizer."""
    from ..loop.task_order import next_tasks

    (first,), _ = next_tasks(config.seed, len(train.tasks), 0, 1, set())
    lengths = []
    for task in [train.tasks[first], *pick_tasks(train.tasks, OPENINGS - 1, config.seed)]:
        _, info = begin(train.env, task, config.seed)
        if chat is None:
            text = "".join(str(part) for part in (*info["messages"], *info["tools"]))
            lengths.append(-(-len(text) // CHARACTERS))
            continue
        tokens = chat.prompt(info["messages"], info["tools"])
        lengths.append(len(tokens))
        found.prompt = found.prompt or str(
            chat.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
        )
    return lengths


def _spread(lengths: list[int]) -> str:
    return f"{min(lengths)} to {max(lengths)} tokens in {len(lengths)} tasks, half of them up to {median(lengths):.0f}"


def _size(
    found: Findings,
    config: TrainConfig,
    source: Source | None,
    openings: list[int],
    turns: int,
    here: bool,
) -> None:
    shape = read_config(source.folder) if source is not None else PUBLISHED.get(config.policy)
    if not shape:
        return
    unnamed = [name for name in SIZES if name not in shape]
    if unnamed:
        found.add(
            "memory", f"not computed: the model's config.json does not name {', '.join(unnamed)}"
        )
        return
    count = parameters(source.folder) if source is not None else count_of(shape)
    if source is not None and (lora := source.lora()):
        config = replace(config, lora=lora)
    limit = max_tokens(source) if config.sampling.max_tokens is None else config.sampling.max_tokens
    lengths = Lengths(openings, limit, turns, int(shape["max_position_embeddings"]))
    found.check("lengths", lengths.check)
    takes, tokens, cached = predicted(config, shape, count, lengths)
    parts = {
        "weights": f"{config.machine.dtype}, frozen",
        "copy": "the rollout's own weights, with the LoRA update in them",
        "merging": "the largest matrix of them, while it gets its update",
        "lora": f"LoRA of rank {config.lora.rank} in {config.lora.lora_dtype}",
        "optimizer": "its gradient and both moments",
        "cache": f"keys and values of {cached:,} tokens, or of the test at the engine's start",
        "activations": f"what a forward pass of {tokens:,} tokens keeps"
        + ", layer by layer" * config.checkpointing,
        "logits": "a chunk of logits with their gradient",
    }
    for part, about in parts.items():
        if size := getattr(takes, part):
            found.add("memory", f"{size / GIB:7.2f} GiB  {about}")
    device, choice = config.machine.device, config.engine
    there = free_bytes(device) if here else None
    share = _server_share(choice.server_option) if choice.own_server else 0.0
    more = f", beside {share:.0%} of the GPU for the server" if share else ""
    free = "cannot be asked here" if there is None else f"has {there / GIB:.2f} GiB free"
    fits = None if there is None else takes.total <= there * (1 - share)
    found.add("memory", f"{takes.total / GIB:7.2f} GiB  together{more}; {device} {free}", fits)


def _server_share(options: Collection[str]) -> float:
    """Return the share of the GPU that a server takes; without an option it is vLLM's default."""
    named = dict(option.replace("_", "-").partition("=")[::2] for option in options)
    return float(named.get("gpu-memory-utilization", 0.9))


def predicted(
    config: TrainConfig, shape: Mapping[str, Any], count: int, lengths: Lengths
) -> tuple[Needed, int, int]:
    """Return what a run takes, the tokens of a forward pass (at most a step's, openings once), and of the cache."""
    path, opening = lengths.path, max(lengths.openings)
    tokens = min(
        max(config.micro_tokens, path), config.prompts * (opening + config.group * (path - opening))
    )
    served, slots = (
        config.engine.engine != "torch",
        max(config.prompts * config.group, config.eval_tasks),
    )
    cached = 0 if served else max(min(SLOTS, slots) * path, PROBE)
    work = Load(tokens, tokens, config.checkpointing, copied=not served)
    return needed(shape, count, config.machine.dtype, config.lora, cached, work), tokens, cached
