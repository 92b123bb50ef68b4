"""The worked examples of the sheets on clips, KL, advantages, rewards and token losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import torch

from turngym.agents.trajectory import PHASES, Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.tests.support.toy import build, f64, now_of, sheet
from turngym.tests.verify.methods.examples import EXAMPLES as BASE
from turngym.tests.verify.methods.examples import ONE, Example, credit, losses, on_sheet, shaped
from turngym.tests.verify.methods.sampling_examples import EXAMPLES as SAMPLED
from turngym.training.control.control import Stats, advantages
from turngym.training.data.batch import Current
from turngym.training.loss.objective import objective, start_terms
from turngym.training.loss.surrogates import hold
from turngym.training.methods import METHODS
from turngym.training.methods.advantage.gtpo import mean_ratio
from turngym.training.methods.advantage.gtpo import shaped as shared
from turngym.training.methods.advantage.ucas import CERTAIN, certainty
from turngym.training.methods.base_algorithms.dapo import overlong_penalty
from turngym.training.methods.clip.dcpo import advantage as smooth
from turngym.training.methods.clip.dcpo import bounds, visited
from turngym.training.methods.clip.m2po import threshold
from turngym.training.methods.contrib.d3s import extremes
from turngym.training.methods.contrib.opefo import polarity
from turngym.training.methods.contrib.seed_grpo import SPREAD, semantic
from turngym.training.methods.entropy.aent import CLAMPED, clamped
from turngym.training.methods.entropy.one_shot_em import sharpened
from turngym.training.methods.kl.kl import estimate
from turngym.training.methods.reward.empo import AGREED, agreed
from turngym.training.methods.token_weights.positive_reweighting import scheduled

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0] * 4], dtype=torch.float64)
HALF = [0.866024, -0.866024, -0.866024, 0.866024]


def archer_kl() -> Sequence[float]:
    """Return the KL term of Archer's example."""
    batch, current, terms = on_sheet("archer", kl=0.001)
    return [
        objective(current, batch, replace(terms, weight=0 * terms.weight), batch.n_slots).item()
    ]


def aspo() -> Sequence[float]:
    """Return loss and gradient of the example's five tokens, whose clip is that of uncertain ones."""
    batch = build([[5]], logp_old=[-1.5, -0.7, -1.0, -0.9, -2.0])
    logp = f64([-1.1, -1.0, -2.5, -1.3, -0.4]).requires_grad_()
    terms = METHODS["aspo"](kl=0.0).shape(
        start_terms(f64([1, 1, 1, -1, -1])), batch, now_of(Current(logp, batch.entropy)), {}
    )
    loss = -terms.surrogate(Current(logp, batch.entropy), batch, hold(terms, 0.4, 0.4))
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    return [*loss.tolist(), *gradient.tolist()]


def adaptive(kl: float) -> float:
    """Return the KL coefficient 0.1 after a step."""
    control = METHODS["kl"](coef=0.1, target=0.04)
    return float(control.observe(Stats(0, "update", kl=kl), {})[0]["coef"])


def apo_factor(right: int, count: int) -> float:
    """Return how light the KL is on a positive token, where `right` of `count` paths are right."""
    batch = build(
        [[1]] * count, scores=[1.0] * right + [0.0] * (count - right), logp_ref=[0.0] * count
    )
    return (
        shaped("apo", batch, torch.ones(count).double(), coef=1.0).penalties[0].coef[0].item()
        * count
    )


def apo_length(longer: int) -> float:
    """Return what the advantage of a wrong path is multiplied by that is `longer` than the right one."""
    batch = build([[1], [1 + longer]], scores=[1.0, 0.0])
    return shaped("apo", batch, torch.ones(2 + longer).double(), coef=0.0).advantage[-1].item()


def sent() -> Sequence[float]:
    """Return SENT's losses of TOY's tokens, and their mean."""
    batch, current, terms = on_sheet("sent", coef=0.1)
    cost = 5 * terms.penalties[0].coef * (current.logp - batch.logp_old).abs()
    return [
        *(cost - terms.surrogate(current, batch, terms)).tolist(),
        objective(current, batch, terms, 5).item(),
    ]


