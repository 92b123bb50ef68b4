"""Control of each turn's entropy: the controller by itself, on a plant that answers it, and in the loss."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.training.columns import Now
from turngym.training.control import Stats
from turngym.training.methods.turn_pi import outside, turn_pi
from turngym.training.objective import start_terms


def told(step, turns=(), phases=None, phase="rollout"):
    return Stats(step, phase, entropy_turns=tuple(turns), entropy_phases=phases or {})


@pytest.fixture
def alphas(batch_of):
    """Return what the controllers of the first turns put out, as the bonus of a strength of 1 shows it."""
    batch = batch_of([[1, 1, 1]])
    terms, now = start_terms(batch.logp_old), Now.at_start(batch)

    def of(state, turns=1, **parameters):
        shaped = turn_pi(strength=1.0, **parameters).shape(terms, batch, now, state)
        return (-shaped.entropy_coef)[:turns].tolist()

    return of


@pytest.fixture
def run(alphas):
    """Return what every turn's controller puts out after each step."""

    def through(entropies, **parameters):
        control = turn_pi(**parameters)
        state, seen = control.init(), []
        for step, turns in enumerate(entropies):
            state, requests = control.observe(told(step, turns), state)
            assert requests == frozenset()
            seen.append(alphas(state, len(turns), **parameters))
        return seen

    return through


def test_a_turns_own_target_is_what_it_had_at_first(run) -> None:
    entropies = [[1.0, 0.3], [2.0, 0.2], [3.0, 0.1], [1.2, 0.1], [0.9, 0.15]]
    found = run(entropies, warm=3, keep=0.5, kp=1.0, ki=0.0)
    assert found[:3] == [[0, 0]] * 3
    assert found[3] == pytest.approx([0.2, 0.0]) and found[4] == pytest.approx([-0.1, 0.05])


def test_inside_its_band_a_turn_is_left_alone(run) -> None:
    assert outside(1.1, 1.0, 0.2) == outside(0.8, 1.0, 0.2) == 0
    assert outside(1.5, 1.0, 0.2) == pytest.approx(0.3) and outside(0.5, 1.0, 0.2) == pytest.approx(-0.3)
    found = run([[1.1], [0.8], [1.3], [1.1]], target=1.0, band=0.2)
    assert found[:2] == [[0], [0]] and found[2] == [pytest.approx(0.101)] and found[3] == [pytest.approx(0.001)]


def test_the_sum_stays_within_what_the_output_can_use(alphas) -> None:
    """Anti-windup: after a long time out of reach the integral alone asks for the bound, no more."""
    control = turn_pi(target=1.0, ki=0.1)
    state = control.init()
    for step in range(1000):
        state, _ = control.observe(told(step, [50.0]), state)
    assert state["0"]["integral"] == pytest.approx(10.0) and alphas(state, kp=0.0, ki=0.1) == [1]
    assert alphas(state, kp=1.0, ki=0.1) == [1]
    state, _ = control.observe(told(1000, [0.0]), state)
    assert alphas(state, kp=0.0, ki=0.1) == [pytest.approx(0.9)]
    assert turn_pi(target=1.0, ki=0.0).observe(told(0, [9.0]), {})[0]["0"]["integral"] == 0


def test_only_a_rollout_is_looked_at_and_missing_turns_keep_what_they_had() -> None:
    control = turn_pi(target=1.0)
    state, _ = control.observe(told(0, [2.0, 3.0]), control.init())
    assert control.observe(told(0, [9.0, 9.0], phase="update"), state)[0] == state
    later, _ = control.observe(told(1, [2.0]), state)
    assert later["1"] == state["1"] and later["0"] != state["0"]
    lost, _ = control.observe(told(1, [float("nan"), 3.0]), state)
    assert lost["0"] == {**state["0"], "error": 0.0}


def test_the_state_is_json_and_what_is_loaded_goes_on_alike() -> None:
    control, rng = turn_pi(warm=2), np.random.default_rng(0)
    state = control.init()
    for step, turns in enumerate(rng.random((6, 3)).tolist()):
        loaded = json.loads(json.dumps(state, allow_nan=False))
        state, again = control.observe(told(step, turns), state)[0], control.observe(told(step, turns), loaded)[0]
        assert json.dumps(state) == json.dumps(again)


GAINS = np.array([0.8, 0.5, 1.2])  # nats by which a turn's entropy answers a full coefficient
DRIFT = np.array([-0.02, 0.03, 0.01])  # nats a step by which it moves by itself: one turn collapses, others explode
TARGETS = np.array([1.0, 0.3, 0.6])


def simulated(alphas, state, pooled=False, steps=200, **gains):
    """Return the entropies of three turns after each step, float64, each moved by its coefficient and its drift."""
    control, entropy, seen = turn_pi(warm=1, **gains), TARGETS.copy(), []
    for step in range(steps):
        measured = [entropy.mean()] * 3 if pooled else entropy
        state, _ = control.observe(told(step, [float(value) for value in measured]), state)
        entropy = np.maximum(entropy - 0.1 * GAINS * alphas(state, 3, **gains) + DRIFT, 0.0)
        seen.append(entropy)
    return np.array(seen)


