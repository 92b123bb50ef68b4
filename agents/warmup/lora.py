"""The LoRA weights of a policy as they learn from demonstrations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..model_folder import header
from ..policy import Policy
from ..settings import WarmupOptions
from .supervised import PADDING, TARGET, Example, left, pad

WARM = 5  # steps in which the learning rate rises; then it falls linearly to a tenth
_MOMENTS = ("exp_avg", "exp_avg_sq")


class Tuner:
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101) on the LoRA weights of `policy`, without weight decay."""

    def __init__(self, policy: Policy, options: WarmupOptions) -> None:
        self.policy, self.options, self.step = policy, options, 0
        self.weights = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def learn(self, examples: Sequence[Example]) -> Iterator[float]:
        """Take the steps that are left, yielding the loss of each on the assistant's tokens (nats a token)."""
        for batch in left(examples, self.options, self.step):
            yield self._step(batch)

    def _step(self, examples: Sequence[Example]) -> float:
        share = min((self.step + 1) / WARM, 1 - 0.9 * self.step / self.options.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr * share
        losses = self._losses(examples)
        self.optimizer.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        if not torch.isfinite(norm):
            raise ValueError(f"the gradient of step {self.step + 1} is not finite; use a smaller --lr")
        self.optimizer.step()
        self.step += 1
        return float(losses.detach().mean())

    def _losses(self, examples: Sequence[Example]) -> Tensor:
        """Return the loss of each token of the assistant's `[n]` (nats), given all before it."""
        tokens, kinds = (part.to(self.policy.device) for part in pad(examples))
        learned = kinds[:, 1:] == TARGET
        body = self.policy.base.get_decoder()
        hidden = body(input_ids=tokens, attention_mask=(kinds != PADDING).long(), use_cache=False).last_hidden_state
        logits = self.policy.base.get_output_embeddings()(hidden[:, :-1][learned])
        return torch.nn.functional.cross_entropy(logits.float(), tokens[:, 1:][learned], reduction="none")

    @torch.no_grad()
    def loss(self, examples: Sequence[Example], rows: int) -> float:
        """Return the mean loss on the assistant's tokens of `examples` (nats a token), `rows` examples at a time."""
        parts = [self._losses(examples[at : at + rows]) for at in range(0, len(examples), rows)]
        return float(torch.cat(parts).mean())

    def save(self, folder: Path) -> None:
        """Write the adapter as peft reads it, and what the optimizer knows."""
        self.policy.save_adapter(folder / "adapter")
        moments = {
            f"{name}/{part}": self.optimizer.state[weight][part]
            for name, weight in self.weights.items()
            for part in _MOMENTS
        }
        save_file(moments, folder / "optimizer.safetensors")

    def load(self, folder: Path, step: int) -> None:
        """Go on from what `save` wrote after `step` steps."""
        self.policy.load_adapter(folder / "adapter")
        header(file := folder / "optimizer.safetensors")  # a damaged file is named
        moments = load_file(file)
        for name, weight in self.weights.items():
            found = {part: moments[f"{name}/{part}"].to(weight.device) for part in _MOMENTS}
            self.optimizer.state[weight] = {"step": torch.tensor(float(step)), **found}
        self.step = step
