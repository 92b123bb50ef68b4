"""What papers on entropy measure of a run, of each step and over its steps.

A response is all that its agent drew on a path that has a score and is no probe.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import combinations
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...agents.journal.trees import write_file
from ..report.data import UPDATES, Run, path_of, read

PACKAGES = {
    "sacrebleu": "sacrebleu",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
}  # of the extra, by module
GRAMS = 4  # longest n-gram of the diversity
BINS = 10  # of confidence
LEAST = 4  # steps of a correlation or a fit
LAWS = ("cov", "cov_p")  # what the change of entropy is set against
QUANTITIES = (
    *(
        "entropy",
        "entropy_response",
        "entropy_prompt",
        "diversity",
        "self_bleu",
        "reward",
        "logp_right",
    ),
    *("logp_wrong", "ece", "auroc", *LAWS),
)
Floats = NDArray[np.float64]
Series = Mapping[int, float]  # by step


@dataclass(frozen=True)
class Response:
    """What an agent drew on one path; arrays `(n,)`, one entry a token."""

    tokens: NDArray[np.int64]
    entropy: Floats  # nats, full vocabulary, temperature 1
    logp: Floats  # nats, the sampler's
    advantage: Floats  # times the weight of the policy term; NaN where the path was not trained on
    text: str
    score: float


@dataclass(frozen=True)
class Analysis:
    """What was measured of a run; a number that cannot be had is None, or its step is left out."""

    run: str
    series: Mapping[str, Series]  # by `QUANTITIES`
    spearman: Mapping[str, Mapping[str, float | None]]  # rank correlations over steps
    reward_law: Mapping[str, float] | None  # of means of steps, see there
    entropy_law: Mapping[str, Mapping[str, float | None] | None]  # by `LAWS`
    notes: tuple[str, ...]  # what could not be read

    @classmethod
    def of(cls, run: Run, texts: bool = True) -> Self:
        """Analyse a run; without `texts` no Self-BLEU. Raises ValueError where it lacks what is measured."""
        found = series(run, texts)
        ranks: dict[str, dict[str, float | None]] = {name: {} for name in found}
        for one, other in combinations(found, 2):
            ranks[one][other] = ranks[other][one] = spearman(found[one], found[other])
        laws = {name: entropy_law(found["entropy"], found[name]) for name in LAWS}
        law = reward_law(found["entropy"], found["reward"])
        return cls(str(run.folder), found, ranks, law, laws, tuple(run.notes))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a row of each quantity: means of the first and last fifth of steps, rank correlation with entropy."""
        for name, values in self.series.items():
            if every := [values[step] for step in sorted(values)]:
                fifth, rank = max(len(every) // 5, 1), self.spearman["entropy"].get(name)
                ends = (f"{fmean(some):.3f}" for some in (every[:fifth], every[-fifth:]))
                yield name, *ends, "–" if rank is None else f"{rank:+.2f}"

    def laws(self) -> str:
        law, fits = self.reward_law, {name: fit for name, fit in self.entropy_law.items() if fit}
        parts = [f"R = {-law['a']:.3g}·exp(H) {law['b']:+.3g}, R² {law['r2']:.2f}"] if law else []
        parts += [
            f"dH by -{name}: slope {fit['slope']:.3g}, R² {fit['r2']:.2f}"
            for name, fit in fits.items()
        ]
        return "; ".join(parts)


def analyse(folders: Sequence[Path], file: Path, texts: bool = True) -> list[Analysis]:
    """Analyse the runs of some folders, of runs or comparisons, and write all numbers to a file.

    Raises ValueError, OSError: a folder is none, lacks what is measured, or a package of the extra is missing.
    """
    check_packages()
    found = [Analysis.of(run, texts) for run in read(list(folders)).runs]
    data = {"version": __version__, "runs": [asdict(one) for one in found]}
    write_file(file, json.dumps(data, indent=1, allow_nan=False) + "\n")
    return found


def check_packages() -> None:
    """Raise ValueError where a package of the extra is missing."""
    for module, package in PACKAGES.items():
        if find_spec(module) is None:
            raise ValueError(
                f'{package} is not installed; install the analysis extra: pip install "turngym[analysis]"'
            )


def series(run: Run, texts: bool = True) -> dict[str, dict[int, float]]:
    """Return each quantity by step. Raises ValueError where the run lacks what is measured."""
    for name in ("trees", UPDATES):
        if not any((run.folder / name).glob("step-*")):
            raise ValueError(
                f"{run.folder} has no {name}/ of any step; name the folder of a run that kept them"
            )
    found: dict[str, dict[int, float]] = {name: {} for name in QUANTITIES}
    for step in run.played:
        groups = list(responses(run, step))
        for name, value in measured(groups, texts).items() if groups else ():
            if np.isfinite(value):
                found[name][step] = value
    return found


def responses(run: Run, step: int) -> Iterator[list[Response]]:
    slots = run.slots(step)
    for tree in run.trees(step):
        leaves = [
            leaf
            for leaf in tree["leaves"]
            if leaf["score"] is not None and leaf.get("trained", True)
        ]
        every = (
            _response(tree, leaf, slots.get((*tree["key"], leaf["branch"]))) for leaf in leaves
        )
        if group := [response for response in every if len(response.tokens)]:
            yield group


def _response(tree: Mapping[str, Any], leaf: Mapping[str, Any], slots: Any) -> Response:
    nodes = path_of(tree["turns"], leaf["node"])
    turns = [
        turn for turn in (tree["turns"][node] for node in nodes) if turn["role"] == "assistant"
    ]
    drawn = np.array([drawn for turn in turns for drawn in turn["sampled"]], bool)
    names = ("tokens", "entropy", "logp_roll")
    tokens, entropy, logp = (
        np.array([value for turn in turns for value in turn[name]])[drawn] for name in names
    )
    advantage = (
        slots.advantage.astype(float) * slots.weight if slots else np.full(int(drawn.sum()), nan)
    )
    return Response(
        tokens, entropy, logp, advantage, "\n".join(turn["text"] for turn in turns), leaf["score"]
    )


def measured(groups: Sequence[Sequence[Response]], texts: bool = True) -> dict[str, float]:
    """Return the quantities of the responses to some prompts; NaN where there is nothing to count."""
    every = [response for group in groups for response in group]
    right = np.array([response.score >= 1 for response in every])
    sure = np.array([response.logp.mean() for response in every])
    logp, advantage = (
        np.concatenate([getattr(one, name) for one in every]) for name in ("logp", "advantage")
    )
    logp, advantage = logp[known := np.isfinite(advantage)], advantage[known]
    parts: dict[str, Any] = {
        "entropy": np.concatenate([one.entropy for one in every]),
        "entropy_response": [one.entropy.mean() for one in every],
        "entropy_prompt": [
            np.concatenate([one.entropy for one in group]).mean() for group in groups
        ],
        "diversity": [diversity([one.tokens.tolist() for one in group]) for group in groups],
        "self_bleu": [self_bleu([one.text for one in group]) for group in groups] if texts else [],
        "reward": [one.score for one in every],
        "logp_right": sure[right],
        "logp_wrong": sure[~right],
        "cov": (logp - logp.mean()) * (advantage - advantage.mean()) if len(logp) else [],
        "cov_p": (logp - logp.mean()) * np.exp(logp) * advantage if len(logp) else [],
    }
    found = {name: np.asarray(part, float) for name, part in parts.items()}
    means = {
        name: float(part[ok].mean()) if (ok := np.isfinite(part)).any() else nan
        for name, part in found.items()
    }
    return means | dict(zip(("ece", "auroc"), calibration(np.exp(sure), right), strict=True))


def diversity(sequences: Sequence[Sequence[int]]) -> float:
    """Return distinct-n of some sequences, mean of n up to `GRAMS` (Li et al. 2016, arXiv 1510.03055); NaN of none."""
    lengths = range(1, GRAMS + 1)
    found = (
        [tuple(one[i : i + n]) for one in sequences for i in range(len(one) - n + 1)]
        for n in lengths
    )
    shares = [len(set(grams)) / len(grams) for grams in found if grams]
    return fmean(shares) if shares else nan


def self_bleu(texts: Sequence[str]) -> float:
    """Return the mean BLEU-4 of each text against the others (Zhu et al. 2018, arXiv 1802.01886); NaN of one."""
    from sacrebleu.metrics import BLEU

    bleu, said, total = BLEU(effective_order=True), Counter(texts), 0.0
    for text, times in said.items():  # a reference that is said twice counts once
        others = [other for other in said if other != text or times > 1]
        total += times * bleu.sentence_score(text, others).score / 100 if others else nan
    return total / len(texts)


def calibration(confidence: Floats, right: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the expected calibration error (Guo et al. 2017, arXiv 1706.04599) and the AUROC; NaN of one class."""
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import roc_auc_score

    confidence = np.minimum(confidence, 1.0)  # rounding of a probability
    share, mean = calibration_curve(right, confidence, n_bins=BINS, pos_label=True)
    counts = np.bincount(np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence))
    error = float(np.abs(share - mean) @ counts[counts > 0] / len(confidence))
    return error, float(roc_auc_score(right, confidence)) if 0 < right.sum() < len(right) else nan


def spearman(one: Series, other: Series) -> float | None:
    """Return the rank correlation over the steps of both; None of fewer than `LEAST`, or where one never changes."""
    from scipy.stats import spearmanr

    pair = _paired(one, other)
    return float(spearmanr(*pair).statistic) if pair else None


def reward_law(entropy: Series, reward: Series) -> dict[str, float] | None:
    """Return `a`, `b` and `r2` of R = -a·exp(H) + b by least squares (arXiv 2505.22617); None of few steps."""
    fit = _line({step: float(np.exp(value)) for step, value in entropy.items()}, reward)
    return fit and {"a": -fit["slope"], "b": fit["intercept"], "r2": fit["r2"]}


def entropy_law(entropy: Series, cov: Series) -> dict[str, float | None] | None:
    """Return how the change of entropy to the next step follows -cov (arXiv 2505.22617): line, fit, ranks."""
    change = {
        step: entropy[step + 1] - value for step, value in entropy.items() if step + 1 in entropy
    }
    fit = _line(minus := {step: -value for step, value in cov.items()}, change)
    return None if fit is None else {**fit, "spearman": spearman(minus, change)}


def _line(x: Series, y: Series) -> dict[str, float] | None:
    from scipy.stats import linregress

    if not (pair := _paired(x, y)):
        return None
    fit = linregress(*pair)
    return {
        "slope": float(fit.slope),
        "intercept": float(fit.intercept),
        "r2": float(fit.rvalue**2),
    }


def _paired(one: Series, other: Series) -> tuple[Floats, Floats] | None:
    """Return the values of the steps that both have; None of fewer than `LEAST`, or where one never changes."""
    steps = [step for step in one if step in other]
    a, b = (np.array([of[step] for step in steps]) for of in (one, other))
    return (a, b) if len(steps) >= LEAST and np.ptp(a) and np.ptp(b) else None