def test_every_turn_comes_to_its_own_target_where_one_controller_for_all_cannot(alphas) -> None:
    """The integral removes what the drifts would leave; with one number one turn collapses while others explode."""
    known = {str(turn): {"sum": aim, "count": 1, "integral": 0.0, "error": 0.0} for turn, aim in enumerate(TARGETS)}
    own = simulated(alphas, known, ki=0.05)
    assert np.abs(own[-20:] - TARGETS).max() < 0.01
    assert np.abs(own - TARGETS).max() < 0.7
    alone = simulated(alphas, known, ki=0.0)
    assert np.abs(alone[-1] - TARGETS).max() > 0.1  # without the integral an error stays
    mean = {str(turn): {**known["0"], "sum": TARGETS.mean()} for turn in range(3)}
    common = simulated(alphas, mean, pooled=True, ki=0.05)
    assert common[-20:].mean(1) == pytest.approx(TARGETS.mean(), abs=0.05)  # its one number is held
    assert common[-1].min() == 0 and common[-1].max() > 1.5


def errors(**values):
    """Return the state of controllers that see these errors; with kp 1 they put them out."""
    return {name: {"sum": 0.0, "count": 0, "integral": 0.0, "error": error} for name, error in values.items()}


def test_the_terms_of_each_slot_are_those_of_its_turn(batch_of) -> None:
    batch = batch_of([[2, 1, 1], [1]])
    state = errors(**{"0": 0.5, "1": -1.0})  # the third turn has not been seen
    plain = start_terms(torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0], dtype=torch.float64))
    bonus = turn_pi(strength=0.1).shape(plain, batch, Now.at_start(batch), state)
    assert bonus.entropy_coef.tolist() == pytest.approx([-0.05, -0.05, 0.1, 0, -0.05])
    assert bonus.weight is plain.weight
    weight = turn_pi(act="weight").shape(plain, batch, Now.at_start(batch), state)
    assert weight.weight.tolist() == [1.5, 1.5, 0, 1, 0.5]
    assert weight.entropy_coef is plain.entropy_coef


def test_one_controller_of_the_rollout_pushes_all_turns_alike(batch_of) -> None:
    """Turn 0 lies below the mean's target and turn 1 above it: what holds the mean pushes both the same way."""
    batch = batch_of([[1, 1]])
    terms, state = start_terms(batch.logp_old), {}
    pushes = {}
    for axis in ("rollout", "turn"):
        control = turn_pi(target=1.0, ki=0.0, axis=axis, strength=1.0)
        state, _ = control.observe(replace(told(0, (0.8, 1.4)), entropy=1.1), control.init())
        pushes[axis] = (-control.shape(terms, batch, Now.at_start(batch), state).entropy_coef).tolist()
    assert pushes["rollout"] == pytest.approx([0.1, 0.1]) and pushes["turn"] == pytest.approx([-0.2, 0.4])


def test_the_axis_can_be_the_parts_of_a_turn(batch_of) -> None:
    control = turn_pi(target=1.0, ki=0.0, axis="phase", strength=1.0)
    phases = {"think": 1.5, "answer": 0.75}
    state, _ = control.observe(told(0, [9.0], phases), control.init())
    assert set(state) == {"think", "answer"}
    batch = replace(batch_of([[3]]), phase=torch.tensor([0, 1, 2]))
    terms = control.shape(start_terms(batch.logp_old), batch, Now.at_start(batch), state)
    assert terms.entropy_coef.tolist() == pytest.approx([-0.5, 0, 0.25])


@pytest.mark.parametrize("act", ["bonus", "weight"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_step_moves_the_entropy_of_the_turn_it_is_for_towards_its_target(batch_of, act, sign) -> None:
    """Of a policy whose drawn tokens are its likeliest, of which more advantage makes it surer, and less unsure."""
    control = turn_pi(strength=1.0, act=act)
    logits = torch.tensor([[2.0, 0.0, 0.0]] * 4, dtype=torch.float64, requires_grad=True)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    batch = batch_of([[1, 1], [1, 1]])
    terms = start_terms(torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64))
    terms = control.shape(terms, batch, Now.at_start(batch), errors(**{"1": 0.5 * sign}))
    logp = logits.log_softmax(-1)[:, 0]
    (-(terms.weight * terms.advantage * logp) - terms.entropy_coef * entropy).sum().backward()
    plain = torch.zeros_like(logits)
    plain[:, 0] = -start_terms(terms.advantage).advantage
    p = logits.detach().softmax(-1)
    plain = plain - p * plain.sum(-1, keepdim=True)  # the gradient of -A·logp
    moved = logits.detach() - 0.01 * (logits.grad - plain)
    change = torch.distributions.Categorical(logits=moved).entropy() - entropy.detach()
    assert change[[0, 2]].abs().max() < 1e-12  # the first turn is left alone
    assert (change[[1, 3]] * sign < 0).all()  # too much entropy falls, too little rises


@pytest.mark.parametrize(
    ("parameters", "grad"),
    [({}, True), ({"act": "weight"}, False), ({"strength": 0.0}, False), ({"kp": 0.0, "ki": 0.0}, False)],
)
def test_entropy_carries_a_gradient_only_where_it_is_pushed(parameters, grad) -> None:
    assert turn_pi(**parameters).needs.entropy_grad == grad
