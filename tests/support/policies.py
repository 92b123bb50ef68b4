"""Policies for tests."""

from __future__ import annotations

from pathlib import Path

import torch

from turngym.agents.policy import Policy, load_policy
from turngym.agents.settings import LoraOptions


def loaded(folder: Path) -> Policy:
    """Return a policy whose LoRA update is not zero."""
    policy = load_policy(folder, lora=LoraOptions(rank=4, alpha=8))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return policy
