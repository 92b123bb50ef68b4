"""The settings that determine the weights of a warm-up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..settings import check_least

SIZES: dict[str, dict[str, Any]] = {
    "mini": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4},
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "medium": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8},
}
"""Architectures of new models, by name."""


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
        """Raise ValueError for a value out of range."""
        check_least(self, 1, "episodes", "steps", "batch", "threads")
        check_least(self, 0, "seed")
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise is {self.noise}; it is a share of turns, from 0 to below 1")
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}; it must be above 0")
        if self.vocabulary < 300:
            raise ValueError(f"vocabulary is {self.vocabulary}; bytes and control tokens alone need 300")
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size!r}; it must be one of {', '.join(SIZES)}")


@dataclass(frozen=True)
class Settings:
    """An environment, its options, and the training on its expert: together they determine the weights."""

    env: str
    options: dict[str, Any]
    training: WarmupOptions

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as `warmup.json` holds it."""
        return {"env": self.env, "options": self.options, **asdict(self.training)}
