"""Numbers that are not finite, put into an update at random: none may change a bit of weights or moments."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from turngym.agents.chat.chat import Chat
from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import load_policy
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.envs.registry import make
from turngym.tests.support.policies import take
from turngym.tests.verify.rows import Row, Tally
from turngym.training.control.chain import chain
from turngym.training.control.control import Control, State
from turngym.training.data.batch import Batch, Current, Now, Penalty, Terms
from turngym.training.data.packing import Packed, pack
from turngym.training.loop.learner import Learner
from turngym.training.methods import parse_methods

BATCH = ("logp_old", "entropy")
TURNS = ("score", "reward")
TERMS = ("advantage", "weight", "scale", "kl_coef", "entropy_coef", "clip_low", "clip_high")
WHERE = (*BATCH, *TURNS, *TERMS, "penalty", "loss", "gradient", "model weight", "learning rate")
VALUES = (nan, inf, -inf)


class Numbers:
    """A learner of the tiny policy that has taken a step, and what it learns from."""

    def __init__(self, seed: int) -> None:
        torch.set_num_threads(1)
        self.rng, self.wild = random.Random(seed), _Wild()
        policy = load_policy(TINY, lora=LoraOptions(rank=8, alpha=16.0), seed=seed)
        engine, env = TorchEngine(policy), make("turngym/Math-v0", split="train", difficulty=(1,))
        actor = Actor(engine, Chat.from_folder(TINY), policy.end_ids)
        sampling = Sampling(temperature=1.0, max_tokens=12)
        trees = collect(actor, env, range(3), group=3, key=(seed, 0), sampling=sampling)
        engine.close()
        for tree in trees:  # so that every path moves
            tree.leaves = [replace(leaf, score=float(leaf.branch)) for leaf in tree.leaves]
        control = chain(
            *parse_methods("grpo,entropy-bonus"), Control(name="wild", shape=self.wild.shape)
        )
        self.packed, self.learner = pack(trees), Learner(policy, control, lr=1e-3)
        take(self.learner, self.packed, control.init())

    def rows(self, count: int) -> Iterator[Row]:
        """Yield what `count` updates with such a number in them come to."""
        unchanged = Tally(
            "NaN or Inf in an update: refused, weights and moments unchanged to the bit"
        )
        told, on = (
            Tally("… and the sample that brought it in is named"),
            Tally("… and the next update can be taken"),
        )
        for number in range(count):
            where, value = WHERE[number % len(WHERE)], VALUES[(number // len(WHERE)) % len(VALUES)]
            case, before = f"{number} {where} {value}", self._bits()
            path = self.rng.randrange(self.packed.batch.n_paths)
            found, key = self._spoiled(where, value, path)
            unchanged.add(case, not (found and _equal(before, self._bits())))
            named = key == self.packed.keys[path] and self.packed.names[path] in found
            if where in ("model weight", "learning rate"):  # which spoil every sample
                named = bool(key) if where == "model weight" else where in found
            told.add(case, "" if named else found or "nothing")
            on.add(case, self.learner.propose(self.packed, self.learner.control.init()).refused)
        yield from (
            unchanged.row(f"{len(WHERE)} places, {len(VALUES)} values"),
            told.row(),
            on.row(),
        )

    def _spoiled(self, where: str, value: float, path: int) -> tuple[str, tuple[int, ...]]:
        """Return why an update with `value` in it was refused, and the key of the sample it names."""
        packed, share = self.packed, 1.0
        slot = int((packed.batch.path == path).nonzero()[0])
        weight = next(iter(self.learner.parameters.values())).detach().view(-1)
        kept = float(weight[0])
        if where in BATCH:
            packed = _with_batch(packed, **{where: _put(getattr(packed.batch, where), slot, value)})
        elif where in TURNS:
            rows = packed.batch.turns.path == path
            spoilt: dict[str, Any] = {
                where: torch.where(rows, value, getattr(packed.batch.turns, where))
            }
            packed = _with_batch(packed, turns=replace(packed.batch.turns, **spoilt))
        elif where == "learning rate":
            share = value
        elif where == "model weight":
            weight[0] = value
        else:
            token = int(packed.batch.token[slot])
            self.wild.where, self.wild.slot, self.wild.token, self.wild.value = (
                where,
                slot,
                token,
                value,
            )
        try:
            update = take(self.learner, packed, self.learner.control.init(), share)
        finally:
            weight[0], self.wild.where = kept, ""
        return update.refused, update.key

    def _bits(self) -> list[Tensor]:
        parts = [list(state.values()) for state in self.learner.optimizer.state.values()]
        values = [*self.learner.parameters.values(), *(value for part in parts for value in part)]
        return [value.detach().clone() for value in values]


class _Wild:
    """A control that puts a number that is not finite where it is told to."""

    def __init__(self) -> None:
        self.where, self.slot, self.token, self.value = "", 0, 0, nan

    def shape(self, terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        """Spoil a column of the terms, or add a penalty that spoils the loss or its gradient."""
        if self.where in TERMS:
            value = -self.value if self.where.startswith("clip") and self.value > 0 else self.value
            spoilt: dict[str, Any] = {
                self.where: _put(getattr(terms, self.where), self.slot, value)
            }
            return replace(terms, **spoilt)
        if not self.where:
            return terms
        coef = torch.zeros_like(terms.scale)
        coef[self.slot] = self.value if self.where == "penalty" else 1.0
        return replace(terms, penalties=(Penalty("wild", coef, self._penalty),))

    def _penalty(self, current: Current, batch: Batch, terms: Terms) -> Tensor:
        """Return 0, but for one token: there it, or its gradient, is not finite."""
        zero = current.logp - current.logp.detach()
        which = batch.token == self.token
        if self.where == "penalty" or not bool(which.any()):
            return zero
        bad = zero[which].sqrt() if self.where == "gradient" else zero[which] + self.value
        return zero.index_put((which.nonzero()[:, 0],), bad)


def _put(column: Tensor, slot: int, value: float) -> Tensor:
    column = column.clone()
    column[slot] = value
    return column


def _with_batch(packed: Packed, **columns: Any) -> Packed:
    return replace(packed, batch=replace(packed.batch, **columns))


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))
