"""The embedded engine, which runs the model in this process.

engine: `TorchEngine` and its sessions; tokens from logits
scheduler: conversations, which of them hold the slots of the cache, and what is fed next
runner: what computes forward passes whose numbers do not depend on the batch; through transformers where need be
decoder: those of the usual architectures, written out; their matrices, LoRA added, packed for the processor
"""

from .engine import TorchEngine as TorchEngine
