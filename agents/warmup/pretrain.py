"""Warming up: a tokenizer and a small policy for an environment, made in minutes from its expert's play.

The expert plays with some wrong actions on purpose: a policy that learns from it can do what the expert does and does
not always do it, so that reinforcement learning has something to select.

`prepare` finds mistakes without torch; `run` makes the folder, and where it died goes on to the same weights.
"""

import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...envs import Message, TextEnv
from ...envs.options import check_levels
from ...envs.split_episodes import Split, begin, open_split
from ...tools.files import refuse_links_out_of
from ...tools.progress import track
from ..cli.settings import WarmupOptions
from ..evaluation.run import cut
from ..journal.checkpoint import latest, read_state, save
from ..journal.trees import make_writable_folder, write_file
from ..models.folder import read_json

if TYPE_CHECKING:
    from ..chat.chat import Chat
    from ..engine import Cut
    from .supervised import Example

SETTINGS = "warmup.json"
CHECKPOINTS = "checkpoints"
TOKENIZER = "tokenizer.json"
SAVE_EVERY = 100  # steps
TOKENIZER_EPISODES = 2_000  # that the tokenizer is trained on
CONTEXT_WEIGHT = 1.0  # of a token that the agent read; that of its own is 1


@dataclass(frozen=True)
class Settings:
    """An environment, its options, and the training on its expert: together they determine the weights."""

    env: str
    options: dict[str, Any]
    training: WarmupOptions

    def to_json(self) -> dict[str, Any]:
        return {"env": self.env, "options": self.options, **asdict(self.training)}


@dataclass(frozen=True)
class PreparedWarmup:
    """A checked warm-up; `checkpoint` is where it goes on from."""

    settings: Settings
    split: Split
    out: Path
    checkpoint: Path | None


@dataclass(frozen=True)
class WarmupStep:
    """How far a warm-up is: the steps `done`, the `loss` of the last one if it is new, and what there is to say."""

    done: int
    loss: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Demonstration:
    """One episode: the messages and tools it opens with, what was said in each turn, and the answers in between."""

    opening: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    says: Sequence[str]
    answers: Sequence[Sequence[Message]]  # one less than `says`: nothing answers the last turn
    reward: float = 0.0

    def texts(self) -> Iterator[str]:
        for message in (*self.opening, *(message for answer in self.answers for message in answer)):
            yield f"{message['role']}\n"
            yield str(message["content"])
        yield from self.says

    def example(self, chat: "Chat", ends: "Cut | None" = None) -> "Example":
        """Return its tokens as a rollout has them; a turn that `ends` takes for complete has no end token.

        Raises ValueError where the chat template ends turns with plain text, so that there is no end to learn.
        """
        from .supervised import Example

        tokens = chat.prompt(self.opening, self.tools).tolist()
        assistant = [False] * len(tokens)
        if not len(chat.end):
            what = f"{chat.template.name} has a chat template that ends turns with {str(chat.template.turn_end())!r:.40}"
            fix = "write a control token behind an assistant's content, such as {{ eos_token }}"
            raise ValueError(
                f"{what}, so a warm-up has no token to teach as the end of a turn; {fix}"
            )
        for turn, text in enumerate(self.says):
            spoken = chat.tokenizer.encode(text, add_special_tokens=False).ids
            spoken += [] if ends is not None and ends.complete(text) else chat.end.tolist()
            tokens, assistant = tokens + spoken, assistant + [True] * len(spoken)
            if turn < len(self.answers):
                between = chat.reply(self.answers[turn], spoken[-1]).tolist()
                tokens, assistant = tokens + between, assistant + [False] * len(between)
        return Example(np.array(tokens, np.int32), np.array(assistant, np.bool_))


def demonstrations(
    env: TextEnv, count: int, noise: float, seed: int, tasks: Sequence[int]
) -> Iterator[Demonstration]:
    """Yield `count` episodes on `tasks` of `env` in order, again when they run out.

    The same arguments give the same episodes. `noise` is the chance that a turn is wrong: another command that is
    allowed, or a turn of another task's gold.
    """
    for index in range(count):
        yield _demonstrate(env, tasks, index % len(tasks), noise, random.Random(f"{seed}/{index}"))


def _demonstrate(
    env: TextEnv, tasks: Sequence[int], place: int, noise: float, rng: random.Random
) -> Demonstration:
    with closing(env.fork()) as env:
        observation, info = begin(env, tasks[place], rng.getrandbits(31))
        opening, tools = info["messages"], info["tools"]
        expert = (
            env.expert() if hasattr(env, "expert") else None
        )  # what plays well from what it is shown
        says: list[str] = []
        answers: list[list[Message]] = []
        reward = 0.0
        while env.live:
            says.append(expert.act(observation) if expert else env.gold()[0])
            if rng.random() < noise:
                says[-1] = _wrong_action(env, tasks, rng)
                if expert:
                    expert.command = says[-1]
            observation, earned, _, _, info = env.step(says[-1])
            answers.append(info["messages"])
            reward += earned
        return Demonstration(opening, tools, tuple(says), tuple(answers[:-1]), reward)


def _wrong_action(env: TextEnv, tasks: Sequence[int], rng: random.Random) -> str:
    """Return an action that the environment takes, though not for what it may lead to."""
    allowed = getattr(env, "admissible_commands", None)
    if allowed is not None:
        return str(rng.choice(allowed()))
    with closing(env.fork()) as other:
        begin(other, tasks[rng.randrange(len(tasks))], None)
        return rng.choice(other.gold())


