"""The embedded engine, which runs the model in this process.

engine: `TorchEngine` and its sessions
scheduler: conversations, which of them hold the slots of the cache, and what is fed next
runner: forward passes whose numbers do not depend on the batch, with their cache and attention
sampler: tokens from logits
"""

from .engine import TorchEngine

__all__ = ["TorchEngine"]