def zero_variance(score: float) -> Sequence[float]:
    """Return RL-ZVP's advantages of a path whose group has one score."""
    batch = build([[3]], entropy=[0.3, 1.6, 0.9], scores=[score])
    return advantages(METHODS["rl-zvp"](), batch, {}).tolist()


def fluent() -> Sequence[float]:
    """Return advantages by perplexity."""
    batch = build([[1]] * 3, logp_old=[-0.4, -0.8, -0.5])
    return shaped("deng", batch, f64([1, 1, -1]), b=0.0).advantage.tolist()


def pear() -> Sequence[float]:
    """Return PEAR's reward of a right path."""
    batch = build([[5]], entropy=[1, 0.6, 0.2, 0.1, 0.3], scores=[1.0])
    think = torch.tensor([PHASES.index("think")] * 3 + [PHASES.index("answer")] * 2)
    return METHODS["pear"]().reward(replace(batch, phase=think), {}).tolist()


def certain(of: str) -> Sequence[float]:
    """Return EM-RL's rewards of TOY."""
    return METHODS["em-rl"](of=of).reward(sheet()[0], {}).tolist()


def edge() -> Sequence[float]:
    """Return EDGE-GRPO's advantages."""
    batch = build(ONE, entropy=[0.5, 1, 0.25, 2])
    return shaped(
        "edge-grpo", batch, f64(credit("grpo", ONE, [1, 0, 0, 1], eps=1e-4))
    ).advantage.tolist()


def ucas(**parameters: Any) -> Sequence[float]:
    """Return UCAS's advantages."""
    batch = replace(
        build(ONE), extras={CERTAIN: f64([10, 20, 12, 18, 8, 22, 14, 19]).reshape(4, 2)}
    )
    return shaped(
        "ucas", batch, f64(credit("grpo", ONE, [1, 0, 0, 1])), **parameters
    ).advantage.tolist()


def canon(mu: float) -> Sequence[float]:
    """Return CANON's advantages."""
    batch = build([[1]] * 6, entropy=[0.2, 0.4, 0.9, 0.7, 0.3, 0.8], scores=[1, 0, 1, 0, 1, 0])
    return advantages(METHODS["canon"](mu=mu), batch, {}).tolist()


def seed_grpo() -> Sequence[float]:
    """Return SEED-GRPO's advantages where SE is as large as can be."""
    batch = build(ONE)
    batch = replace(batch, turns=replace(batch.turns, columns={SPREAD: f64([1.0] * 4)}))
    return shaped("seed-grpo", batch, f64([0.5, -0.5, -0.5, 0.5])).advantage.tolist()


def empo() -> Sequence[float]:
    """Return the scores of answers a, a, b, a."""
    turns = [Turn.unsampled(-1, "user", "?", torch.zeros(0).int().numpy())]
    leaves = [
        Leaf(0, place, Outcome.DONE, "", 0.0, info={"answer": text})
        for place, text in enumerate("aaba")
    ]
    assert AGREED in METHODS["empo"]().needs.columns
    return agreed(Tree((0, 0, 0), 0, "", turns, leaves))


def shares(right: bool, paths: bool = False) -> Sequence[float]:
    """Return the rewards of GTPO, or of GRPO-S, of TOY's two rows, both right or both wrong."""
    batch = sheet()[0]
    if paths:
        mean, both = f64([2.8 / 3, 1.35]), torch.tensor([right] * 2)
        return shared(mean, torch.zeros(1, 2).long(), both, 0.1).tolist()
    return shared(
        batch.entropy, torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([right] * 5), 0.1
    ).tolist()


def gtpo() -> Sequence[float]:
    """Return GTPO's advantages of TOY's two rows, both right."""
    batch = build([[3], [2]], entropy=sheet()[0].entropy.tolist(), scores=[1, 1])
    return advantages(METHODS["gtpo"](), batch, {}).tolist()


def mean_ratios() -> Sequence[float]:
    """Return GRPO-S's ratios of TOY's two rows."""
    batch, current, _ = sheet()
    return mean_ratio(current, batch, hold(start_terms(torch.ones(5).double()), 9.0, 9.0)).tolist()[
        2:4
    ]


