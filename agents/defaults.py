"""Defaults that fit the policy: those of models by their size, and those of the policies that turngym makes itself.

Learning rates are for LoRA on all layers. They lie between TRL's 1e-5 (3B) and 5e-5 (0.6B); verl takes 3e-6 to 1e-5.
Turns of 512 to 1024 tokens and groups of 8 are what both take in their examples of GRPO on math questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from .chat.families import OWN, digest
from .model_folder import TEMPLATE_FILE, read_bytes, read_json
from .source import Source, parameters, setting_of

OWN_TOKENS = 96  # of a turn, where turngym made the policy
# Largest number of parameters, and what the models up to it take. A forward pass of 2048 tokens and layers that are
# computed again keep what activations take below what the weights do.
_ALL = {"group": 8, "micro_tokens": 2048, "checkpointing": True}
MODELS: tuple[tuple[float, Mapping[str, Any]], ...] = (
    (1e9, {"max_tokens": 512, "lr": 5e-5, "prompts": 8, "difficulty": (1, 2, 3), **_ALL}),
    (4e9, {"max_tokens": 1024, "lr": 2e-5, "prompts": 8, "difficulty": (2, 3, 4), **_ALL}),
    (inf, {"max_tokens": 1024, "lr": 1e-5, "prompts": 16, "difficulty": (3, 4, 5), **_ALL}),
)


def is_own(source: Source) -> bool:
    """Return whether turngym made the model, as `tiny` and what `turngym warmup` writes: it has their chat template."""
    file, config = source.template or source.folder / TEMPLATE_FILE, source.folder / "tokenizer_config.json"
    if file.is_file():
        return digest(read_bytes(file).decode()) == OWN
    template = read_json(config).get("chat_template") if config.is_file() else None
    return isinstance(template, str) and digest(template) == OWN


def of_model(source: Source) -> Mapping[str, Any]:
    """Return what a model takes by the names of settings; nothing where turngym made it: its recipes fit it."""
    if is_own(source):
        return {}
    size = parameters(source.folder)
    return next(row for most, row in MODELS if size <= most)


def max_tokens(source: Source | None) -> int:
    """Return the largest number of tokens of a turn: what a run was trained with, else what fits the policy.

    None is a policy of unknown size.

    Raises:
        ValueError: the config of the run has no such number.
    """
    if source is None or source.run is None:
        row = MODELS[-1][1] if source is None else of_model(source)
        return int(row.get("max_tokens", OWN_TOKENS))
    trained = setting_of(source.run, "max_tokens")
    if type(trained) is not int:
        raise ValueError(f"max_tokens is {trained!r} in {source.run / 'config.toml'}; give a number: --max-tokens 512")
    return trained
