"""The embedded engine, which runs the model in this process.

engine: `TorchEngine` and its sessions
scheduler: which conversations hold the slots of the cache, and what is fed next
sequence: the tokens of one conversation, and the turn requested of it
runner: forward passes whose numbers do not depend on the batch
attention: attention for models whose heads share keys
cache: the key-value cache
sampler: tokens from logits
"""

from .engine import TorchEngine

__all__ = ["TorchEngine"]
