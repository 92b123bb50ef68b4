"""A small policy that begins in a diagnostic world as a table says: all its weights are trained on that table.

Every word is one token. What the agent is to say has a distribution that is known exactly in every state, so the model
learns distributions instead of examples: the loss is the divergence KL(table ‖ model), in nats a token. That takes one
or two hundred steps, and two seeds give policies that differ in their weights and little in what they do.
"""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...envs.diagnostic import NOUNS, DiagnosticState, Start, WorldEnv
from ...envs.split_episodes import Split, begin
from ..chat.chat import Chat
from ..chat.template import Template
from .supervised import END, TEMPLATE, descend, new_model, train_tokenizer, write_tokenizer

SIZE, CONTEXT, VOCABULARY = "mini", 128, 400
BATCH, LR, RISE = (
    48,
    2e-3,
    20,
)  # episodes of a step; learning rate of AdamW, and the steps in which it rises
LEAST, MOST = 60, 600  # steps
NEAR = 0.01  # nats: how far the worst token of a batch may be from the table when training ends
USES = 0.7  # share of demonstrations with the tool, which so is not rare in training however seldom it is said


class Teacher:
    """A world, the table that is to be learned, and a chat format whose tokenizer has one token for each word."""

    def __init__(self, split: Split, start: Start) -> None:
        if not isinstance(split.env, WorldEnv):
            raise TypeError(
                f"{type(split.env).__name__} is no diagnostic world; it has no table to learn"
            )
        self.env, self.tasks, self.start, world = split.env, split.tasks, start, split.env.world
        self.free = tuple(f" {word}" for word in NOUNS) if world.free else ()
        words = {word for state in world.states.values() for word in (*state.shows, *state.offers)}
        texts = [
            "assistant\n",
            "user\n",
            *sorted(words),
            *self.free,
        ] * 50  # often enough to become tokens
        self.chat = Chat(train_tokenizer(texts, VOCABULARY), Template(TEMPLATE))
        encode = self.chat.tokenizer.encode
        self.ids = {
            word: encode(word, add_special_tokens=False).ids[0] for word in (*words, *self.free)
        }
        (self.ids[END],) = self.chat.end_ids
        if len(set(self.ids.values())) < len(self.ids):
            raise AssertionError(f"words of {world.name} share a token: {self.ids}")
        rest = [dict.fromkeys(self.free, 1 / len(self.free))] if self.free else []
        self.rest = [
            self.table(one) for one in (*rest, {END: 1.0})
        ]  # behind the first word of every turn
        self._chances = cache(
            lambda name, shown: self.table(start.word_chances(world, world.states[name], shown))
        )
        self._heard: dict[str, list[int]] = {}

    def table(self, words: Mapping[str, float]) -> Tensor:
        """Return the chances of all tokens `(v,)` from those of some words; noise is spread over all tokens."""
        size, noise = self.chat.tokenizer.get_vocab_size(), self.start.noise
        chances = torch.full((size,), noise / size)
        for word, chance in words.items():
            chances[self.ids[word]] += chance * (1 - noise)
        return chances

    def episode(self, rng: random.Random) -> tuple[list[int], dict[int, Tensor]]:
        """Return the tokens of an episode, and the chances of the next token behind those of them that lead to one."""
        env, end = self.env, self.ids[END]
        shown, info = begin(env, rng.choice(self.tasks), rng.getrandbits(31))
        tokens, targets = self.chat.prompt(info["messages"]).tolist(), dict[int, Tensor]()
        while True:
            state = env.world.states[env.state]
            targets |= dict(
                enumerate([self._chances(env.state, shown), *self.rest], len(tokens) - 1)
            )
            word = self._demonstrated(state, shown, rng)
            free = [self.ids[rng.choice(self.free)]] if self.free else []
            tokens += [self.ids[word], *free, end]
            shown, _, _, _, info = env.step(word)
            if not env.live:
                return tokens, targets
            if shown not in self._heard:
                self._heard[shown] = self.chat.reply(info["messages"], end).tolist()
            tokens += self._heard[shown]

    def _demonstrated(self, state: DiagnosticState, shown: str, rng: random.Random) -> str:
        """Return what leads on more often than what the table says."""
        if self.env.world.tool in state.offers and rng.random() < USES:
            return self.env.world.tool
        if state.copies:
            return (
                rng.choice([*state.leads])
                if state.leads and rng.random() < self.start.idle
                else shown
            )
        return rng.choice(state.offers)


def warm_up(
    split: Split, start: Start, seed: int, out: Path, threads: int = 1
) -> Iterator[tuple[int, float]]:
    """Train a model into `out`, yielding step and divergence (nats). Raises ValueError if it stays far off."""
    teacher, rng = Teacher(split, start), random.Random(f"exact/{seed}")
    torch.set_num_threads(threads)
    model = new_model(teacher.chat, SIZE, CONTEXT, seed)
    optimizer = torch.optim.AdamW(model.parameters(), LR, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, MOST + 1):
        far = _divergence(model, [teacher.episode(rng) for _ in range(BATCH)])
        descend(far.mean(), model.parameters(), LR * min(step / RISE, 1.0), optimizer)
        yield step, (worst := float(far.detach().max()))
        if step >= LEAST and worst < NEAR:
            break
    else:
        raise ValueError(
            f"the policy is {worst:.3f} nats from its table after {MOST} steps; choose another seed"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(teacher.chat.tokenizer, out, CONTEXT)
    model.half().save_pretrained(out)


def _divergence(model: Any, episodes: list[tuple[list[int], dict[int, Tensor]]]) -> Tensor:
    """Return KL(table ‖ model) `(n,)` of every token that is to be said, nats."""
    width = max(len(tokens) for tokens, _ in episodes)
    tokens = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens, _ in episodes])
    rows, places = zip(
        *((row, place) for row, (_, targets) in enumerate(episodes) for place in targets),
        strict=True,
    )
    wanted = torch.stack([chances for _, targets in episodes for chances in targets.values()])
    hidden = model.model(input_ids=tokens).last_hidden_state[list(rows), list(places)]
    logp = torch.nn.functional.log_softmax(model.lm_head(hidden), -1)
    far: Tensor = (torch.special.xlogy(wanted, wanted) - wanted * logp).sum(-1)
    return far
