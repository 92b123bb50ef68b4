"""What decides a warm-up's weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..settings import check_least

SIZES: dict[str, dict[str, Any]] = {
    "mini": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4},
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "medium": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8},
}
"""Models that are made from nothing, by name."""


@dataclass(frozen=True)
class WarmupOptions:
    """How a small policy is made from an expert's play."""

    episodes: int = 12000
    """Episodes of the expert to learn from."""
    steps: int = 1000
    """Optimizer steps."""
    batch: int = 16
    """Episodes a step."""
    lr: float = 8e-3
    """Largest learning rate."""
    noise: float = 0.3
    """Share of turns that go astray on purpose: what is left for training to improve."""
    size: str = "mini"
    """`mini` (about 0.6M parameters), `small` (1M) or `medium` (5M)."""
    vocabulary: int = 4096
    """Most tokens of the vocabulary."""
    context: int = 1024
    """Most tokens of an episode."""
    seed: int = 0
    """Keys all randomness."""
    threads: int = 1
    """CPU threads of torch: two are faster, where two cores are idle."""

    def check(self) -> None:
        """Raise ValueError for a value out of range."""
        check_least(self, 1, "episodes", "steps", "batch", "threads")
        check_least(self, 0, "seed")
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise is {self.noise}; it is the share of turns that go astray, from 0 to below 1")
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}; it must be above 0")
        if self.vocabulary < 300:
            raise ValueError(f"vocabulary is {self.vocabulary}; bytes and control tokens alone need 300")
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size!r}; it must be one of {', '.join(SIZES)}")


@dataclass(frozen=True)
class Settings:
    """What decides a warm-up's weights: an environment, its options, and how it is learned from."""

    env: str
    options: dict[str, Any]
    training: WarmupOptions

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as `warmup.json` holds it."""
        return {"env": self.env, "options": self.options, **asdict(self.training)}
