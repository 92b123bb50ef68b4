"""Supervised learning of whole episodes: the model learns what the agent said, given all that stood before it.

Matrices are learned by Muon (Jordan et al. 2024), which takes far fewer steps here than Adam alone; the embedding, the
head and the norms by AdamW (Loshchilov and Hutter, arXiv:1711.05101).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..envs import Message
from .chat.chat import Chat
from .engine import Cut
from .warmup.settings import SIZES
from .warmup.tokenizer import END, PAD

POOL = 32  # batches whose episodes are sorted by length, so that little is padded
WARM = 30  # steps in which the learning rate rises
PADDING, READ, SAID = range(3)


@dataclass(frozen=True)
class Lesson:
    """An episode: its tokens `(t,)` and where the agent spoke `(t,)`."""

    tokens: NDArray[np.int32]
    said: NDArray[np.bool_]


@dataclass(frozen=True)
class Course:
    """How lessons are learned: `batch` a step, each once before any comes again, at a learning rate up to `lr`.

    `read` is what a token that the agent read weighs beside one that it said. Predicting what it reads teaches a model
    early to copy names, which what it says alone teaches late.
    """

    steps: int
    batch: int = 32
    lr: float = 2e-3
    seed: int = 0
    read: float = 0.0


def lay(
    chat: Chat,
    opening: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    says: Sequence[str],
    answers: Sequence[Sequence[Message]],
    cut: Cut | None = None,
) -> Lesson:
    """Lay out an episode as a rollout does; a turn that `cut` takes for complete has no end token."""
    tokens = chat.prompt(opening, tools).tolist()
    said = [False] * len(tokens)
    end = next(iter(chat.end_ids()))
    for turn, text in enumerate(says):
        spoken = chat.tokenizer.encode(text, add_special_tokens=False).ids
        spoken += [] if cut is not None and cut.complete(text) else [end]
        tokens, said = tokens + spoken, said + [True] * len(spoken)
        if turn < len(answers):
            between = chat.reply(answers[turn], spoken[-1]).tolist()
            tokens, said = tokens + between, said + [False] * len(between)
    return Lesson(np.array(tokens, np.int32), np.array(said, np.bool_))


def new_model(chat: Chat, size: str, context: int) -> Any:
    """Return a Qwen3 model that knows nothing, of one of `SIZES`.

    Weights are drawn as wide as a model this narrow needs. The head begins as the embedding, so that copying a token is
    near at hand, and is not tied to it.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=chat.tokenizer.get_vocab_size(),
            eos_token_id=chat.tokenizer.token_to_id(END),
            pad_token_id=chat.tokenizer.token_to_id(PAD),
            num_key_value_heads=SIZES[size]["num_attention_heads"],
            head_dim=32,
            max_position_embeddings=context,
            rope_theta=10000.0,
            tie_word_embeddings=False,
            **SIZES[size],
        )
    )
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=SIZES[size]["hidden_size"] ** -0.5)
    with torch.no_grad():
        model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    return model


class Pupil:
    """A model that learns, with its optimizers and the steps it has taken."""

    def __init__(self, model: Any, course: Course) -> None:
        self.model, self.course, self.step = model, course, 0
        ends = {model.model.embed_tokens.weight, model.lm_head.weight}
        inner = [weight for weight in model.parameters() if weight.ndim == 2 and weight not in ends]
        others = [weight for weight in model.parameters() if weight.ndim != 2 or weight in ends]
        self.optimizers: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(inner, lr=course.lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=course.lr, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def learn(self, lessons: Sequence[Lesson]) -> Iterator[float]:
        """Take the steps that are left, yielding the loss of each on what the agent said (nats a token)."""
        course = self.course
        while self.step < course.steps:
            epoch, at = divmod(self.step, max(len(lessons) // course.batch, 1))
            picks = batches([len(lesson.tokens) for lesson in lessons], course.batch, (course.seed, epoch))
            for pick in picks[at : at + course.steps - self.step]:
                yield self._step(*pad([lessons[i] for i in pick]))

    def _step(self, tokens: Tensor, kinds: Tensor) -> float:
        course = self.course
        rate = min((self.step + 1) / WARM, 1.0)
        rate *= 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * self.step / course.steps))
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = course.lr * rate
        weights = torch.tensor([0.0, course.read, 1.0])[kinds[:, 1:]]
        learned = weights > 0
        hidden = self.model.model(input_ids=tokens).last_hidden_state[:, :-1][learned]
        losses = torch.nn.functional.cross_entropy(self.model.lm_head(hidden), tokens[:, 1:][learned], reduction="none")
        weight, said = weights[learned], kinds[:, 1:][learned] == SAID
        self.model.zero_grad()
        ((losses * weight).sum() / weight.sum()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return float(losses[said].detach().mean())

    def save(self, folder: Path) -> None:
        """Write weights and optimizers."""
        tensors: dict[str, Tensor] = {}
        for name, weight, moments in self._learned():
            tensors |= {name: weight.detach()} | {f"{name}/{part}": moments[part] for part in moments}
        save_file(tensors, folder / "pupil.safetensors")

    @torch.no_grad()
    def load(self, folder: Path, step: int) -> None:
        """Go on from what `save` wrote after `step` steps."""
        tensors = load_file(folder / "pupil.safetensors")
        for name, weight, moments in self._learned():
            weight.copy_(tensors[name])
            moments.update({part[len(name) + 1 :]: tensors[part] for part in tensors if part.startswith(f"{name}/")})
        self.step = step

    def _learned(self) -> Iterator[tuple[str, Tensor, dict[str, Tensor]]]:
        """Yield name and value of every weight, and what its optimizer knows of it."""
        of = {
            weight: optimizer
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        for name, weight in self.model.named_parameters():
            yield name, weight, of[weight].state[weight]


def batches(lengths: Sequence[int], size: int, seed: tuple[int, ...]) -> list[list[int]]:
    """Return the batches of one pass, as places in `lengths`: alike in length, in random order; the rest is left out.

    Fewer than `size` are one batch.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths)).tolist()
    found = []
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lambda i: lengths[i])
        found += [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
    return [found[i] for i in rng.permutation(len(found))] or [order]


def pad(lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor]:
    """Return tokens `[b, t]` and what each is `[b, t]`, `PADDING` (on the right), `READ` or `SAID`."""
    width = max(len(lesson.tokens) for lesson in lessons)
    tokens = torch.zeros(len(lessons), width, dtype=torch.long)
    kinds = torch.full((len(lessons), width), PADDING)
    for row, lesson in enumerate(lessons):
        tokens[row, : len(lesson.tokens)] = torch.from_numpy(lesson.tokens)
        kinds[row, : len(lesson.said)] = torch.where(torch.from_numpy(lesson.said), SAID, READ)
    return tokens, kinds
