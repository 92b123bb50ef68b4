"""Supervised learning of whole episodes: the model learns the tokens of the agent's turns, given all before them.

Its tokenizer is a byte-level BPE trained on an environment's texts, with a plain ChatML template.

Matrices are learned by Muon (Jordan et al. 2024), which takes far fewer steps here than Adam alone; the embedding, the
head and the norms by AdamW (Loshchilov and Hutter, arXiv:1711.05101).
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import Parameter

from ...tools.progress import Progress
from ..chat.chat import Chat
from ..cli.settings import SIZES, WarmupOptions
from ..models.architecture import logit_scale
from ..models.folder import header, read_json
from ..models.resolve import TINY
from ..policy import Policy

POOL = 32  # batches whose episodes are sorted by length, so that little is padded
WARM = 30  # steps in which the learning rate rises
RISE = 5  # the same for LoRA weights; then it falls linearly to a tenth
PADDING, CONTEXT, TARGET = range(3)
PAD, START, END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONFIG = read_json(TINY / "tokenizer_config.json")  # of all of turngym's own policies
TEMPLATE: str = CONFIG["chat_template"]
# A word with a capital has the same tokens with a blank in front and without: a name can be copied to any place.
WORDS = r"\d| ?[a-z]+|[A-Z][A-Za-z]*| ?[^\sA-Za-z\d]+|\s+"


@dataclass(frozen=True)
class Example:
    """An episode: its tokens `(t,)` and which of them are the agent's `(t,)`."""

    tokens: NDArray[np.int32]
    assistant: NDArray[np.bool_]


def train_tokenizer(texts: Iterable[str], vocabulary: int, words: str = WORDS) -> Tokenizer:
    """Train a BPE of at most `vocabulary` tokens: digits are single, `words` do not merge, any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(words), "isolated"), level]
    )
    size, alphabet = vocabulary - len(SPECIAL), pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, with the template, for a model of `context` positions."""
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(CONFIG | {"model_max_length": context}, indent=2) + "\n"
    )


