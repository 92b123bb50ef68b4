"""The floor under the entropy of turns: its controllers, whom it pays, and what that does to the gradient."""

import json
from dataclasses import replace
from functools import partial
from math import exp, log

import numpy as np
import pytest
import torch

from turngym.envs import Outcome
from turngym.tests.support.toy import build, f64
from turngym.training.control.control import Stats
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS

floor = partial(METHODS["turn-floor"], axis="turn")


def told(step, turns=(), success=0.25, **more):
    return Stats(
        step, more.pop("phase", "rollout"), entropy_turns=tuple(turns), success=success, **more
    )


def after(seen, **parameters):
    """The state after steps of (entropies by turn, success)."""
    control = floor(**parameters)
    state = control.init()
    for step, (turns, success) in enumerate(seen):
        state, requests = control.observe(told(step, turns, success), state)
        assert requests == frozenset()
    return state


def strengths(state, turns=1, **parameters):
    """B of each turn, as the bonus on one path shows it."""
    batch = build([[1] * turns])
    shaped = floor(act="bonus", pay="all", **parameters).shape(
        start_terms(batch.logp_old), batch, Now.at_start(batch), state
    )
    return shaped.entropy_coef.tolist()


# --- the controller


def test_nothing_is_paid_before_the_first_entropy_is_known():
    for steps in range(3):
        assert strengths(after([([0.5, 0.2], 0.2)] * steps), 2) == [0, 0]
    assert strengths(after([([0.5, 0.2], 0.2)] * 3), 2) == pytest.approx([0.3, 0.3])


def test_the_strength_follows_the_relative_error_and_not_the_nats():
    """Half of 0.8 and half of 0.008 nats are the same error, ln 2; success is what it was at first."""
    small, large = (after([([size], 0.2)] * 3 + [([size / 2], 0.2)]) for size in (0.008, 0.8))
    expected = exp(log(0.3) + 0.3 * log(2)) * 2
    assert strengths(small) == pytest.approx([expected]) and strengths(large) == pytest.approx(
        [expected]
    )


def test_a_worked_example():
    """By hand from the card: the target is 0.5 nats, and the success stays."""
    entropies = [0.4, 0.5, 0.6, 0.4, 0.25, 1.0]
    found = [
        strengths(after([([entropy], 0.2) for entropy in entropies[:n]]))[0] for n in range(1, 7)
    ]
    assert found == pytest.approx([0, 0, 0.3, 0.400963, 0.789829, 0.160385], abs=1e-6)


def test_a_floor_gives_way_where_entropy_is_above_it_and_lets_go_at_its_least():
    state = after([([0.5], 0.2)] * 3 + [([5.0], 0.2)] * 3)
    assert strengths(state) == pytest.approx([exp(log(0.3) - 0.9 - 1)])
    assert strengths(after([([0.5], 0.2)] * 3 + [([5.0], 0.2)] * 10)) == [0]


def test_the_strength_is_at_most_most():
    assert strengths(after([([0.5], 0.2)] * 3 + [([0.0], 0.2)] * 20)) == [1]
    assert strengths(after([([0.5], 0.2)] * 3 + [([0.0], 0.2)] * 20, most=0.5), most=0.5) == [0.5]


def test_success_takes_the_target_down_and_its_loss_lets_go():
    """S after one step of 0.6 is 0.1 * 0.6 + 0.9 * 0.2; without a rate the strength shows the error alone."""
    state = after([([0.5], 0.2)] * 3 + [([0.5], 0.6)], rate=0.0)
    assert strengths(state, rate=0.0) == pytest.approx([0.3 * (1 - 0.24) / 0.8])
    held = after([([0.5], 0.4)] * 3 + [([0.5], 0.0)] * 6)  # 0.4 * 0.9 ** 6 is above a half of 0.4
    lost = after([([0.5], 0.4)] * 3 + [([0.5], 0.0)] * 7)
    assert held["own"]["0"]["error"] == 0 and lost["own"]["0"]["error"] == -1
    free = after([([0.5], 0.4)] * 3 + [([0.5], 0.0)] * 7, guard=0.0)
    assert free["own"]["0"]["error"] == 0


