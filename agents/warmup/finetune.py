"""Fine-tuning LoRA weights of any model on demonstrations: an expert's play, or one's own conversations.

The loss is on what an assistant says, end of turn included, told by place and never by token: a model may pad with the
token that ends its turns. A tenth of the demonstrations is held out, and its loss is written beside the other.

The folder can be used as `--policy`. Its checkpoints hold the adapter as peft reads it: `checkpoints/step-N/adapter`.
`prepare` finds mistakes without torch, `run` trains. What died goes on from its last checkpoint, to the same weights.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...envs import Message
from ...envs.examples import conversations
from ...envs.options import check_levels
from ...envs.split_episodes import Split, open_split
from ...tools.files import refuse_links_out_of
from ...tools.progress import track
from ..cli.settings import LoraOptions, MachineOptions, WarmupOptions, check_device
from ..evaluation.run import checked_chat, cut
from ..journal.checkpoint import read_state, save
from ..journal.trees import append_line, lock_folder, make_writable_folder, write_file
from ..models.architecture import check_architecture
from ..models.folder import read_toml
from ..models.memory import check_fits
from ..models.resolve import Source, find, max_tokens, suited
from .pretrain import CHECKPOINTS, Demonstration, WarmupStep, demonstrations, resumable

if TYPE_CHECKING:
    from ..chat.chat import Chat
    from .supervised import Example

CONFIG, LOSSES = "config.toml", "losses.jsonl"
SAVE_SECONDS = 60.0
HELD_OUT = 0.1
ROWS = 8  # held-out episodes of a forward pass


@dataclass(frozen=True)
class Finetune:
    """What a fine-tuning depends on: a policy, an environment with its options or a file of conversations, training."""

    policy: str
    env: str
    options: dict[str, Any]
    data: str
    training: WarmupOptions
    lora: LoraOptions
    machine: MachineOptions

    def to_json(self) -> dict[str, Any]:
        options = json.dumps(self.options, default=list)
        found = {"policy": self.policy, "env": self.env, "data": self.data, "options": options}
        return found | asdict(self.training) | asdict(self.lora) | self.machine.loading()


@dataclass(frozen=True)
class PreparedFinetune:
    """A checked fine-tuning; `split` is None where the demonstrations are conversations of a file."""

    settings: Finetune
    source: Source
    chat: "Chat"
    split: Split | None
    out: Path
    checkpoint: Path | None


def prepare(settings: Finetune, out: Path, *, resume: bool = False) -> PreparedFinetune:
    """Return what `run` needs. Raises ValueError, OSError or LevelRefused: what is wrong, its value and the fix."""
    for part in (settings.training, settings.lora, settings.machine):
        part.check()
    for name in ("size", "vocabulary"):
        if (value := getattr(settings.training, name)) != getattr(WarmupOptions, name):
            raise ValueError(
                f"{name} is {value!r}, which is for policies made from nothing; leave it or --policy out"
            )
    check_device(settings.machine.device)
    settings.machine.check_dtype()
    source = find(settings.policy)
    check_architecture(source.folder, trains=True)  # what is warmed up is trained next
    source.check_targets(settings.lora.targets)
    check_fits(
        source.folder,
        settings.machine.dtype,
        settings.machine.device,
        lora=source.lora() or settings.lora,
    )
    from ..chat.chat import Chat

    split = None
    if settings.data:
        next(conversations(Path(settings.data).expanduser()))
        chat = Chat.from_folder(source.folder, source.template)
    else:
        options = {"split": "train", **settings.options}
        split = open_split(settings.env, {**suited(settings.env, options, source), **options})
        check_levels(split.env)
        next(
            demonstrations(split.env, 1, 0.0, settings.training.seed, split.tasks)
        )  # there is an expert
        chat = checked_chat(source, split.env)
    refuse_links_out_of(out)
    before = read_toml(out / CONFIG).get("warmup", {}) if (out / CONFIG).is_file() else {}
    checkpoint = resumable(out, before, settings.to_json(), resume)
    if checkpoint is not None and read_state(checkpoint)["step"] >= settings.training.steps:
        raise ValueError(f"the warm-up in {out} is finished; use it with --policy {out}")
    make_writable_folder(out)
    return PreparedFinetune(settings, source, chat, split, out, checkpoint)


def run(prepared: PreparedFinetune) -> Iterator[WarmupStep]:
    """Play or read demonstrations, and train, telling of each step. Raises BlockingIOError, ValueError."""
    from ..policy import load_policy
    from .supervised import Tuner

    settings, out, training = prepared.settings, prepared.out, prepared.settings.training
    with lock_folder(out):
        about = {**settings.to_json(), "max_tokens": max_tokens(prepared.source)}
        lines = [
            f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in about.items()
        ]
        write_file(out / CONFIG, "\n".join(["[warmup]", *lines]) + "\n")
        learned, held, note = _divided(
            list(track(_demonstrations(prepared), "episodes", training.episodes)), training
        )
        yield WarmupStep(0, note=note)
        machine = {**settings.machine.loading(), "threads": training.threads}
        policy = load_policy(prepared.source, **machine, lora=settings.lora, seed=training.seed)
        tuner = Tuner(policy, training)
        if prepared.checkpoint is not None:
            tuner.load(prepared.checkpoint, int(read_state(prepared.checkpoint)["step"]))
        start = tuner.loss(held, ROWS)
        yield WarmupStep(
            tuner.step, start, f"step {tuner.step}/{training.steps}  held-out loss {start:.3f}"
        )
        saved, tenth = 0.0, max(training.steps // 10, 1)
        for loss in tuner.learn(learned):
            line: dict[str, Any] = {"step": tuner.step, "loss": loss}
            last = tuner.step == training.steps
            if last or tuner.step % tenth == 0:
                line["held_out"] = tuner.loss(held, ROWS)
            append_line(out / LOSSES, json.dumps(line))
            if last or time.monotonic() - saved > SAVE_SECONDS:
                save(out / CHECKPOINTS, tuner.step, {}, tuner.save)
                saved = time.monotonic()
            told = [f"held-out loss {line['held_out']:.3f}"] if "held_out" in line else []
            told += [f"loss {loss:.3f}"] * last
            yield WarmupStep(
                tuner.step,
                loss,
                "\n".join(f"step {tuner.step}/{training.steps}  {one}" for one in told),
            )


def _divided(
    examples: "list[Example]", training: WarmupOptions
) -> "tuple[list[Example], list[Example], str]":
    """Return what is learned, what is held out, and how much that is; ValueError where too few fit the context."""
    fitting = [
        one for one in examples if len(one.tokens) <= training.context and one.assistant.any()
    ]
    if 2 * len(fitting) < len(examples) or len(fitting) < 2:
        longest = max(len(one.tokens) for one in examples)
        raise ValueError(
            f"{len(fitting)} of {len(examples)} demonstrations fit the context of {training.context} tokens (the "
            f"longest has {longest}); two, and half of them, are needed: ask for more with --context"
        )
    held = fitting[-max(round(HELD_OUT * len(fitting)), 1) :]
    learned, spoken = fitting[: -len(held)], sum(int(one.assistant.sum()) for one in fitting)
    note = f"{len(learned)} demonstrations to learn from and {len(held)} held out, {spoken} tokens of the assistant's"
    return learned, held, note


def _demonstrations(prepared: PreparedFinetune) -> "Iterator[Example]":
    settings, chat, training = prepared.settings, prepared.chat, prepared.settings.training
    if prepared.split is not None:
        env, ends = prepared.split.env, cut(prepared.split.env, chat)
        for one in demonstrations(
            env, training.episodes, training.noise, training.seed, prepared.split.tasks
        ):
            yield one.example(chat, ends)
        return
    for where, messages in islice(
        conversations(Path(settings.data).expanduser()), training.episodes
    ):
        try:
            yield _demonstration(messages).example(chat)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _demonstration(messages: Sequence[Message]) -> Demonstration:
    turns = [
        (own, list(some))
        for own, some in groupby(messages, lambda message: message["role"] == "assistant")
    ]
    if turns[0][0] or not turns[-1][0]:
        roles = ", ".join(message["role"] for message in messages)
        raise ValueError(
            f"the roles are {roles}; a demonstration ends with `assistant` and begins before it"
        )
    if any(own and len(some) > 1 for own, some in turns):
        raise ValueError("two messages of the assistant follow each other; join them")
    (_, opening), *others = turns
    says = [str(message["content"]) for own, some in others for message in some if own]
    return Demonstration(opening, [], says, [some for own, some in others if not own])