def new_model(chat: Chat, size: str, context: int, seed: int) -> Any:
    """Return a Qwen3 model that knows nothing, of one of `SIZES`.

    Weights are drawn as wide as a model this narrow needs. The head begins as the embedding, so that copying a token is
    near at hand, and is not tied to it.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    end, pad = (chat.tokenizer.token_to_id(token) for token in (END, PAD))
    tokens = {
        "vocab_size": chat.tokenizer.get_vocab_size(),
        "eos_token_id": end,
        "pad_token_id": pad,
    }
    heads = {
        "num_key_value_heads": SIZES[size]["num_attention_heads"],
        "head_dim": 32,
        "tie_word_embeddings": False,
    }
    config = Qwen3Config(
        **SIZES[size], **heads, **tokens, max_position_embeddings=context, rope_theta=10000.0
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(std=config.hidden_size**-0.5)
        model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    return model


class Trainer:
    """A model that learns, with its optimizers and the steps it has taken.

    `options` say how many `steps` there are, of `batch` examples (each once before any comes again), at a learning rate
    up to `lr`. `context_weight` is the weight of a token that the agent read, that of its own tokens being 1.
    Predicting what it reads teaches a model early to copy names; its own tokens alone teach that late.
    """

    logit_scale = 1.0  # of what the head computes

    def __init__(self, model: Any, options: WarmupOptions, context_weight: float = 0.0) -> None:
        self.model, self.options, self.context_weight, self.step = model, options, context_weight, 0
        self.weights: dict[str, Parameter] = dict(model.named_parameters())
        ends, weights = (
            {model.model.embed_tokens.weight, model.lm_head.weight},
            self.weights.values(),
        )
        inner = [weight for weight in weights if weight.ndim == 2 and weight not in ends]
        others = [weight for weight in weights if weight.ndim != 2 or weight in ends]
        muon = torch.optim.Muon(
            inner, lr=options.lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
        )
        adam = torch.optim.AdamW(others, lr=options.lr, betas=(0.9, 0.98), weight_decay=0.01)
        self.optimizers: tuple[torch.optim.Optimizer, ...] = (muon, adam)

    def learn(self, examples: Sequence[Example]) -> Iterator[float]:
        """Take the steps that are left, yielding the loss of each on the agent's tokens (nats a token)."""
        options, lengths = self.options, [len(example.tokens) for example in examples]
        with Progress("steps", options.steps) as work:
            while self.step < options.steps:
                epoch, at = divmod(self.step, max(len(examples) // options.batch, 1))
                for pick in batches(lengths, options.batch, (options.seed, epoch))[
                    at : at + options.steps - self.step
                ]:
                    losses, own = self._losses([examples[i] for i in pick])
                    weight = torch.where(own, 1.0, self.context_weight)
                    loss, rate = (losses * weight).sum() / weight.sum(), options.lr * self._share()
                    descend(loss, self.weights.values(), rate, *self.optimizers)
                    self.step += 1
                    work.text = f"loss {(found := float(losses[own].detach().mean())):.3f}"
                    work.reach(self.step)
                    yield found

    def _share(self) -> float:
        share = min((self.step + 1) / WARM, 1.0)
        return share * (
            0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * self.step / self.options.steps))
        )

    def _losses(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Return of each token that is learned its loss, given all before it (nats), and whether it is the agent's."""
        tokens, kinds = (part.to(self.model.device) for part in pad(examples))
        learned = kinds[:, 1:] >= (CONTEXT if self.context_weight else TARGET)
        # Padding is on the right, where a causal model does not see it.
        hidden = self.model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state[
            :, :-1
        ][learned]
        logits = self.model.get_output_embeddings()(hidden).float()
        if self.logit_scale != 1:
            logits = logits * self.logit_scale
        losses = torch.nn.functional.cross_entropy(logits, tokens[:, 1:][learned], reduction="none")
        return losses, kinds[:, 1:][learned] == TARGET

    def _moments(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        of = {
            weight: one
            for one in self.optimizers
            for group in one.param_groups
            for weight in group["params"]
        }
        yield from ((name, of[weight].state[weight]) for name, weight in self.weights.items())

    def save(self, folder: Path) -> None:
        moments = {
            f"{name}/{part}": value
            for name, parts in self._moments()
            for part, value in parts.items()
        }
        weights = {name: weight.detach() for name, weight in self.weights.items()}
        save_file(weights | moments, folder / "trainer.safetensors")

    @torch.no_grad()
    def load(self, folder: Path, step: int) -> None:
        header(file := folder / "trainer.safetensors")  # a damaged file is named
        tensors = load_file(file)
        for name, moments in self._moments():
            if name not in tensors or tensors[name].shape != self.weights[name].shape:
                raise ValueError(
                    f"{file} does not fit the model at {name}; begin the warm-up again"
                )
            self.weights[name].copy_(tensors[name])
            own = {
                part[len(name) + 1 :]: tensors[part]
                for part in tensors
                if part.startswith(f"{name}/")
            }
            device = self.weights[
                name
            ].device  # where the optimizer keeps all but the number of steps
            moments.update(
                {part: each if part == "step" else each.to(device) for part, each in own.items()}
            )
        self.step = step


class Tuner(Trainer):
    """The LoRA weights of `policy`, by AdamW (Loshchilov and Hutter, arXiv:1711.05101) without weight decay."""

    def __init__(self, policy: Policy, options: WarmupOptions) -> None:
        self.model, self.options, self.context_weight, self.step = policy.base, options, 0.0, 0
        self.policy, self.weights = policy, policy.trainable_parameters()
        self.logit_scale = logit_scale(policy.base.config.to_dict())
        adam = torch.optim.AdamW(
            self.weights.values(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.optimizers = (adam,)

    def _share(self) -> float:
        return min((self.step + 1) / RISE, 1 - 0.9 * self.step / self.options.steps)

    @torch.no_grad()
    def loss(self, examples: Sequence[Example], rows: int) -> float:
        """Return the mean loss on the assistant's tokens of `examples` (nats a token), `rows` examples at a time."""
        parts = [self._losses(examples[at : at + rows])[0] for at in range(0, len(examples), rows)]
        return float(torch.cat(parts).mean())

    def save(self, folder: Path) -> None:
        self.policy.save_adapter(folder / "adapter")
        super().save(folder)


def descend(
    loss: Tensor, weights: Iterable[Tensor], rate: float, *optimizers: torch.optim.Optimizer
) -> None:
    """Take a step at the learning rate `rate`, the gradient's norm at most 1. Raises ValueError if it is not finite."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = rate
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if not torch.isfinite(torch.nn.utils.clip_grad_norm_(weights, 1.0)):
        raise ValueError("the gradient is not finite; use a smaller --lr")
    for optimizer in optimizers:
        optimizer.step()


def batches(lengths: Sequence[int], size: int, seed: tuple[int, ...]) -> list[list[int]]:
    """Return a pass as places in `lengths`: alike in length, in random order; fewer than `size` are one."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths)).tolist()
    found = []
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lambda i: lengths[i])
        found += [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
    return [found[i] for i in rng.permutation(len(found))] or [order]


def pad(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return tokens `[b, t]` and what each is `[b, t]`, `PADDING` (on the right), `CONTEXT` or `TARGET`."""
    width = max(len(example.tokens) for example in examples)
    tokens = torch.zeros(len(examples), width, dtype=torch.long)
    kinds = torch.full((len(examples), width), PADDING)
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)] = torch.from_numpy(example.tokens)
        kinds[row, : len(example.assistant)] = torch.where(
            torch.from_numpy(example.assistant), TARGET, CONTEXT
        )
    return tokens, kinds