def test_the_last_part_of_a_run_is_free():
    for step, share in ((80, 1.0), (90, 0.5), (100, 0.0)):
        state = after([([0.5], 0.2)] * 3)
        state, _ = floor(steps=101, rate=0.0).observe(told(step, [0.5], 0.2), state)
        assert state["own"]["0"]["error"] == pytest.approx(log(share) if share else -1)


def test_only_a_rollout_is_looked_at_and_missing_turns_keep_what_they_had():
    control = floor()
    state = after([([0.5, 0.3], 0.2)] * 4)
    assert control.observe(told(4, [9.0, 9.0], phase="update"), state)[0] == state
    later, _ = control.observe(told(4, [0.1]), state)
    assert later["own"]["1"] == state["own"]["1"] and later["own"]["0"] != state["own"]["0"]
    lost, _ = control.observe(told(4, [float("nan")], success=float("nan")), later)
    assert (
        lost["own"]["0"] == {**later["own"]["0"], "error": 0.0}
        and lost["success"] == later["success"]
    )


@pytest.mark.parametrize("axis", ["turn", "phase", "rollout"])
def test_the_state_is_json_and_what_is_loaded_goes_on_alike(axis):
    control, rng = floor(axis=axis), np.random.default_rng(0)
    state = control.init()
    for step, (think, call) in enumerate(rng.random((8, 2)).tolist()):
        stats = told(
            step, [think, call], call, entropy=think, entropy_phases={"think": think, "call": call}
        )
        loaded = json.loads(json.dumps(state, allow_nan=False))
        state, again = control.observe(stats, state)[0], control.observe(stats, loaded)[0]
        assert json.dumps(state) == json.dumps(again)
    assert (
        set(state["own"])
        == {"turn": {"0", "1"}, "phase": {"think", "call"}, "rollout": {"rollout"}}[axis]
    )


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("actions", "action_entropy"),
        ("choices", "choice_entropy"),
        ("decisions", "decision_entropy"),
        ("surprise", "surprise"),
    ],
)
def test_what_is_held_can_be_the_entropy_of_actions_or_the_surprise(of, name):
    """Half of it is an error of ln 2, whatever the tokens do; a turn without siblings in a step is not moved."""
    for axis, key in (("turn", "0"), ("rollout", "rollout")):
        control = floor(of=of, axis=axis)
        state = control.init()
        for step, value in enumerate([0.4, 0.4, 0.4, 0.2]):
            extras = {
                name: value,
                f"{name}/0": value,
                f"{name}x/0": 9.0,
                "entropy_turn_success/0": 9.0,
            }
            state, _ = control.observe(told(step, [5.0 * step], extras=extras), state)
        assert set(state["own"]) == {key} and state["own"][key]["error"] == pytest.approx(log(2))
    state, _ = control.observe(told(4, [1.0]), state)
    assert state["own"]["rollout"]["error"] == 0
    with pytest.raises(
        ValueError, match="turn-floor: of is 'actions'; it must be tokens where the axis is phase"
    ):
        floor(of="actions", axis="phase")


def test_a_start_outside_its_limits_is_refused():
    with pytest.raises(
        ValueError, match=r"turn-floor: first is 0\.3; it must be from least, 0\.4, to most, 1"
    ):
        floor(least=0.4)


# --- what is paid


def state_of(**logs):
    own = {
        name: {"sum": 1.5, "count": 3, "log": log(value), "error": 0.0}
        for name, value in logs.items()
    }
    return {"seen": 3, "success": 0.2, "base": 0.2, "own": own}


PATHS = [[2, 1], [1], [1, 2], [1, 1], [2, 1], [1]]
ENDS = [Outcome.DONE] * 5 + [Outcome.INFRA_ERROR]


def drawn(rng):
    """Paths in two groups, one of which earned no score; what was valid is known of some turns."""
    slots = sum(map(sum, PATHS))
    batch = build(
        PATHS,
        logp_old=(-3 * rng.random(slots)).tolist(),
        entropy=rng.random(slots).tolist(),
        groups=[0, 0, 0, 1, 1, 1],
        scores=[1.0, 0.0, 0.0, 1.0, 0.0, float("nan")],
        ends=ENDS,
    )
    rows = len(batch.turns.path)
    reward = torch.zeros(rows, dtype=torch.float64)
    reward[[1, 6]] = 1.0
    valid = f64([1, 1, float("nan"), 0, 1, 1, 1, 1, 1, 1])
    turns = replace(batch.turns, reward=reward, valid=valid)
    return replace(batch, turns=turns, phase=torch.from_numpy(rng.integers(0, 3, slots)))


