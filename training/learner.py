"""The learner: one optimizer step on the LoRA weights from packed rollouts, or none at all.

Invariant: what the step does depends on the slots only, not on how paths are cut into micro-batches; a step with
anything non-finite in it leaves weights and optimizer untouched and names the sample. Weights and moments change in
`apply` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import NoReturn

import torch
from jaxtyping import Bool
from safetensors import SafetensorError
from torch import Tensor

from ..agents.checkpoint import CheckpointError
from ..agents.policy import Policy
from .columns import Batch, Current, Now, Terms
from .control import Control, State, advantages
from .head import token_stats
from .moments import load_moments, save_moments
from .objective import diagnose, objective, start_terms
from .packing import Packed
from .refusal import Refused, check

BOUND = 1e15  # of learning rate and clip norm


@dataclass(frozen=True)
class Update:
    """An optimizer step that can be taken, its gradient being in the parameters; or why it cannot."""

    idle: float = nan  # share of paths without any term in the loss, which are not computed
    lr: float = nan
    loss: float = nan
    grad_norm: float = nan
    drift: float = nan  # nats: largest |logp - logp_old| before the step, how far engine and learner disagree
    means: Mapping[str, float] = field(default_factory=dict)  # of `objective.diagnose`, over all slots
    refused: str = ""  # why the step is not to be taken
    key: tuple[int, ...] = ()  # (seed, step, task, branch) of the sample that `refused` names


class Learner:
    """Turns packed rollouts into weight updates.

    Args:
        policy: The policy whose LoRA weights learn.
        control: The chained methods.
        lr: Learning rate of AdamW.
        clip_norm: Largest gradient norm.
        micro_tokens: Most padded tokens a forward pass.

    Raises:
        ValueError: `lr` or `clip_norm` is out of range, or the control needs what is not computed here.
    """

    def __init__(
        self, policy: Policy, control: Control, lr: float, clip_norm: float = 1.0, micro_tokens: int = 8192
    ) -> None:
        _refuse_unserved(control)
        # With both bounded, a finite gradient can make neither a weight nor a moment that is not finite.
        for name, value in (("lr", lr), ("clip_norm", clip_norm)):
            if not 0 < value <= BOUND:
                raise ValueError(f"{name} is {value}; it must be above 0 and at most {BOUND:g}")
        self.policy, self.control = policy, control
        self.lr, self.clip_norm, self.micro_tokens = lr, clip_norm, micro_tokens
        self.parameters = policy.trainable_parameters()
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=lr, weight_decay=0.0, foreach=False)

    def update(self, packed: Packed, state: State, lr_share: float = 1.0) -> Update:
        """Take one optimizer step at `lr_share` of the learning rate and raise the policy's version, or refuse it."""
        update = self.propose(packed, state, lr_share)
        self.apply(update)
        return update

    def propose(self, packed: Packed, state: State, lr_share: float = 1.0) -> Update:
        """Compute the gradient of an optimizer step at `lr_share` of the learning rate, and whether to take it."""
        packed = self._with_reference(packed)
        terms = self._terms(packed, state)
        moves = _moves(terms, packed.batch)
        update = Update(idle=1 - float(moves.float().mean()), lr=self.lr * lr_share)
        try:
            if not 0 <= update.lr <= BOUND:
                raise Refused(f"the learning rate is {update.lr}")
            check(terms, packed)
            return self._with_gradient(update, packed, terms, moves)
        except Refused as refused:
            self.optimizer.zero_grad(set_to_none=True)
            return replace(update, refused=str(refused), key=refused.key)

    def apply(self, update: Update) -> None:
        """Take the step that was proposed last, unless it was refused or nothing moves in it."""
        if update.refused or update.idle == 1:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = update.lr
        shrink = min(1.0, self.clip_norm / (update.grad_norm + 1e-6))
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                parameter.grad.mul_(shrink)
        self.optimizer.step()
        self.policy.version += 1

    def reset_optimizer(self) -> None:
        """Forget the moments."""
        self.optimizer.state.clear()

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
        """Write the adapter and the optimizer's moments, as safetensors.

        Raises:
            CheckpointError: a value is not finite.
            OSError: there is no room, say.
        """
        try:
            save_moments(self.optimizer, self.parameters, folder)
            self.policy.save_adapter(folder / "adapter")
        except SafetensorError as error:
            raise OSError(str(error)) from error

    def load(self, folder: Path, version: int) -> None:
        """Read what `save` wrote; the next update continues to the bit.

        Raises:
            ValueError: it does not fit this policy to the last name, shape and type.
        """
        load_moments(self.optimizer, self.parameters, folder)
        self.policy.load_adapter(folder / "adapter")
        for name, parameter in self.parameters.items():
            if not bool(torch.isfinite(parameter).all()):
                raise CheckpointError(f"{folder / 'adapter'}: {name} has a value that is not finite")
        self.policy.version = version

    def _with_gradient(self, update: Update, packed: Packed, terms: Terms, moves: Bool[Tensor, "p"]) -> Update:
        """Return `update` with what its gradient, left in the parameters, is like; raise Refused where not finite."""
        n_slots, loss, norm, drift, sums = packed.batch.n_slots, 0.0, 0.0, torch.zeros(()), Counter[str]()
        self.optimizer.zero_grad(set_to_none=True)
        for paths in packed.micro_batches(self.micro_tokens, moves):
            span, batch = packed.batch.span(paths), packed.batch.slice(paths)
            if not batch.n_slots:
                continue
            current, part = self._backward(packed, terms, paths)
            norm = self._norm()
            if not isfinite(part) or not norm < inf:
                self._blame(packed, terms, paths, part)
            loss += part
            drift = torch.maximum(drift, (current.logp.detach() - batch.logp_old).abs().max())
            sums.update(diagnose(current, batch, terms.slice(span)))
        means = {name: total / max(n_slots, 1) for name, total in sums.items()}
        return replace(update, loss=loss, grad_norm=norm, drift=float(drift), means=means)

    def _backward(self, packed: Packed, terms: Terms, paths: range) -> tuple[Current, float]:
        """Add the gradient of some paths to the parameters; return what they were computed from, and their loss."""
        current = self.forward(packed, paths)
        span, batch = packed.batch.span(paths), packed.batch.slice(paths)
        part = objective(current, batch, terms.slice(span), packed.batch.n_slots)
        part.backward()  # type: ignore[no-untyped-call]
        return current, float(part.detach())

    def _blame(self, packed: Packed, terms: Terms, paths: range, loss: float) -> NoReturn:
        """Raise Refused for a loss or gradient of `paths` that is not finite, naming the first with one of its own."""
        what = "gradient" if isfinite(loss) else "loss"
        for path in paths:
            self.optimizer.zero_grad(set_to_none=True)
            _, alone = self._backward(packed, terms, range(path, path + 1))
            if not (isfinite(alone) and isfinite(self._norm())):
                raise Refused(f"the {what} is not finite in {packed.names[path]}", packed.keys[path])
        raise Refused(f"the {what} is not finite in {packed.names[paths.start]} or a path batched with it")

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
