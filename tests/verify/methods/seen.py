"""What methods promise of entropy, seen: on the toy plant, and in real runs of the tiny policy.

Each method's recipe beside GRPO with as many optimizer steps on a rollout and the same seeds. What is compared is the
mean entropy of the last third of the steps. What was measured is a line of `seen.jsonl`, so an interrupted count goes
on. A method that promises nothing of entropy is measured on the plant only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from turngym.tests.verify.methods.plant import Plant, settled
from turngym.tests.verify.rows import Row
from turngym.training.control.chain import chain
from turngym.training.loop.learner import Learner, Update
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHOD_RECIPES, METHODS, parse_methods
from turngym.training.runs.config import TrainConfig

STEPS = {"plant": 30, "run": 20}
EVERY = 5  # steps between measurements of a run's gradient
# What the cards say: the entropy is above (1) or below (-1) what it would be without the method.
UP = """adapo ada-ent-reg aent aepo-he aepo-wang aer archer aspo bapo ce-gppo clip-cov clip-free clip-higher
clip-tighter cw-grpo dapo dcpo dmpo eag-rl entrocraft entropic entropy-adv entropy-bonus epo erc evol-rl
flowrl forking-tokens htpo kl-cov nsr opefo papo positive-reweighting rand-pos-clip repo rl-zvp sent simko
steer turn-floor ucas ulorl"""
DOWN = "clip-lower em-rl empo one-shot-em pear psr"
PROMISES = {name: sign for names, sign in ((UP, 1), (DOWN, -1)) for name in names.split()}


@dataclass(frozen=True)
class Seen:
    """Measures methods and keeps what it measured in `folder`."""

    folder: Path
    seeds: int = 2
    where: tuple[str, ...] = ("plant", "run")

    def rows(self, names: list[str]) -> Iterator[Row]:
        """Yield a row a method, with its promise held where the sign of the change is that of the promise."""
        for name in names:
            found = [
                self._compared(name, where, seed)
                for where in self.where
                for seed in range(self.seeds)
            ]
            if any(found):
                yield row(name, [one for one in found if one])
        self.folder.joinpath("seen.md").write_text(table(self._kept()))

    def _compared(self, name: str, where: str, seed: int) -> dict[str, Any] | None:
        recipe = METHOD_RECIPES.get(name)
        if recipe is None or (plans(name) if where == "plant" else name not in PROMISES):
            return None
        method, updates = str(recipe["method"]), int(recipe.get("updates", 1))
        base = self._measured("grpo", "grpo", updates, where, seed)
        own = self._measured(name, method, updates, where, seed)
        return {**own, "base": base["entropy"]}

    def _measured(
        self, name: str, method: str, updates: int, where: str, seed: int
    ) -> dict[str, Any]:
        """Return what was measured of a method, now or before."""
        key = {"name": name, "method": method, "updates": updates, "where": where, "seed": seed}
        for line in self._kept():
            if key.items() <= line.items():
                return line
        began = time.monotonic()
        if where == "plant":
            plant = Plant(seed, updates=updates).run(method, "grpo", STEPS["plant"])
            entropies, share = plant.entropies, plant.added / plant.plain
        else:
            entropies, share = real(method, updates, seed, self.folder / f"{name}-{updates}-{seed}")
        line = {**key, "entropy": settled(entropies), "first": entropies[0], "gradient": share}
        line["seconds"] = round(time.monotonic() - began, 1)
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return line

    @property
    def _file(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / "seen.jsonl"

    def _kept(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self._file.read_text().splitlines()]
            if self._file.exists()
            else []
        )


# Controllers with what they are set to (nats), on a plant whose scores are partly a coin's.
TARGETS = (
    ("entropic:target=1.2,tau=0.5,kp=10,ki=0.1", 1.2),
    ("entropic:target=0.7,tau=0.5,kp=10,ki=0.1", 0.7),
    ("entropic:target=1.2,tokens=all,kp=10,ki=0.1", 1.2),
    ("positive-reweighting:target=1.2", 1.2),
    ("positive-reweighting:target=0.7", 0.7),
)
WITHIN, LONG = 0.15, 150


def settles(seeds: int, lr: float = 20.0, noise: float = 0.3) -> Iterator[Row]:
    """Yield for each controller how many steps of the last third are within 15 % of its target; of GRPO, how many."""
    plain = {
        seed: Plant(seed, lr=lr, noise=noise).run("grpo", "grpo", LONG).entropies
        for seed in range(seeds)
    }
    for method, target in TARGETS:
        tails = [
            Plant(seed, lr=lr, noise=noise)
            .run(f"grpo,{method}", "grpo", LONG)
            .entropies[-LONG // 3 :]
            for seed in range(seeds)
        ]
        held = sum(abs(value / target - 1) <= WITHIN for tail in tails for value in tail)
        span = f"{min(map(min, tails)):.2f} to {max(map(max, tails)):.2f} nats"
        without = fmean(settled(own) for own in plain.values())
        yield Row(method, held, LONG // 3 * seeds, f"{span}; GRPO {without:.2f}", need=0.9)


def real(method: str, updates: int, seed: int, folder: Path) -> tuple[list[float], float]:
    """Return the entropies of a run of the tiny policy, and how long a gradient the method adds to GRPO's."""
    from turngym.training.runs.run import execute, prepare

    config = TrainConfig().changed(
        method=method,
        updates=updates,
        seed=seed,
        steps=STEPS["run"],
        prompts=3,
        group=8,
        max_tokens=48,
    )
    config = config.changed(
        difficulty=(1, 2), eval_every=10**6, eval_tasks=1, threads=1, out=str(folder)
    )
    lengths: list[tuple[float, float]] = []
    with mock.patch.object(Learner, "_weighed", beside_grpo(Learner._weighed, lengths)):
        records = [record.metrics for record in execute(prepare(config)) if record.metrics]
    added, plain = (sum(column) for column in zip(*lengths, strict=True)) if lengths else (0.0, 1.0)
    return [float(line["entropy"]) for line in records], added / max(plain, 1e-12)


