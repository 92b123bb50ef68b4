"""The learner: one optimizer step on the LoRA weights from packed rollouts, or none at all.

Invariant: what the step does depends on the slots only, not on how paths are cut into micro-batches; a step with
anything non-finite in it leaves weights and optimizer untouched and names the sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..agents.policy import Policy
from .columns import Batch, Current, Now, Terms
from .control import Control, State, advantages
from .head import token_stats
from .objective import diagnose, objective, start_terms
from .packing import Packed


@dataclass(frozen=True)
class Update:
    """What an optimizer step did."""

    loss: float
    grad_norm: float
    drift: float  # nats: largest |logp - logp_old| before the step, how far engine and learner disagree
    idle: float  # share of paths without any term in the loss, which are not computed
    means: Mapping[str, float]  # of `objective.diagnose`, over all slots
    refused: str  # why the step was not taken; empty when it was


class Learner:
    """Turns packed rollouts into weight updates.

    Args:
        policy: The policy whose LoRA weights learn.
        control: The chained methods.
        lr: Learning rate of AdamW.
        clip_norm: Largest gradient norm.
        micro_tokens: Most padded tokens a forward pass.
    """

    def __init__(
        self, policy: Policy, control: Control, lr: float, clip_norm: float = 1.0, micro_tokens: int = 8192
    ) -> None:
        _refuse_unserved(control)
        self.policy, self.control = policy, control
        self.lr, self.clip_norm, self.micro_tokens = lr, clip_norm, micro_tokens
        self.parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=lr, weight_decay=0.0, foreach=False)

    def update(self, packed: Packed, state: State, lr_share: float = 1.0) -> Update:
        """Take one optimizer step at `lr_share` of the learning rate and raise the policy's version, or refuse it."""
        packed = self._with_reference(packed)
        terms = self._terms(packed, state)
        moves = _moves(terms, packed.batch)
        loss, drift, refused, sums = 0.0, torch.zeros(()), _unsound(terms, packed), Counter[str]()
        self.optimizer.zero_grad(set_to_none=True)
        for paths in packed.micro_batches(self.micro_tokens, moves):
            span, batch = packed.batch.span(paths), packed.batch.slice(paths)
            if not batch.n_slots:
                continue
            current = self.forward(packed, paths)
            part = objective(current, batch, terms.slice(span), packed.batch.n_slots)
            if not bool(torch.isfinite(part)):
                refused = refused or _blame(packed, paths, current)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
            drift = torch.maximum(drift, (current.logp.detach() - batch.logp_old).abs().max())
            sums.update(diagnose(current, batch, terms.slice(span)))
        norm = self._norm()
        if not refused and not norm < float("inf"):
            refused = f"the gradient norm is {norm}"
        if not refused and bool(moves.any()):
            self._step(norm, self.lr * lr_share)
        means = {name: total / max(packed.batch.n_slots, 1) for name, total in sums.items()}
        return Update(loss, norm, float(drift), 1 - float(moves.float().mean()), means, refused)

    def forward(self, packed: Packed, paths: range) -> Current:
        """Return log-probability and entropy of the slots of `paths` under the policy as it is now."""
        device = self.policy.device
        tokens, sampled = (part.to(device) for part in packed.padded(paths))
        span = packed.batch.span(paths)
        hidden = self.policy.base.model(input_ids=tokens, use_cache=False).last_hidden_state
        logp, entropy = token_stats(
            hidden[:, :-1][sampled[:, 1:]],
            self.policy.base.get_output_embeddings(),
            packed.token[span].to(device),
            packed.temperature[span].to(device),
            self.policy.vocabulary,
        )
        return Current(logp.cpu(), (entropy if self.control.needs.entropy_grad else entropy.detach()).cpu())

    def save(self, folder: Path) -> None:
        """Write the adapter and the optimizer's moments, as safetensors."""
        self.policy.save_adapter(folder / "adapter")
        moments: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            for part, value in self.optimizer.state.get(parameter, {}).items():
                moments[f"{name}/{part}"] = value.detach().cpu().contiguous()
        save_file(moments, folder / "optimizer.safetensors")

    def load(self, folder: Path, version: int) -> None:
        """Read what `save` wrote; the next update continues to the bit."""
        self.policy.load_adapter(folder / "adapter")
        self.policy.version = version
        moments = load_file(folder / "optimizer.safetensors")
        for name, parameter in self.parameters.items():
            parts = {key.rpartition("/")[2]: value for key, value in moments.items() if key.rpartition("/")[0] == name}
            if parts:
                self.optimizer.state[parameter] = {
                    part: value if part == "step" else value.to(parameter.device) for part, value in parts.items()
                }

    def _terms(self, packed: Packed, state: State) -> Terms:
        batch = packed.batch
        terms = start_terms(advantages(self.control, batch, state))
        return self.control.shape(terms, batch, Now.at_start(batch), state)

    def _with_reference(self, packed: Packed) -> Packed:
        if not self.control.needs.logp_ref:
            return packed
        every = torch.ones(packed.batch.n_paths, dtype=torch.bool)
        with torch.no_grad(), self.policy.reference():
            parts = [self.forward(packed, paths).logp for paths in packed.micro_batches(self.micro_tokens, every)]
        return replace(packed, batch=replace(packed.batch, logp_ref=torch.cat(parts)))

    def _norm(self) -> float:
        grads = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def _step(self, norm: float, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        shrink = min(1.0, self.clip_norm / (norm + 1e-6))
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.mul_(shrink)
        self.optimizer.step()
        self.policy.version += 1


def _refuse_unserved(control: Control) -> None:
    """Raise ValueError where a control needs what this learner does not compute."""
    needs = control.needs
    unserved = {
        "plan (branches)": control.plan is not None,
        "Needs.columns": bool(needs.columns),
        "Needs.functionals": bool(needs.functionals),
        "Needs.modules": bool(needs.modules),
    }
    for what, wanted in unserved.items():
        if wanted:
            raise ValueError(f"control {control.name!r} uses {what}, which this learner does not serve; leave it out")


def _moves(terms: Terms, batch: Batch) -> Bool[Tensor, "p"]:
    """Return which paths have a slot that can move the weights."""
    live = (terms.scale != 0) & (
        (terms.weight * terms.advantage != 0) | (terms.kl_coef != 0) | (terms.entropy_coef != 0)
    )
    for penalty in terms.penalties:
        live = live | (penalty.coef != 0)
    moves = torch.zeros(batch.n_paths, dtype=torch.bool)
    moves[batch.path[live]] = True
    return moves


def _unsound(terms: Terms, packed: Packed) -> str:
    """Return which sample has a number that is not finite; empty where none has. A score spoils its whole group."""
    batch = packed.batch
    columns = {
        "score": torch.where(batch.turns.rewarded, batch.turns.score, 0.0)[batch.row],
        "sampler's log-probability": batch.logp_old,
        "sampler's entropy": batch.entropy,
        "advantage": terms.advantage,
        "weight": terms.weight,
        "KL coefficient": terms.kl_coef,
        "entropy coefficient": terms.entropy_coef,
        "scale": terms.scale,
        **{f"coefficient of {penalty.name}": penalty.coef for penalty in terms.penalties},
    }
    for what, column in columns.items():
        for slot in (~torch.isfinite(column)).nonzero()[:1, 0].tolist():
            return f"{packed.names[int(batch.path[slot])]}: the {what} is {float(column[slot])}"
    return ""


def _blame(packed: Packed, paths: range, current: Current) -> str:
    """Return which sample made a loss non-finite."""
    bad = ~(torch.isfinite(current.logp.detach()) & torch.isfinite(current.entropy.detach()))
    span = packed.batch.span(paths)
    which: Float[Tensor, "s"] = packed.batch.path[span][bad]
    path = int(which[0]) if len(which) else paths.start
    return f"the loss is not finite in {packed.names[path]}" + ("" if len(which) else " or a path batched with it")
