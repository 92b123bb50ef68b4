"""The learner: one optimizer step on the LoRA weights from packed rollouts, or none at all.

Invariant: what the step does depends on the slots only, not on how paths are cut into micro-batches; a step with
anything non-finite in it leaves weights and optimizer untouched and names the sample. Weights and moments change in
`apply` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf, isfinite, nan
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from torch import Tensor

from ...agents.journal.checkpoint import CheckpointError
from ...agents.models.architecture import LEARNER, check_trained, check_untried, logit_scale
from ...agents.policy import Policy
from ..control.control import Control, Replay, State, advantages, scored
from ..data.batch import Batch, Current, Now, Terms
from ..data.packing import Packed
from ..loss.objective import BadUpdate, check, objective, start_terms
from ..metrics.telemetry import diagnose
from ..model.attention import distance_from_model, hidden_states
from ..model.chunked_head import token_stats
from .distributed import SOLO, Team
from .modules import Modules
from .optimizer_state import load_moments, save_moments

BOUND = 1e15  # of learning rate and clip norm
EXTRA = "extras/"  # begins the names of columns that controls asked for


@dataclass(frozen=True)
class Update:
    """An optimizer step that can be taken, its gradient being in the parameters; or why it cannot."""

    idle: float = nan  # share of paths without any term in the loss, which are not computed
    lr: float = nan
    loss: float = nan
    grad_norm: float = nan
    drift: float = (
        nan  # nats: largest |logp - logp_old| before the step, how far engine and learner disagree
    )
    means: Mapping[str, float] = field(default_factory=dict)  # of `ratios.diagnose`
    refused: str = ""  # why the step is not to be taken
    key: tuple[int, ...] = ()  # (seed, step, task, branch) of the sample that `refused` names
    slots: Mapping[str, Tensor] = field(
        default_factory=dict, compare=False
    )  # advantage, weight, logp (nats) of each


class Learner:
    """Turns packed rollouts into weight updates.

    Args:
        policy: The policy whose LoRA weights learn.
        control: The chained methods.
        lr: Learning rate of AdamW.
        clip_norm: Largest gradient norm.
        micro_tokens: Most tokens a forward pass.
        team: The processes that share out the paths.

    Raises:
        ValueError: `lr` or `clip_norm` is out of range, or the learner does not compute the model.
    """

    def __init__(
        self,
        policy: Policy,
        control: Control,
        lr: float,
        clip_norm: float = 1.0,
        micro_tokens: int = 8192,
        team: Team = SOLO,
    ) -> None:
        # With both bounded, a finite gradient can make neither a weight nor a moment that is not finite.
        for name, value in (("lr", lr), ("clip_norm", clip_norm)):
            if not 0 < value <= BOUND:
                raise ValueError(f"{name} is {value}; it must be above 0 and at most {BOUND:g}")
        # Before the first rollout: its config may say less than the class that was loaded.
        check_trained(policy.base.config.to_dict(), policy.folder)
        self.policy, self.control, self.team = policy, control, team
        check_untried(
            policy.base.config.to_dict(),
            policy.folder,
            LEARNER,
            lambda: distance_from_model(policy),
        )
        self.logit_scale = logit_scale(policy.base.config.to_dict())
        self.lr, self.clip_norm, self.micro_tokens = lr, clip_norm, micro_tokens
        self.modules = Modules(control.needs.modules, policy.base.config.hidden_size, policy.device)
        self.parameters = {**policy.trainable_parameters(), **self.modules.named()}
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=lr, weight_decay=0.0, foreach=False
        )

    def prepare(self, packed: Packed) -> Packed:
        """Return `packed` with what the controls need of the reference, and of the policy as the update finds it.

        Where a sampler of its own estimated the entropies, or a control needs another temperature, these and the old
        policy's log-probabilities are computed.
        """
        needs = self.control.needs
        if needs.temperature is not None:
            packed = replace(
                packed,
                temperature=torch.full_like(packed.temperature, needs.temperature),
                estimate=True,
            )
        if packed.estimate:
            now = self.now(packed)
            batch = replace(packed.batch, logp_old=now.logp, entropy=now.entropy, extras=now.extras)
            packed = replace(packed, batch=batch, estimate=False)
        if needs.logp_ref:
            with self.policy.reference():
                packed = replace(
                    packed, batch=replace(packed.batch, logp_ref=self.now(packed).logp)
                )
        if (needs.functionals or needs.modules) and not packed.batch.extras:
            packed = replace(packed, batch=replace(packed.batch, extras=self.now(packed).extras))
        return packed

    @torch.no_grad()
    def now(self, packed: Packed) -> Now:
        """Return the current policy's log-probabilities and entropies of all slots."""
        every = torch.ones(packed.batch.n_paths, dtype=torch.bool)
        keep = _only(self.team.paths(packed, every), every)
        seen = [
            self.forward(packed, paths) for paths in packed.micro_batches(self.micro_tokens, keep)
        ]
        extras = ({EXTRA + name: column for name, column in one.extras.items()} for one in seen)
        parts = [
            {"logp": one.logp, "entropy": one.entropy, **more} for one, more in zip(seen, extras)
        ]
        mine = {
            name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())
        }
        found = self.team.columns(mine)
        logp, entropy = found.pop("logp"), found.pop("entropy")
        return Now(
            logp, entropy, {name.removeprefix(EXTRA): column for name, column in found.items()}
        )

    def propose(
        self,
        packed: Packed,
        state: State,
        lr_share: float = 1.0,
        now: Now | None = None,
        paths: range | None = None,
    ) -> Update:
        """Compute the gradient of an optimizer step at `lr_share` of the learning rate, and whether to take it.

        `packed` is what `prepare` returned, `state` the controls', `now` the policy as it is, where a control needs it
        and earlier optimizer steps have changed it. Whole trees are learned from: those of `paths`, or all; advantages
        are those among all.
        """
        packed, terms = self.terms(self.control, packed, state, now, paths)
        return self._weighed(packed, terms, lr_share)

    def terms(
        self,
        control: Control,
        packed: Packed,
        state: State,
        now: Now | None = None,
        paths: range | None = None,
    ) -> tuple[Packed, Terms]:
        """Return the paths that an optimizer step learns from, and the terms that a control gives them.

        The arguments are those of `propose`; `packed` has all that the control needs.
        """
        advantage = advantages(control, packed.batch, state)
        # What else reads scores sees those of the advantages.
        packed = replace(packed, batch=scored(control, packed.batch, state))
        paths = paths or range(packed.batch.n_paths)
        advantage, packed = advantage[packed.batch.span(paths)], packed.part(paths)
        batch = packed.batch
        return packed, control.shape(
            start_terms(advantage), batch, now or Now.at_start(batch), state
        )

    def replay(self, packed: Packed, again: Replay, lr_share: float = 1.0) -> Update:
        """Compute the gradient of an optimizer step on paths of earlier steps; `apply` takes it."""
        by_path = torch.tensor([again.advantage[key] for key in packed.keys])
        terms = again.shape(start_terms(by_path[packed.batch.path]), packed.batch, self.now(packed))
        return self._weighed(packed, terms, lr_share)

    def _weighed(self, packed: Packed, terms: Terms, lr_share: float) -> Update:
        moves = moving(terms, packed.batch)
        update = Update(idle=1 - float(moves.float().mean()), lr=self.lr * lr_share)
        try:
            if not 0 <= update.lr <= BOUND:
                raise BadUpdate(f"the learning rate is {update.lr}")
            check(terms, packed)
            return self._with_gradient(update, packed, terms, moves)
        except BadUpdate as refused:
            self.optimizer.zero_grad(set_to_none=True)
            return replace(update, refused=str(refused), key=refused.key)

    def reset_optimizer(self) -> None:
        """Forget the moments."""
        self.optimizer.state.clear()

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

    def forward(self, packed: Packed, paths: range) -> Current:
        """Return log-probability and entropy of the slots of `paths` under the policy as it is now."""
        device, base, span = self.policy.device, self.policy.base, packed.batch.span(paths)
        layout = packed.layout(paths)
        # Of each slot the place of the token that predicts its own; slots that share a token are computed once.
        before = torch.cat(
            [place[:-1][packed.sampled[path][1:]] for path, place in zip(paths, layout.places)]
        )
        labels = np.unique(packed.batch.token[span].numpy(), return_index=True, return_inverse=True)
        first, slot = map(
            torch.from_numpy, labels[1:]
        )  # where each comes first, and of each slot its label's
        how = {"checkpointing": self.policy.checkpointing, "compiled": self.policy.compile}
        seen = hidden_states(base, layout, device, **how)[before[first].to(device)]
        token, temperature = (
            column[span][first].to(device) for column in (packed.token, packed.temperature)
        )
        extras = {
            name: values[span][first].to(device) for name, values in packed.batch.extras.items()
        }
        needs, about = self.control.needs, (token, temperature, self.policy.vocabulary)
        head = base.get_output_embeddings()
        # A head has no bias where its logits are scaled, so its input can be.
        scaled = seen if self.logit_scale == 1 else seen * self.logit_scale
        logp, entropy, extras = token_stats(
            scaled, head, *about, needs.functionals, needs.entropy_grad, extras
        )
        extras |= self.modules(seen)
        by_slot = {name: value.cpu()[slot] for name, value in extras.items()}
        return Current(logp.cpu()[slot], entropy.cpu()[slot], by_slot)

    def digest(self) -> str:
        """Return the sha256 of all that is trained."""
        found = sha256()
        for parameter in self.parameters.values():
            found.update(
                parameter.detach()
                .cpu()
                .contiguous()
                .reshape(-1)
                .view(torch.uint8)
                .numpy()
                .tobytes()
            )
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Write all that `load` reads, as safetensors. Raises CheckpointError where one is not finite, and OSError."""
        try:
            save_moments(self.optimizer, self.parameters, folder)
            self.modules.save(folder)
            self.policy.save_adapter(folder / "adapter")
            if self.policy.anchor:
                with self.policy.reference():
                    self.policy.save_adapter(folder / "reference")
        except SafetensorError as error:
            raise OSError(str(error)) from error

    def load(self, folder: Path, version: int) -> None:
        """Read what `save` wrote; the next update continues to the bit. Raises ValueError where not all of it fits."""
        load_moments(self.optimizer, self.parameters, folder)
        self.modules.load(folder)
        self.policy.anchor = ()
        if (folder / "reference").is_dir():
            self.policy.load_adapter(folder / "reference")
            self.policy.reset_reference()
        self.policy.load_adapter(folder / "adapter")
        for name, parameter in self.parameters.items():
            if not bool(torch.isfinite(parameter).all()):
                raise CheckpointError(
                    f"{folder / 'adapter'}: {name} has a value that is not finite"
                )
        self.policy.version = version

    def _with_gradient(
        self, update: Update, packed: Packed, terms: Terms, moves: Bool[Tensor, "p"]
    ) -> Update:
        """Return `update` with what its gradient, left in the parameters, is like; raise BadUpdate where not finite."""
        logp, mine = torch.full_like(packed.batch.logp_old, nan), self.team.paths(packed, moves)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.team.total(lambda: self._accumulate(packed, terms, _only(mine, moves), logp))
        self.team.add_gradients(self.parameters.values())
        norm = self._norm()
        if not norm < inf:
            raise BadUpdate("the gradient is not finite, though that of every process is")
        logp = self.team.columns({"logp": logp[packed.batch.span(mine)]})["logp"]
        means = diagnose(logp, packed.batch, terms)
        slots = {"advantage": terms.advantage, "weight": terms.weight, "logp": logp}
        drift = means.get("log_ratio_max", 0.0)
        return replace(update, loss=loss, grad_norm=norm, drift=drift, means=means, slots=slots)

    def _accumulate(
        self, packed: Packed, terms: Terms, keep: Bool[Tensor, "p"], logp: Float[Tensor, "s"]
    ) -> float:
        """Add the gradient of the paths in `keep`, write their log-probabilities down, and return their loss."""
        loss = 0.0
        for paths in packed.micro_batches(self.micro_tokens, keep):
            span = packed.batch.span(paths)
            if span.start == span.stop:
                continue
            current, part = self._backward(packed, terms, paths)
            if not isfinite(part) or not self._norm() < inf:
                self._blame(packed, terms, paths, part)
            loss += part
            logp[span] = current.logp.detach()
        return loss

    def _backward(self, packed: Packed, terms: Terms, paths: range) -> tuple[Current, float]:
        """Add the gradient of some paths to the parameters; return what they were computed from, and their loss."""
        current = self.forward(packed, paths)
        span, batch = packed.batch.span(paths), packed.batch.slice(paths)
        part = objective(current, batch, terms.slice(span), packed.batch.n_slots)
        part.backward()  # type: ignore[no-untyped-call]
        return current, float(part.detach())

    def _blame(self, packed: Packed, terms: Terms, paths: range, loss: float) -> NoReturn:
        """Raise BadUpdate for a loss or gradient of `paths` not finite, naming the first with one of its own."""
        what = "gradient" if isfinite(loss) else "loss"
        for path in paths:
            self.optimizer.zero_grad(set_to_none=True)
            _, alone = self._backward(packed, terms, range(path, path + 1))
            if not (isfinite(alone) and isfinite(self._norm())):
                raise BadUpdate(
                    f"the {what} is not finite in {packed.names[path]}", packed.keys[path]
                )
        raise BadUpdate(
            f"the {what} is not finite in {packed.names[paths.start]} or a path batched with it"
        )

    def _norm(self) -> float:
        grads = [
            parameter.grad for parameter in self.parameters.values() if parameter.grad is not None
        ]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0


def moving(terms: Terms, batch: Batch) -> Bool[Tensor, "p"]:
    """Return which paths have a slot that can move the weights."""
    live = (terms.weight * terms.advantage != 0) | (terms.kl_coef != 0) | (terms.entropy_coef != 0)
    live &= terms.scale != 0
    for penalty in terms.penalties:
        live = live | (penalty.coef != 0)
    moves = torch.zeros(batch.n_paths, dtype=torch.bool)
    moves[batch.path[live]] = True
    return moves


def _only(paths: range, keep: Bool[Tensor, "p"]) -> Bool[Tensor, "p"]:
    """Return which of `paths` are in `keep`."""
    kept = torch.zeros_like(keep)
    kept[paths.start : paths.stop] = keep[paths.start : paths.stop]
    return kept
