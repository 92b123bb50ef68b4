import numpy as np
import pytest
import torch

from turngym.training.control.control import Control, Stats
from turngym.training.data.batch import Current, Now
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.entropy.epo import epo, phase_weight

ENTROPY = [1.0, 0.5, 0.2, 0.4, 0.4, 0.1, 2.0, 0.6]
HISTORY = {"sum": 0.8 + 0.6 + 0.7, "count": 3, "step": 0}
NARROW = {"low": 0.5, "high": 1.5}


@pytest.fixture
def example(batch_of):
    """The sheet's example: turns [[1.0, 0.5], [0.2]] and [[0.4, 0.4, 0.1], [2.0, 0.6]]."""
    return batch_of([[2, 1], [3, 2]], entropy=ENTROPY)


def penalties(batch, control, state=HISTORY):
    """Return the example's penalties, the entropy they see and their values summed with their coefficients."""
    entropy = batch.entropy.clone().requires_grad_()
    terms = control.shape(start_terms(batch.logp_old), batch, Now.at_start(batch), state)
    current = Current(batch.logp_old, entropy)
    return {
        p.name: (p.coef * p.value(current, batch, terms)).sum() for p in terms.penalties
    }, entropy


def test_sheet_example_of_the_penalty_by_token(example) -> None:
    terms = epo(**NARROW).shape(
        start_terms(example.logp_old), example, Now.at_start(example), HISTORY
    )
    band = terms.penalties[1].value(Current(example.logp_old, example.entropy), example, terms)
    assert band.tolist() == pytest.approx([0, 0, 0.15, 0, 0, 0.25, 0.95, 0], abs=1e-6)


def test_sheet_example_of_the_whole_loss_and_its_gradient(example) -> None:
    values, entropy = penalties(example, epo(**NARROW))
    loss = 0.25 + sum(values.values())
    loss.backward()
    assert loss.item() == pytest.approx(0.249398, abs=1e-6)
    expected = [-0.125, -0.125, -0.3, -0.083333, -0.083333, -0.1, -0.1, -0.125]
    assert (1000 * entropy.grad).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_band_of_the_code_has_no_gradient(example) -> None:
    values, entropy = penalties(example, epo(variant="code", **{"coef": 1.0, **NARROW}))
    sum(values.values()).backward()
    assert entropy.grad.tolist() == pytest.approx([-1 / 8] * 8, abs=1e-12)


def test_the_bounds_of_the_code_are_strict(batch_of) -> None:
    batch, state = batch_of([[3]], entropy=[0.0, 1.0, 0.5]), {"sum": 1.5, "count": 3, "step": 0}
    values, _ = penalties(batch, epo(coef=1.0, alpha=1.0, variant="code"), state)
    assert values["epo-band"].item() == pytest.approx(2 / 3, abs=1e-6)
    values, _ = penalties(batch, epo(coef=1.0, alpha=1.0), state)
    assert values["epo-band"].item() == 0


def test_without_history_there_is_no_band(example) -> None:
    control = epo()
    values, _ = penalties(example, control, control.init())
    assert list(values) == ["epo-bonus"]


def test_the_band_pushes_entropy_down_only_where_alpha_times_phase_exceeds_one(example) -> None:
    weak = penalties(example, epo(coef=1.0, **NARROW))
    strong = penalties(example, epo(coef=1.0, alpha=0.6, **NARROW))
    for (values, entropy), sign in ((weak, -1), (strong, 1)):
        sum(values.values()).backward()
        assert np.sign(entropy.grad[6].item()) == sign


def descended(batch, logits, steps=60, **parameters):
    """Return the entropies of slots, each with logits of its own, after descending on EPO's terms alone."""
    terms = epo(coef=1.0, **parameters).shape(
        start_terms(batch.logp_old), batch, Now.at_start(batch), HISTORY
    )
    for _ in range(steps):
        logits = logits.detach().requires_grad_()
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        sum(
            (p.coef * p.value(Current(batch.logp_old, entropy), batch, terms)).sum()
            for p in terms.penalties
        ).backward()
        logits = logits - 0.5 * logits.grad
    return torch.distributions.Categorical(logits=logits.detach()).entropy()


