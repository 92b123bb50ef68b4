"""Every method with parameters under which it acts: what the battery is run on. A new method adds a line."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from turngym.training.control.control import Control
from turngym.training.methods import METHODS


@dataclass(frozen=True)
class Case:
    """A method with parameters under which it acts, and those under which it changes nothing of the loss."""

    method: str
    active: dict[str, Any]
    neutral: (
        dict[str, Any] | None
    )  # None where its very point is to replace the term or the mean that the loss has
    state: Any = field(default_factory=dict)  # in the middle of a run
    entropy: int = 0  # where it promises to move entropy
    samples: bool = False  # acts on what is rolled out, or on what the loop is asked for, alone

    def control(self) -> Control:
        """Return the method as it acts."""
        return METHODS[self.method](**self.active)


EPO = {"coef": 0.5, "low": 0.8, "high": 1.1, "alpha": 0.3, "steps": 10}
MIDWAY = {"sum": 2.4, "count": 2, "step": 2}
HELD = {str(turn): {"sum": 1.5, "count": 3, "log": -1.2, "error": 0.5} for turn in range(3)}
PUSHED = {
    "seen": 3,
    "success": 0.2,
    "base": 0.2,
    "own": {**HELD, "think": HELD["0"], "rollout": HELD["0"]},
}
PLAIN = {"clip_low": 0.2, "clip_high": 0.2}
CASES = (
    Case("entropy-bonus", {"coef": 0.5}, {"coef": 0.0}, entropy=1),
    Case("epo", EPO, {"coef": 0.0}, MIDWAY, entropy=1),
    Case("epo", {**EPO, "variant": "code"}, {"coef": 0.0, "variant": "code"}, MIDWAY, entropy=1),
    Case(
        "grpo", {"clip_low": 0.1, "clip_high": 0.4, "kl_coef": 0.2, "aggregation": "turn-mean"}, {}
    ),
    Case(
        "grpo",
        {"normalize": "none", "ddof": 0, "aggregation": "seq-mean-token-sum-norm", "size": 7},
        {},
    ),
    Case("cispo", {"lo": 0.8, "hi": 1.1}, None),
    Case(
        "dapo",
        {"longest": 5, "cache": 3},
        {"clip_high": 0.2, "limit": float("inf"), "overlong": 0.0},
    ),
    Case("dr-grpo", {"size": 7, "clip_low": 0.1, "kl_coef": 0.2}, None),
    Case("gspo", {"clip_low": 0.1, "clip_high": 0.2}, None),
    Case(
        "ppo",
        {"gamma": 0.9, "lam": 0.8, "value_clip": 0.1, "limit": 1.2},
        {"value_coef": 0.0, "limit": float("inf")},
    ),
    Case("reinforce", {"baseline": "group"}, None),
    Case("reinforce-pp", {"gamma": 0.9, "kl_reward": 0.1}, {}),
    Case("reinforce-pp", {"baseline": "group"}, {}),
    Case("rloo", {}, None),
    Case("rloo", {"variant": "code"}, {"variant": "code"}),
    Case("tis", {"high": 1.5, "normalize": True}, {"low": 1.0, "high": 1.0}),
    Case(
        "tis",
        {"level": "sequence", "outside": "mask", "by": "geometric", "high": 1.05},
        {"low": 1.0, "high": 1.0},
    ),
    Case(
        "tis",
        {"level": "geometric", "outside": "reject", "by": "token", "low": 0.7},
        {"low": 1.0, "high": 1.0},
    ),
    Case("actfocus", {"thought": 0.3, "tau": 0.5}, {"thought": 1.0, "tau": float("inf")}),
    Case(
        "bilevel-gae",
        {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "value_clip": 0.1},
        {"value_coef": 0.0},
    ),
    Case("dart", {"skip": 0.4}, {"skip": 0.0, "clip_high": 0.2, "limit": 0.0, "kl_coef": 0.0}),
    Case("dart", {"over": "kept"}, {"skip": 0.0, "clip_high": 0.2, "limit": 0.0, "kl_coef": 0.0}),
    Case("empg", {"k": 2.0, "zeta": 0.2}, {"k": 0.0, "zeta": 0.0, "center": False}),
    Case("gigpo", {"omega": 0.5}, {}),
    Case("gigpo", {"normalize": "std", "statistic": "row"}, {}),
    Case("mt-grpo", {}, {}),
    Case(
        "spear",
        {"bonus": 0.2},
        {"coef": 0.0, "bonus": 0.0},
        {"step": 3, "kept": [], "history": [], "again": []},
    ),
    Case("starpo-s", {"clip_low": 0.1, "clip_high": 0.4}, {"clip_high": 0.2}, {"empty": 0}),
    Case("aepo", {"group": 4, "scale": 0.5}, None, [{}, {}, {}]),
    Case("aepo-advantage", {"scale": 0.5}, {"scale": 0.0}),
    Case("aepo-branching", {"group": 4}, {"group": 4}, samples=True),
    Case("aepo-clip", {}, None),
    Case("aepo-clip", {"variant": "code"}, None),
    Case("arpo", {"group": 4, "attribution": "hard"}, {"group": 4, "initial": 4}, samples=True),
    Case("clip-cov", {"share": 1.0, "low": 0.0}, {"share": 0.0, "clip_low": 0.2, "clip_high": 0.2}),
    Case("evol-rl", {}, {"mix": 0.0}),
    Case("flowrl", {"beta": 2.0}, None),
    Case("flowrl", {"variant": "code"}, None),
    Case("kl-cov", {"share": 0.2}, None),
    Case("simko", {"quantile": 0.4, "share": 0.2}, None),
    Case("acpo", {}, {"tau": inf}),
    Case("adapo", {"clip_low": 0.05}, {"least": 0.2, "most": 0.2}, {"first": 1.0, "value": 0.4}),
    Case(
        "adathink-med",
        {},
        {"weight": 0.0},
        {"theta": 0.5, "expected": {"easy": 3.0, "hard": 2.0}, "easy": [0]},
    ),
    Case("adr", {"group": 4}, {"group": 4, "initial": 4, "beta": 1.0}),
    Case("aepo-he", {"c1": 0.1, "c2": 0.5}, {"c1": 0.0, "c2": 0.0}, entropy=1),
    Case("ces", {}, {"gain": 0.0}),
    Case("data-subset", {}, {"count": 0}, samples=True),
    Case("em-inf", {}, {"keep": 1.0}, samples=True),
    Case("entrocraft", {"gain": 100.0, "most": 1.0}, {"gain": 0.0}, {"first": 1.0, "error": 0.5}),
    Case("repo", {}, {"most": 0.0}, {"first": 1.0, "value": 0.3}),
    Case("ada-ent-reg", {}, {"most": 0.0}, {"used": 0.5, "next": 0.5, "open": True}, entropy=1),
    Case("aem", {}, {"k": 0.0}),
    Case("aepo-wang", {"pool": 0.5, "group": 4}, {"hot": 1.0, "cold": 1.0}, {"entropy": 0.3}),
    Case("aepo-wang", {}, {"hot": 1.0, "cold": 1.0}, {"entropy": 0.3}),
    Case("aepo-wang", {}, {"hot": 1.0, "cold": 1.0}, {"entropy": 0.8}),
    Case("aent", {"drop": 0.4}, {"most": 0.0}, {"coef": 0.005}, entropy=1),
    Case("aer", {}, {"most": 0.0}, {"coef": 0.5, "start": 1.0}, entropy=1),
    Case("apo", {"coef": 0.5, "grow": 0.5}, {"coef": 0.0, "grow": 0.0}),
    Case("archer", {"kl": 0.5, "quantile": 0.4}, None),
    Case("aspo", {"kl": 0.5, "quantile": 0.4}, None),
    Case("bapo", {"high": 1.0}, None),
    Case("canon", {"mu": 0.7, "beta": 0.1}, {}),
    Case("canon", {"metric": "length"}, {}),
    Case("ce-gppo", {"clip_low": 0.1, "clip_high": 0.1}, None),
    *(
        Case(f"clip-{name}", {"clip_low": 0.05, "clip_high": 0.5}, PLAIN)
        for name in ("free", "higher", "lower", "tighter")
    ),
    Case("cure", {"group": 4}, {"group": 4, "initial": 4}, samples=True),
    Case("cw-grpo", {}, {"width": float("inf")}),
    Case("d3s", {}, {"paths": 1.0, "tokens": 1.0}),
    Case("dcpo", {}, None),
    Case("deng", {}, {"alpha": 0.0, "b": 0.0}),
    Case("dler", {}, {"left": 1.0, "limit": float("inf")}),
    Case("dmpo", {}, None),
    Case("dynamic-sampling", {}, {}, samples=True),
    Case("eag-rl", {"k": 1.0}, {"k": 0.0, "clip_high": 0.2}),
    Case("edge-grpo", {}, {"least": 1.0, "most": 1.0}),
    Case("em-rl", {}, {"mix": 0.0}),
    Case("em-rl", {"of": "sequence", "mix": 0.5}, {"mix": 0.0}),
    Case("empo", {}, {"mix": 0.0}),
    Case("entropic", {"tau": 0.1}, {"target": -1.0}, {"sum": 0.1, "alpha": -0.5}),
    Case("entropic", {"tau": 0.1, "variant": "code"}, {"target": -1.0}, {"sum": 0.1, "alpha": 0.5}),
    Case("entropic", {"tokens": "all"}, {"target": -1.0}, {"sum": 0.1, "alpha": 0.5}),
    Case("entropy-adv", {}, {"alpha": 0.0}),
    Case("erc", {"low": 1.0}, {"low": 0.0, "high": float("inf")}),
    Case("espo", {}, None),
    Case("ettrl", {}, {"vote": False, "most": float("inf"), "damp": 0.0}),
    Case("forking-tokens", {}, {"share": 1.0}),
    Case("fr3e", {"group": 4}, {"clip_low": 0.2, "clip_high": 0.2}),
    Case("grpo-s", {}, None),
    Case("gtpo", {}, PLAIN),
    Case("htpo", {"high": 0.5}, None),
    Case("kl", {"coef": 0.5, "estimator": "k2"}, {"coef": 0.0}),
    Case("kl", {"coef": 0.5, "slope": "k2", "target": 0.1}, {"coef": 0.0}, {"coef": 0.4}),
    Case("kl", {"coef": 0.5, "estimator": "k1", "place": "reward"}, {"coef": 0.0}),
    Case("less", {"least": 1}, {"weight": 0.0}),
    Case("m2po", {}, {"budget": 0.0, "clip_low": 0.2, "clip_high": 0.2}),
    Case("nsr", {}, {"positive": 1.0}),
    Case("one-shot-em", {}, None, entropy=-1),
    Case("opefo", {"keep": 10.0}, {"keep": 0.0}),
    Case("papo", {}, {"gain": 0.0}),
    Case("pear", {}, {"weight": 0.0}),
    Case("positive-reweighting", {}, {"least": 1.0}, {"used": 0.3, "next": 0.3}),
    Case("prorl", {"every": 1}, {}, {"best": 0.0}, samples=True),
    Case("psr", {"positive": 0.5}, {"negative": 1.0}),
    Case("qae", {"k": 0.6}, {}),
    Case("rand-pos-clip", {"share": 1.0}, {"share": 0.0}),
    Case("rl-zvp", {}, {}),
    Case("seed-grpo", {"scale": 1.0}, {"scale": 0.0}),
    Case("sent", {"share": 0.2, "coef": 0.5}, None),
    Case("steer", {}, {"least": 1.0}),
    Case("steer", {"weight": "linear"}, {"weight": "linear", "least": 1.0, "most": 1.0}),
    Case("treerl", {"group": 5}, {"group": 5}),
    Case("treerl", {"group": 5, "variant": "code"}, {"group": 5}),
    Case("ucas", {}, {"right": 0.0, "wrong": 0.0, "cost": 0.0}),
    Case("ulorl", {"entropy": 5.0, "mastered": 0.1}, {"entropy": 0.0}),
    Case(
        "turn-floor",
        {"act": "bonus", "pay": "all"},
        {"act": "bonus", "keep": 0.0},
        PUSHED,
        entropy=1,
    ),
    Case("turn-floor", {"axis": "turn"}, {"keep": 0.0}, PUSHED),
    Case("turn-floor", {"axis": "phase", "pay": "valid"}, {"axis": "phase", "keep": 0.0}, PUSHED),
    Case("turn-floor", {"pay": "all"}, {"keep": 0.0}, PUSHED),
)
