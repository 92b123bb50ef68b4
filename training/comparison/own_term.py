"""The own term of a method: how much of a run's gradient the reference would not have.

    own term = |g - g_ref| / |g|

where g is the gradient of the run's loss over all that is trained, and g_ref that of the reference's loss on the same
paths with the same weights. It is measured in steps 1, 2, 4, 8, … on the first paths that are learned from; of several
optimizer steps in a training step the largest counts, as a clip acts from the second one on.
"""

from collections.abc import Iterable
from math import inf

import torch

from ..control.control import Control, Needs, State
from ..data.batch import Now
from ..data.packing import Packed
from ..loop.learner import moving
from ..loop.trainer import Loop
from ..loss.objective import BadUpdate, objective
from .effect import Effect, read_effect

SHARE = 16  # the paths that are looked at have at most one in so many of a step's tokens, and are at least one path


class OwnTerm:
    """Measures the own term of a run's method in steps 1, 2, 4, 8, …, and writes it into the run folder.

    It leaves gradients, weights and random numbers alone, so the run is the same as without it.
    """

    def __init__(self, loop: Loop, reference: Control) -> None:
        self.learner, self.reference, self.folder = loop.learner, reference, loop.folder
        self.reference_state = reference.init()

    @property
    def measurable(self) -> bool:
        """Whether the run computes all that the reference needs."""
        return _covers(self.learner.control.needs, self.reference.needs)

    def before_update(
        self, step: int, packed: Packed, state: State, now: Now | None, paths: range
    ) -> None:
        """Look at an optimizer step of training step `step`; the arguments are those of `Learner.propose`."""
        if step & (step - 1):  # no power of two
            return
        share = self._share(packed, state, now, paths)
        if share is None:
            return
        effect = read_effect(self.folder)
        before = (
            effect.own_term.get(step, 0.0) if packed.batch.at.update else 0.0
        )  # of earlier optimizer steps
        Effect({**effect.own_term, step: max(before, share)}, effect.episodes).write(self.folder)

    def _share(self, packed: Packed, state: State, now: Now | None, paths: range) -> float | None:
        """Return |g - g_ref| / |g| on the first paths that are learned from; None if nothing is."""
        learner = self.learner
        part, terms = learner.terms(learner.control, packed, state, now, paths)
        _, reference_terms = learner.terms(self.reference, packed, self.reference_state, now, paths)
        moves = moving(terms, part.batch) | moving(reference_terms, part.batch)
        tokens = sum(len(shared) for shared in part.shared)
        few = next(
            (few for few in part.micro_batches(max(tokens // SHARE, 1), moves) if moves[few].any()),
            None,
        )
        if few is None:
            return None
        span, batch = part.batch.span(few), part.batch.slice(few)
        current = learner.forward(part, few)
        try:
            loss = objective(current, batch, terms.slice(span), part.batch.n_slots)
            reference_loss = objective(
                current, batch, reference_terms.slice(span), part.batch.n_slots
            )
        except BadUpdate:
            return None  # the run itself says what is wrong with it
        whole = _norm(loss, learner.parameters.values(), keep=True)
        own = _norm(loss - reference_loss, learner.parameters.values(), keep=False)
        return own / whole if 0 < whole < inf and own < inf else None


def _norm(loss: torch.Tensor, parameters: Iterable[torch.Tensor], keep: bool) -> float:
    """Return the norm of the gradient of `loss`, which is not added to that of the parameters."""
    if not loss.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(loss, list(parameters), retain_graph=keep, allow_unused=True)
    return float(torch.nn.utils.get_total_norm([one for one in gradients if one is not None]))


def _covers(own: Needs, reference: Needs) -> bool:
    """Return whether all that `reference` asks for is among what `own` does."""
    flags = all(
        getattr(own, name) or not getattr(reference, name)
        for name in ("logp_ref", "entropy_grad", "now")
    )
    kinds = ("functionals", "modules", "columns")
    tables = all(
        getattr(own, kind).get(name) is one
        for kind in kinds
        for name, one in getattr(reference, kind).items()
    )
    return flags and tables and own.temperature == reference.temperature
