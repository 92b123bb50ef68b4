"""Policies for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.policy import Policy, load_policy
from turngym.training.data.packing import Packed
from turngym.training.loop.learner import Learner, Update


def loaded(folder: Path) -> Policy:
    """Return a policy whose LoRA update is not zero."""
    policy = load_policy(folder, lora=LoraOptions(rank=4, alpha=8))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return policy


def take(learner: Learner, packed: Packed, state: Any, lr_share: float = 1.0) -> Update:
    """Take an optimizer step, unless it is refused."""
    update = learner.propose(learner.prepare(packed), state, lr_share)
    learner.apply(update)
    return update