def entropic_alphas() -> Sequence[float]:
    """Return α of EntroPIC's table."""
    control, found = METHODS["entropic"](), list[float]()
    state = control.init()
    for entropy in (0.05, 0.08, 0.12, 0.20, 0.10, 0.10):
        state, _ = control.observe(Stats(0, "rollout", entropy=entropy), state)
        found.append(state["alpha"])
    return found


def entropic_loss(variant: str) -> float:
    """Return EntroPIC's loss of the example's five tokens."""
    logp, gap = f64([0.99, 0.97, 0.5, 0.96, 0.2]).log(), f64([0, 0.1, -0.05, 0, 0.3])
    batch = build([[5]], logp_old=(logp - gap).tolist())
    current = Current(logp, batch.entropy)
    state = {"sum": 0.0, "alpha": -0.05}
    terms = shaped(
        "entropic", batch, f64([1, -1, 1, -0.5, -1]), state, now_of(current), variant=variant
    )
    return objective(current, batch, terms, 5).item()


def observed(
    method: str, name: str, entropies: Sequence[float], **parameters: Any
) -> Sequence[float]:
    """Return a number in the state of a controller after each of these entropies."""
    control, found = METHODS[method](**parameters), list[float]()
    state = control.init()
    for entropy in entropies:
        state, _ = control.observe(
            Stats(0, "rollout", entropy=entropy, entropy_sampled=entropy), state
        )
        found.append(float(state[name]))
    return found


def reweighted() -> Sequence[float]:
    """Return the loss of five tokens where λ is 0.3."""
    batch = build([[5]])
    signs = f64([1.2, 1.2, -0.8, -0.8, 0.4])
    weight = shaped("positive-reweighting", batch, signs, {"used": 0.3, "next": 0.3}).weight
    return [(weight * f64([-1.2, -1.1, 0.8, 0.9, -0.4])).sum().item() / 5]


def aer(entropy: float) -> float:
    """Return AER's coefficient after an entropy."""
    return float(
        METHODS["aer"]().observe(
            Stats(1, "rollout", entropy=entropy), {"coef": 0.01, "start": 2.0}
        )[0]["coef"]
    )


def aent(entropy: float) -> float:
    """Return AEnt's coefficient after an entropy, of 0.0002."""
    control = METHODS["aent"](
        first=0.0002, eta=0.001, low=0.1, high=0.4, least=0.00004, most=0.1, warm=0
    )
    stats = Stats(1, "update", extras={f"extras/{CLAMPED}": entropy})
    return float(control.observe(stats, control.init())[0]["coef"])


def mastered(entropy: float) -> Sequence[float]:
    """Return UloRL's weights of a right path's tokens of probability 0.995 and 0.98."""
    batch = build(
        [[2]], logp_old=f64([0.995, 0.98]).log().tolist(), entropy=[entropy] * 2, scores=[1.0]
    )
    return shaped("ulorl", batch, batch.entropy).weight.tolist()


def htpo(advantage: float, logp: float) -> Sequence[float]:
    """Return the loss of a high token of ratio e^logp, and its slope, in a hard group."""
    batch = build([[1], [1]], scores=[1.0, 0.0])
    new = f64([logp, logp]).requires_grad_()
    terms = shaped("htpo", batch, f64([1.0, -1.0]))
    loss = -terms.surrogate(Current(new, batch.entropy), batch, terms)[0 if advantage > 0 else 1]
    return [loss.item(), torch.autograd.grad(loss, new)[0].sum().item()]


def branched() -> Sequence[float]:
    """Return ETTRL's advantages without its clip."""
    batch = build(ONE, entropy=[0.3, 0.5, 0.4, 0.8])
    return shaped(
        "ettrl", batch, f64([1.5, -0.5, -0.5, -0.5]), most=inf, vote=False
    ).advantage.tolist()


def smoothed() -> Sequence[float]:
    """Return DCPO's statistics and advantages of a task's third visit."""
    past = [0.25, 0.433, 2]
    one, same = [1.0, 1.0, 0.0, 0.0], [1.0] * 4
    return [
        *visited(one, past)[:2],
        *smooth(one, past),
        *visited(same, past)[:2],
        *smooth(same, past),
    ]