def reference(batch, advantage, strength, axis, act, pay, earn):
    """What is added to the advantage or to the entropy's coefficient, by loops over the equations."""
    turns, parts = batch.turns, {}
    for slot in range(batch.n_slots):
        row = int(batch.row[slot])
        if turns.outcome[row] <= 1:
            parts.setdefault((row, int(batch.phase[slot]) if axis == "phase" else 0), []).append(
                slot
            )
    controller = {
        part: {"turn": int(turns.turn[part[0]]), "phase": part[1], "rollout": 0}[axis]
        for part in parts
    }
    logp = {
        part: sum(float(batch.logp_old[slot]) for slot in slots) for part, slots in parts.items()
    }
    mean = {
        part: np.mean([float(advantage[slot]) for slot in slots]) for part, slots in parts.items()
    }

    def paid(row):
        last = row + 1 == len(turns.path) or turns.path[row] != turns.path[row + 1]
        alive = not last or turns.reward[row] > 0
        return pay == "all" or (turns.valid[row] != 0 and (pay == "valid" or bool(alive)))

    def peers(part):
        same = [other for other in parts if other[1] == part[1] and paid(other[0])]
        key = (turns.group[part[0]], turns.turn[part[0]])
        return [
            logp[other] for other in same if (turns.group[other[0]], turns.turn[other[0]]) == key
        ]

    excess = {
        part: np.clip(logp[part] - np.mean(peers(part)), -5, 5) if paid(part[0]) else 0.0
        for part in parts
    }
    added = np.zeros(batch.n_slots)
    for part, slots in parts.items():
        alike = [other for other in parts if controller[other] == controller[part]]
        x, y = ([column[other] for other in alike] for column in (logp, mean))
        r = np.corrcoef(x, y)[0, 1] if np.std(x) * np.std(y) > 0 else 0.0
        push = strength[controller[part]] * (1 - max(r, 0)) ** earn
        entropies = [float(batch.entropy[slot]) for other in alike for slot in parts[other]]
        rms = np.sqrt(np.mean([excess[other] ** 2 for other in alike if paid(other[0])] or [0.0]))
        for slot in slots:
            if act == "surprise":
                added[slot] = -min(push, 0.4 / rms if rms else push) * excess[part]
            elif paid(part[0]) and batch.entropy[slot] >= np.mean(entropies):
                added[slot] = push
    return added


@pytest.mark.parametrize("axis", ["turn", "phase", "rollout"])
@pytest.mark.parametrize("act", ["surprise", "bonus"])
@pytest.mark.parametrize("pay", ["living", "valid", "all"])
def test_the_terms_are_those_of_the_equations(axis, act, pay):
    rng, moved = np.random.default_rng(3), 0.0
    for _ in range(12):
        batch = drawn(rng)
        advantage = f64(rng.normal(size=batch.n_slots))
        names = {"turn": ["0", "1"], "phase": ["think", "call", "answer"], "rollout": ["rollout"]}[
            axis
        ]
        strength = [0.1, 0.35, 0.25][: len(names)]
        control = floor(axis=axis, act=act, pay=pay, most=0.4, first=0.4, earn=1.5)
        plain = start_terms(advantage)
        state = state_of(**dict(zip(names, strength)))
        shaped = control.shape(plain, batch, Now.at_start(batch), state)
        expected = reference(batch, advantage, strength, axis, act, pay, 1.5)
        found = shaped.advantage - advantage if act == "surprise" else shaped.entropy_coef
        assert found.numpy() == pytest.approx(expected, abs=1e-12)
        moved += np.abs(expected).max()
    assert moved > 0


def test_dead_ends_and_invalid_turns_are_neither_paid_nor_resisted():
    batch = drawn(np.random.default_rng(1))
    changed = {}
    for pay in ("living", "valid", "all"):
        terms = start_terms(torch.zeros(batch.n_slots, dtype=torch.float64))
        state = state_of(**{"0": 0.3, "1": 0.3})
        added = floor(pay=pay).shape(terms, batch, Now.at_start(batch), state).advantage
        changed[pay] = sorted(set(batch.row[added != 0].tolist()))
    assert changed == {
        "living": [5, 7],
        "valid": [0, 1, 2, 4, 5, 6, 7, 8],
        "all": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    }