def prepare(settings: Settings, out: Path, *, resume: bool = False) -> PreparedWarmup:
    """Return what `run` needs. Raises ValueError, OSError or LevelRefused: what is wrong, its value and the fix."""
    settings.training.check()
    split = open_split(settings.env, {"split": "train", **settings.options})
    check_levels(split.env)
    refuse_links_out_of(out)
    before = read_json(out / SETTINGS, follow=False) if (out / SETTINGS).exists() else {}
    checkpoint = resumable(out, before, settings.to_json(), resume)
    if resume and (out / "model.safetensors").exists() and not (out / CHECKPOINTS).exists():
        raise ValueError(f"the warm-up in {out} is finished; use it with --policy {out}")
    next(
        demonstrations(split.env, 1, 0.0, settings.training.seed, split.tasks)
    )  # there is an expert
    make_writable_folder(out)
    return PreparedWarmup(settings, split, out, checkpoint)


def run(prepared: PreparedWarmup) -> Iterator[WarmupStep]:
    """Play, make the tokenizer, train and write the folder, telling of each step."""
    import torch

    from ..chat.chat import Chat
    from ..chat.template import Template
    from .supervised import TEMPLATE, Trainer, new_model, train_tokenizer, write_tokenizer

    settings, split, out, began = prepared.settings, prepared.split, prepared.out, time.monotonic()
    training = settings.training
    write_file(out / SETTINGS, json.dumps(settings.to_json(), indent=1) + "\n")
    playing = demonstrations(
        split.env, training.episodes, training.noise, training.seed, split.tasks
    )
    played = list(track(playing, "episodes", training.episodes))
    texts = (text for one in played[:TOKENIZER_EPISODES] for text in ("assistant\n", *one.texts()))
    chat = Chat(train_tokenizer(texts, training.vocabulary), Template(TEMPLATE))
    if prepared.checkpoint is not None and chat.tokenizer.to_str() != (out / TOKENIZER).read_text(
        "utf-8"
    ):
        what = f"{settings.env} has changed since the warm-up in {out} was started"
        raise ValueError(f"{what}; start again in another folder")
    write_file(out / TOKENIZER, chat.tokenizer.to_str())
    examples = _examples(chat, played, prepared)
    yield WarmupStep(0, note=_about(played, examples, chat))
    torch.set_num_threads(training.threads)
    model = new_model(chat, training.size, training.context, training.seed)
    trainer = Trainer(model, training, CONTEXT_WEIGHT)
    if prepared.checkpoint is not None:
        trainer.load(prepared.checkpoint, int(read_state(prepared.checkpoint)["step"]))
    for loss in trainer.learn(examples):
        if trainer.step % SAVE_EVERY == 0:
            save(out / CHECKPOINTS, trainer.step, {}, trainer.save)
        last = trainer.step == training.steps
        yield WarmupStep(
            trainer.step,
            loss,
            f"step {trainer.step}/{training.steps}  loss {loss:.3f}" if last else "",
        )
    write_tokenizer(chat.tokenizer, out, training.context)
    model.half().save_pretrained(out)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    yield WarmupStep(training.steps, note=f"made in {time.monotonic() - began:.0f} s")


def _examples(
    chat: "Chat", played: list[Demonstration], prepared: PreparedWarmup
) -> "list[Example]":
    ends = cut(prepared.split.env, chat)
    tokenized = [one.example(chat, ends) for one in played]
    context = prepared.settings.training.context
    examples = [example for example in tokenized if len(example.tokens) <= context]
    if 2 * len(examples) < len(tokenized):
        longest = max(len(example.tokens) for example in tokenized)
        what = f"{len(tokenized) - len(examples)} of {len(tokenized)} episodes are longer (up to {longest})"
        fix = "ask for more with --context, or for shorter episodes with --option max_turns=N"
        raise ValueError(f"context is {context} tokens, and {what}; {fix}")
    return examples


def _about(played: list[Demonstration], examples: "list[Example]", chat: "Chat") -> str:
    lengths = [len(example.tokens) for example in examples]
    turns, won = np.mean([(len(one.says), 100 * (one.reward > 0)) for one in played], axis=0)
    return (
        f"{len(played)} episodes of {turns:.1f} turns, {won:.1f} % of them successes; {len(examples)} fit the context, "
        f"with {np.mean(lengths):.0f} tokens (at most {max(lengths)}); vocabulary {chat.tokenizer.get_vocab_size()}"
    )


def resumable(
    out: Path, before: Mapping[str, Any], now: dict[str, Any], resume: bool
) -> Path | None:
    """Return the checkpoint in `out` to go on from; None where there is none yet. `before` are the settings there.

    Raises FileNotFoundError where there is nothing to go on from, ModuleNotFoundError without torch, and ValueError
    where `out` is not free, or the settings `now` are others.
    """
    if find_spec("torch") is None:
        raise ModuleNotFoundError("a warm-up trains with torch", name="torch")
    if not resume:
        if before or (out / "config.json").exists():
            what = f"{out} already holds a policy"
            raise ValueError(f"{what}; continue with --resume, or choose another folder with --out")
        return None
    if not before:
        raise FileNotFoundError(
            f"{out} holds no warm-up to resume; leave --resume out to start one"
        )
    for name, value in json.loads(json.dumps(now)).items():
        if (was := before.get(name)) != value:
            raise ValueError(
                f"{name} is {value!r}, but the warm-up in {out} was started with {was!r}; use that"
            )
    return latest(out / CHECKPOINTS)