def beside_grpo(weighed: Any, lengths: list[tuple[float, float]]) -> Any:
    """Return a learner's step that also notes how long its gradient's difference from GRPO's is, and GRPO's."""

    def flat(learner: Learner) -> Tensor:
        own = learner.policy.trainable_parameters().values()
        return torch.cat(
            [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in own]
        )

    def measured(learner: Learner, packed: Any, terms: Any, lr_share: float) -> Update:
        plain = None
        if packed.batch.at.step % EVERY == 0 and not packed.batch.at.update:
            (credit,) = (one.credit for one in parse_methods("grpo"))
            assert credit is not None
            weighed(learner, packed, start_terms(credit(packed.batch, {})), lr_share)
            plain = flat(learner)
        update: Update = weighed(learner, packed, terms, lr_share)
        if plain is not None and not update.refused:
            lengths.append((float((flat(learner) - plain).norm()), float(plain.norm())))
        return update

    return measured


def row(name: str, found: list[dict[str, Any]]) -> Row:
    """Return what was measured of a method; without a promise, or where it only samples, nothing can fall short."""
    promise = PROMISES.get(name, 0)
    changes = [log(one["entropy"] / one["base"]) for one in found]
    held = sum(change * promise > 0 for change in changes) if promise else len(found)
    shown = {where: [one for one in found if one["where"] == where] for where in STEPS}
    ratios = {
        where: ", ".join(f"×{one['entropy'] / one['base']:.2f}" for one in own)
        for where, own in shown.items()
    }
    added = {where: fmean(one["gradient"] for one in own) for where, own in shown.items() if own}
    notes = [
        f"{where} {ratios[where]}, gradient added {share:.2g} of GRPO's"
        for where, share in added.items()
    ]
    said = {1: "entropy above GRPO's", -1: "entropy below GRPO's", 0: "no promise"}[promise]
    return Row(f"{name}: {said}", held, len(found), "; ".join(notes), need=0.75 if found else 0.0)


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of all that was measured, in Markdown."""
    bases = {
        (one["where"], one["seed"], one["updates"]): one["entropy"]
        for one in lines
        if one["name"] == "grpo"
    }
    head = ["| method | promise | plant | gradient | run | gradient |", "|---|---|---|---|---|---|"]
    total = sum(one["seconds"] for one in lines)
    for name in METHODS:
        cells = []
        for where in STEPS:
            own = [one for one in lines if one["name"] == name and one["where"] == where]
            ratios = [one["entropy"] / bases[where, one["seed"], one["updates"]] for one in own]
            cells += [f"×{exp(fmean(map(log, ratios))):.2f}" if own else "-"]
            cells += [f"{fmean(one['gradient'] for one in own):.2g}" if own else "-"]
        promise = {1: "up", -1: "down", 0: "-"}[PROMISES.get(name, 0)]
        head.append(f"| `{name}` | {promise} | {' | '.join(cells)} |")
    return "\n".join([*head, "", f"{len(lines)} measurements, {total:.0f} s"]) + "\n"


def plans(name: str) -> bool:
    """Return whether a method forks trees, which the plant does not have."""
    recipe = METHOD_RECIPES.get(name)
    return (
        recipe is not None
        and chain(*parse_methods(str(recipe["method"]), {"group": 8})).plan is not None
    )