def test_paths_without_a_score_are_left_alone():
    batch = build([[2], [1]], logp_old=[-0.1, -2.0, -1.0], ends=[Outcome.INFRA_ERROR] * 2)
    terms = start_terms(f64([0.0, 0.0, 0.0]))
    for act in ("surprise", "bonus"):
        shaped = floor(pay="all", act=act).shape(
            terms, batch, Now.at_start(batch), state_of(**{"0": 0.3})
        )
        assert not shaped.advantage.any() and not shaped.entropy_coef.any()


def test_what_returns_earned_is_not_held():
    """The likelier first turn won: of the floor's strength nothing is left; where it lost, all of it."""
    batch = build([[1], [1]], logp_old=[-0.1, -2.0], groups=[0, 0], scores=[1.0, 0.0])
    for sign, share in ((1.0, 0.0), (-1.0, 0.3)):
        terms = start_terms(f64([sign, -sign]))
        shaped = floor(pay="all").shape(terms, batch, Now.at_start(batch), state_of(**{"0": 0.3}))
        assert (shaped.advantage - terms.advantage).tolist() == pytest.approx(
            [-share * 0.95, share * 0.95]
        )


def test_surprise_is_the_gradient_of_the_entropy_of_turns():
    """Every action of two draws as often as its probability says: the mean gradient is that of H, by autograd."""
    p = {
        (a, b): w
        for (a, b), w in zip([(0, 0), (0, 1), (1, 0), (1, 1)], [3 / 8, 1 / 8, 1 / 4, 1 / 4])
    }
    first = torch.tensor([log(0.5), log(0.5)], dtype=torch.float64, requires_grad=True)
    second = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64).log().requires_grad_()

    def logps():
        return {(a, b): (first.log_softmax(0)[a], second[a].log_softmax(0)[b]) for a, b in p}

    entropy = -sum(sum(pair).exp() * sum(pair) for pair in logps().values())
    wanted = torch.autograd.grad(entropy, [first, second])
    paths = [action for action, weight in p.items() for _ in range(round(8 * weight))]
    drawn = [logps()[action] for action in paths]
    batch = build([[2]] * 8, logp_old=[value.item() for pair in drawn for value in pair])
    terms = start_terms(torch.zeros(16, dtype=torch.float64))
    added = (
        floor(pay="all").shape(terms, batch, Now.at_start(batch), state_of(**{"0": 0.3})).advantage
    )
    gain = sum(
        added[2 * path + token] * value
        for path, pair in enumerate(drawn)
        for token, value in enumerate(pair)
    )
    found = torch.autograd.grad(gain / 8, [first, second])
    for one, other in zip(found, wanted):
        assert torch.allclose(one / 0.3, other, atol=1e-12) and other.abs().max() > 0.01


@pytest.mark.parametrize(
    ("parameters", "grad"),
    [({}, False), ({"act": "bonus"}, True), ({"act": "bonus", "keep": 0.0}, False)],
)
def test_entropy_carries_a_gradient_only_where_it_is_pushed(parameters, grad):
    assert floor(**parameters).needs.entropy_grad == grad


def test_where_choices_are_held_a_rare_one_is_paid_however_long_its_text():
    """By hand: one of four siblings chose otherwise, so ln f is ln 1/4 against ln 3/4, whatever the texts say."""
    batch = build([[3]] * 4, logp_old=[-float(n) for n in range(12)], scores=[1.0] * 4)
    turns = replace(batch.turns, reward=f64([1.0] * 4), choice=torch.tensor([1, 0, 0, 0]))
    batch = replace(batch, turns=turns)
    terms = start_terms(torch.zeros(12, dtype=torch.float64))
    found = (
        floor(of="choices")
        .shape(terms, batch, Now.at_start(batch), state_of(**{"0": 0.3}))
        .advantage
    )
    rare, common = 0.3 * 0.75 * log(3), -0.3 * 0.25 * log(3)
    assert found.tolist() == pytest.approx([rare] * 3 + [common] * 9)