def test_the_smoothing_term_moves_a_turn_back_into_the_band_by_its_own_gradient(batch_of) -> None:
    """Band 0.56 to 0.84 nats. With alpha·β = 4 a turn above it falls to its bound; the code's form moves nothing."""
    batch = batch_of([[2, 2]])
    logits = torch.tensor(
        [[0.3, 0.0, -0.3], [0.2, 0.0, 0.0], [3.5, 0.0, 0.0], [2.0, 0.0, 0.0]], dtype=torch.float64
    )
    before = torch.distributions.Categorical(logits=logits).entropy()
    assert (before[:2] > 1.0).all() and before[2] < 0.56 < before[3] < 0.84
    band = {"low": 0.8, "high": 1.2}
    after = descended(batch, logits, alpha=2.0, **band)
    assert after[:2].tolist() == pytest.approx([0.84, 0.84], abs=0.03)
    assert after[2] > 0.56 and (after < 0.87).all()
    bonus = descended(batch, logits, alpha=0.0, **band)
    assert torch.equal(
        descended(batch, logits, variant="code", alpha=2.0, **band), bonus
    )  # four tokens: equal means
    # At the published alpha and β the bonus is only weaker above the band: entropy still rises there.
    published = descended(batch, logits, steps=8, alpha=0.1, **band)
    assert (published[:2] > before[:2]).all() and (
        published[:2] < descended(batch, logits, 8, alpha=0.0, **band)[:2]
    ).all()


def test_at_every_published_alpha_and_step_the_whole_never_pushes_entropy_down() -> None:
    pull = [
        alpha * phase_weight(step, steps, 3.0)
        for alpha, steps in ((0.05, 125), (0.1, 150))
        for step in range(steps)
    ]
    assert min(pull) > 0.0 and max(pull) == pytest.approx(
        0.2
    )  # the bracket 1 - alpha·β·s stays within 0.8 and 1.2


def test_history_is_appended_once_a_training_step_after_its_last_update() -> None:
    control = epo()
    state = control.init()
    for step, entropy in enumerate([0.8, 0.6, 0.7]):
        for phase, last in (("rollout", True), ("update", False), ("update", True)):
            before = dict(state)
            stats = Stats(step=step, phase=phase, last=last, entropy_nested=entropy)
            state, requests = control.observe(stats, state)
            assert requests == frozenset()
            assert (state == before) == (phase == "rollout" or not last)
    assert state == {"sum": 0.8 + 0.6 + 0.7, "count": 3, "step": 3}


def reference(toy, logits, mean, phase, coef, low, high, alpha):
    """Return coef·(phase·L_smooth - L_H) of Eqs. 2-6 in NumPy, turn by turn."""
    p = np.exp(logits.numpy())
    p = p / p.sum(-1, keepdims=True)
    entropy = -(p * np.log(p)).sum(-1)
    path, turn = toy.batch.path.numpy(), toy.batch.turn.numpy()
    total = 0.0
    for j in range(toy.batch.n_paths):
        turns = np.unique(turn[path == j])
        for t in turns:
            h = entropy[(path == j) & (turn == t)]
            band = np.maximum(low * mean - h, 0) + np.maximum(h - high * mean, 0)
            total += (phase * alpha * band - h).mean() / len(turns)
    return coef * total / toy.batch.n_paths


@pytest.mark.parametrize("alpha", [0.0, 0.4], ids=["bonus", "bonus-and-band"])
def test_value_and_gradient_agree_with_the_equations(toy, numeric_gradient, alpha) -> None:
    state = {"sum": 2.4, "count": 2, "step": 3}
    settings = {"coef": 0.5, "low": 0.8, "high": 1.1, "alpha": alpha}
    phase = 1 + np.exp(-3.0 * 3 / 5)
    plain, plain_gradient = toy.learn(Control(name="nothing"), {})
    loss, gradient = toy.learn(epo(steps=10, **settings), state)
    assert loss - plain == pytest.approx(
        reference(toy, toy.logits, 1.2, phase, **settings), abs=1e-12
    )
    expected = numeric_gradient(lambda at: reference(toy, at, 1.2, phase, **settings), toy.logits)
    assert torch.allclose(gradient - plain_gradient, expected, atol=1e-8)
    inside = (toy.current(toy.logits).entropy > 0.8 * 1.2) & (
        toy.current(toy.logits).entropy < 1.1 * 1.2
    )
    assert 0 < inside.sum() < toy.batch.n_slots


def test_the_penalties_do_not_depend_on_the_aggregation_of_the_base_loss(example) -> None:
    zero = torch.zeros(8, dtype=torch.float64)
    losses = set()
    for mode in ("token-mean", "seq-mean-token-sum"):
        terms = METHODS["grpo"](aggregation=mode).shape(start_terms(zero), example, None, {})
        terms = epo().shape(terms, example, None, HISTORY)
        losses.add(objective(Current(zero, example.entropy), example, terms, 8).item())
    assert len(losses) == 1
