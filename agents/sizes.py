"""How large policies are that are made from nothing."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, dict[str, Any]] = {
    "mini": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4},
    "small": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4},
    "medium": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8},
}
