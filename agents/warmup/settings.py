"""What decides a warm-up's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "mini": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4},
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "medium": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8},
}
"""Models that are made from nothing, by name."""


@dataclass(frozen=True)
class Settings:
    """What decides a warm-up's weights."""

    env: str
    options: dict[str, Any]
    episodes: int
    steps: int
    batch: int
    lr: float
    noise: float
    size: str
    vocabulary: int
    context: int
    seed: int
    threads: int

    def check(self) -> None:
        """Raise ValueError for a value out of range."""
        for name in ("episodes", "steps", "batch", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise is {self.noise}; it is the share of turns that go astray, from 0 to below 1")
        if self.lr <= 0:
            raise ValueError(f"lr is {self.lr}; it must be above 0")
        if self.vocabulary < 300:
            raise ValueError(f"vocabulary is {self.vocabulary}; bytes and control tokens alone need 300")
        if self.size not in SIZES:
            raise ValueError(f"size is {self.size!r}; it must be one of {', '.join(SIZES)}")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it must be 0 or more")