def dcpo_bounds(q: float, low: float = 0.2, high: float = 0.28) -> Sequence[float]:
    """Return DCPO's bounds of a token of old probability q."""
    return [bound.item() for bound in bounds(f64([q]), low, high, 10.0)]


def steer_loss() -> Sequence[float]:
    """Return the loss of TOY with exponential weights and clip 0.2 / 0.28."""
    batch, current, terms = on_sheet("steer")
    return [objective(current, batch, hold(terms, 0.2, 0.28), 5).item()]


FOUR = build([[4]], entropy=[1.0] * 4)
MOVED = now_of(Current(FOUR.logp_old, f64([0.9, 0.97, 1.03, 1.2])))
X_TOY = (f64([-0.1, -1.1, -1.0]), f64([-0.3, -1.2, -0.8]))
CLIP, KL, ADV, OBJ, CTRL = (
    "clip_kl.md 3",
    "clip_kl.md 4",
    "advantage.md 1",
    "objective.md 5",
    "control.md",
)
H_PAR = (0.15, 0.25, 0.3, 0.22, 0.18, 0.21)
H_AEC = (0.30, 0.19, 0.18, 0.15, 0.21, 0.19)
EXAMPLES = (
    *BASE,
    *SAMPLED,
    Example(
        "dapo",
        CLIP,
        lambda: overlong_penalty(f64([16000, 17000, 18432, 20480]), 20480, 4096, -1).tolist(),
        [0, -0.150391, -0.5, -1],
    ),
    Example("clip-free", CLIP, lambda: losses("clip-free")[-1:], [-0.237591]),
    Example("clip-higher", "base.md 7", lambda: losses("clip-higher")[-1:], [-0.195226]),
    Example(
        "bapo",
        CLIP,
        lambda: losses("bapo", low=0.6, high=1.0, target=1.4, variant="code")[-1:],
        [-0.189226],
    ),
    Example(
        "bapo",
        CLIP,
        lambda: [on_sheet("bapo", low=0.6, high=1.0, target=1.4, variant="code")[2].clip_high[0]],
        [0.35],
    ),
    Example(
        "archer",
        CLIP,
        lambda: losses("archer"),
        [-1.105171, -1.491825, -0.740818, 0.8, 1.349859, -0.237591],
    ),
    Example("archer", CLIP, archer_kl, [0.000030]),
    Example(
        "dcpo", CLIP, lambda: [*dcpo_bounds(0.9), *dcpo_bounds(0.5)], [0.666667, 1.249074, 0.5, 1.4]
    ),
    Example(
        "dcpo",
        CLIP,
        lambda: [*dcpo_bounds(0.9, 0.16, 0.2), *dcpo_bounds(0.01)],
        [0.768742, 1.187184, 0.5, 5.815073],
    ),
    Example(
        "dcpo",
        CLIP,
        smoothed,
        [0.333333, 0.499993, *[1.021801] * 2, *[-0.733126] * 2, 0.5, 0.499993, *[0.333338] * 4],
    ),
    Example(
        "aspo",
        CLIP,
        aspo,
        [-0.714286, -1.349859, 7.5, 0.670320, -1.2, 0.0, -1.349859, -3.0, 0.670320, 3.0],
    ),
    Example(
        "erc", CLIP, lambda: list(shaped("erc", FOUR, FOUR.entropy, now=MOVED).weight), [0, 1, 1, 0]
    ),
    Example(
        "ce-gppo",
        CLIP,
        lambda: losses("ce-gppo", below=0.5),
        [-1.105171, -1.2, -0.740818, 0.4, 1.349859, -0.259226],
    ),
    Example("m2po", CLIP, lambda: losses("m2po")[-1:], [-0.257591]),
    Example(
        "m2po",
        CLIP,
        lambda: [threshold(f64([0.01, 0.16, 0.16]), limit) for limit in (0.1, 0.04)],
        [0.1, 0.1],
    ),
    Example("kl", KL, lambda: estimate("k2", *X_TOY).tolist(), [0.02, 0.005, 0.02]),
    Example("kl", KL, lambda: estimate("k3", *X_TOY).tolist(), [0.018731, 0.004837, 0.021403]),
    Example("kl", KL, lambda: [adaptive(0.05), adaptive(0.01)], [0.100512, 0.099488]),
    Example(
        "apo",
        KL,
        lambda: [apo_factor(*own) for own in ((4, 4), (3, 4), (2, 4), (1, 8))],
        [1, 0.869804, 0.743119, 0.288077],
    ),
    Example(
        "apo",
        KL,
        lambda: [apo_length(longer) for longer in (0, 1000, 10000)],
        [1, 1.009950, 1.095162],
    ),
    Example("sent", KL, sent, [-1.105171, -1.471825, -0.740818, 0.750320, 1.349859, -0.243527]),
    Example(
        "entropy-adv",
        ADV,
        lambda: on_sheet("entropy-adv")[2].advantage,
        [1.12, 1.5, 1.36, -0.68, -0.5],
    ),
    Example(
        "entropy-adv",
        ADV,
        lambda: on_sheet("entropy-adv", alpha=0.1)[2].advantage,
        [1.03, 1.16, 1.09, -0.92, -0.81],
    ),
    Example(
        "rl-zvp",
        ADV,
        lambda: [*zero_variance(1.0), *zero_variance(0.0)],
        [0.03, 0.16, 0.09, -0.13, 0, -0.07],
    ),
    Example("deng", ADV, fluent, [1.008006, 0.988791, -1.003203]),
    Example("pear", ADV, pear, [0.6]),
    Example(
        "em-rl", ADV, lambda: [*certain("token"), *certain("sequence")], [-2.8, -2.7, -2.4, -3.2]
    ),
    Example("edge-grpo", ADV, edge, [1.623516, -0.811758, -3.247033, 0.405879]),
    Example("ucas", ADV, lambda: ucas(cost=0.0), [0.954070, -0.991746, -0.576658, 0.647707]),
    Example("ucas", ADV, ucas, [0.929070, -0.991746, -0.626658, 0.635207]),
    Example(
        "ucas",
        ADV,
        lambda: [certainty(LOGITS, torch.zeros(2).long(), None)[0, 0].item()],
        [1.940190],
    ),
    Example("canon", ADV, lambda: canon(1.0), [2 / 3, -1 / 3, 1 / 3, -2 / 3, 2 / 3, -2 / 3]),
    Example("canon", ADV, lambda: canon(0.0), [1 / 3, -2 / 3, 2 / 3, -1 / 3, 1 / 3, -1 / 3]),
    Example("canon", ADV, lambda: canon(0.5), [0.5, -0.5, 0.5, -0.5, 0.5, -0.5]),
    Example("qae", ADV, lambda: credit("qae", ONE, [1, 0, 0, 0]), [1.999996, 0, 0, 0]),
    Example("qae", ADV, lambda: credit("qae", ONE, [1, 1, 1, 0]), [0, 0, 0, -1.999996]),
    Example("seed-grpo", ADV, seed_grpo, [0.479985, -0.479985, -0.479985, 0.479985]),
    Example(
        "seed-grpo",
        "inference.md semantic entropy",
        lambda: [semantic([-0.2, -0.3, -0.5, -1], "aabc")],
        [1.281651],
    ),
    Example("empo", ADV, empo, [0.75, 0.75, 0.25, 0.75]),
    Example("gtpo", OBJ, lambda: shares(True), [1.054545, 1.091429, 1.1, 1.145455, 1.108571]),
    Example("gtpo", OBJ, lambda: shares(False), [-1.145455, -1.108571, -1.1, -1.054545, -1.091429]),
    Example("gtpo", OBJ, gtpo, [-1.553754, -0.292994, 0, 1.553754, 0.292994]),
    Example(
        "grpo-s",
        OBJ,
        lambda: [*shares(True, True), *shares(False, True)],
        [1.081752, 1.118248, -1.118248, -1.081752],
    ),
    Example("grpo-s", OBJ, mean_ratios, [1.112605, 1.010089]),
    Example(
        "entropic", f"{CTRL} F", entropic_alphas, [-0.05, -0.0205, 0.0193, 0.0995, 0.0005, 0.0005]
    ),
    Example(
        "entropic",
        f"{CTRL} F",
        lambda: [entropic_loss("code"), entropic_loss("paper")],
        [0.244180, 0.226812],
    ),
    Example(
        "positive-reweighting",
        f"{CTRL} G1",
        lambda: observed("positive-reweighting", "used", H_PAR),
        [0, 0, 0.05, 0.1, 0.15, 0.1],
    ),
    Example(
        "positive-reweighting",
        f"{CTRL} G1",
        lambda: [scheduled("epoch", step, 5, 5) for step in range(5)],
        [0, 0.25, 0.5, 0.75, 1],
    ),
    Example(
        "positive-reweighting",
        f"{CTRL} G1",
        lambda: [scheduled("stage", step, 10, 5) for step in range(10)],
        [0, 0, 0, 0, 0, 0, 0.2, 0.4, 0.6, 0.8],
    ),
    Example("positive-reweighting", f"{CTRL} G1", reweighted, [0.178]),
    Example(
        "ada-ent-reg",
        f"{CTRL} G2",
        lambda: observed("ada-ent-reg", "used", H_AEC),
        [0, 0, 1e-4, 2e-4, 3e-4, 0],
    ),
    Example(
        "ada-ent-reg",
        f"{CTRL} G2",
        lambda: observed("ada-ent-reg", "next", H_AEC),
        [0, 1e-4, 2e-4, 3e-4, 2e-4, 3e-4],
    ),
    Example(
        "ada-ent-reg",
        f"{CTRL} G2",
        lambda: observed("ada-ent-reg", "open", H_AEC),
        [0, 1, 1, 1, 0, 1],
    ),
    Example("aer", OBJ, lambda: [aer(1.2), aer(0.6)], [0.009, 0.012]),
    Example(
        "aent",
        OBJ,
        lambda: clamped(0.3, LOGITS[:1], torch.zeros(1).long(), None).tolist(),
        [0.832396],
    ),
    Example("aent", OBJ, lambda: [aent(0.05), aent(0.6)], [0.00025, 0.00004]),
    Example(
        "one-shot-em",
        OBJ,
        lambda: sharpened(0.5, LOGITS, torch.zeros(2).long(), None).tolist(),
        [0.455429, 1.386294],
    ),
    Example("forking-tokens", OBJ, lambda: losses("forking-tokens")[-1:], [1.349859]),
    Example("d3s", OBJ, lambda: extremes(f64([2, 0.5, -0.1, -1]), 2), [0, 3]),
    Example("ulorl", OBJ, lambda: [*mastered(0.15), *mastered(0.25)], [0, 1, 1, 1]),
    Example(
        "steer",
        OBJ,
        lambda: list(on_sheet("steer")[2].weight),
        [0.990612, 0.8, 0.979220, 0.896431, 0.949007],
    ),
    Example(
        "steer",
        OBJ,
        lambda: list(on_sheet("steer", weight="linear")[2].weight),
        [1.2, 0.8, 1.178351, 1.013016, 1.119693],
    ),
    Example("steer", OBJ, steer_loss, [-0.169210]),
    Example(
        "papo",
        "objective.md 8",
        lambda: polarity(sheet()[2], now_of(sheet()[1])).tolist(),
        [-0.017221, -0.111034, 0.023254, -0.099129, -0.011702],
    ),
    Example(
        "cw-grpo",
        "objective.md 8",
        lambda: on_sheet("cw-grpo")[2].advantage.abs(),
        [0.278910, 1.642441, 1.613576, 1.400192, 0.064881],
    ),
    Example("htpo", "objective.md 8", lambda: htpo(1, 0.405465108), [1.28, 1.28]),
    Example("htpo", "objective.md 8", lambda: htpo(-1, -0.693147181), [-0.8, -0.8]),
    Example("ettrl", "sampling.md I3", branched, [2.1, -0.5, -0.6, -0.2]),
)
