import math

import pytest
import torch

from turngym.training.model import chunked_head as head

SLOTS, WIDTH, VOCABULARY = 37, 6, 11


@pytest.fixture
def problem():
    """Hidden states, a head with an adapter of its own, drawn tokens, and a temperature a slot."""
    rng = torch.Generator().manual_seed(0)
    weight, a, b = (
        torch.randn(*shape, generator=rng)
        for shape in ((VOCABULARY, WIDTH), (2, WIDTH), (VOCABULARY, 2))
    )
    hidden = (torch.randn(SLOTS, WIDTH, generator=rng) * 2).requires_grad_()
    token = torch.randint(VOCABULARY, (SLOTS,), generator=rng)
    temperature = torch.tensor([1.0, 0.7, 2.0, 0.1]).repeat(SLOTS)[:SLOTS]
    return hidden, weight, a.requires_grad_(), b.requires_grad_(), token, temperature


def run(problem, exact=False):
    """`(logp, entropy)` of the head, or of the definition in float64."""
    hidden, weight, a, b, token, temperature = problem
    if not exact:
        return head.token_stats(
            hidden, lambda x: x @ weight.T + x @ a.T @ b.T, token, temperature, VOCABULARY
        )[:2]
    hidden, weight, a, b, temperature = (
        part.double() for part in (hidden, weight, a, b, temperature)
    )
    logits = hidden @ (weight + b @ a).T
    logp = (logits / temperature[:, None]).softmax(-1).log().gather(-1, token[:, None])[:, 0]
    share = logits.softmax(-1)
    return logp, -(share * share.log()).sum(-1)


def gradients(problem, exact=False):
    """Gradients of a sum that gives every slot's logp and entropy a weight of its own."""
    weights = torch.linspace(-1, 2, SLOTS)
    logp, entropy = run(problem, exact)
    leaves = (problem[0], problem[2], problem[3])
    return torch.autograd.grad((weights * logp).sum() + (weights.flip(0) * entropy).sum(), leaves)


def test_logp_is_at_each_tokens_temperature_and_entropy_at_one(problem):
    for ours, truth in zip(run(problem), run(problem, exact=True)):
        torch.testing.assert_close(ours.double(), truth, rtol=0, atol=2e-5)
    hotter = (*problem[:5], problem[5] * 3)
    assert torch.equal(run(problem)[1], run(hotter)[1])
    assert not torch.allclose(run(problem)[0], run(hotter)[0])


def test_gradients_reach_hidden_states_and_adapter_through_both(problem):
    for ours, truth in zip(gradients(problem), gradients(problem, exact=True)):
        torch.testing.assert_close(ours, truth.float(), rtol=1e-4, atol=1e-4)
    logp, entropy = run(problem)
    for value in (logp, entropy):
        assert all(
            part.abs().sum() > 0
            for part in torch.autograd.grad(value.sum(), problem[2:4], retain_graph=True)
        )


@pytest.mark.parametrize("slots", [1, 5, SLOTS - 1, SLOTS])
def test_chunks_change_neither_values_nor_gradients(problem, monkeypatch, slots):
    whole, slopes = run(problem), gradients(problem)
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", slots * VOCABULARY)
    for one, other in zip((*run(problem), *gradients(problem)), (*whole, *slopes)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for one, other in zip(run(problem), whole):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_logits_of_all_slots_never_exist_at_once(problem, monkeypatch):
    hidden, weight, _, _, token, temperature = problem
    sizes = []

    def watched(x):
        sizes.append(len(x))
        return x @ weight.T

    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 5 * VOCABULARY + 1)
    logp, entropy, _ = head.token_stats(hidden, watched, token, temperature, VOCABULARY)
    (logp.sum() + entropy.sum()).backward()
    assert max(sizes) == 5 and sum(sizes) == 2 * SLOTS  # once forward, once again for the gradient
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", 1)  # less than one row: still a row at a time
    with torch.no_grad():
        assert head.token_stats(hidden, watched, token, temperature, VOCABULARY)[0].shape == (
            SLOTS,
        )


def test_a_half_precision_head_is_computed_in_float32(problem):
    hidden, weight, _, _, token, temperature = problem
    logp, entropy, _ = head.token_stats(
        hidden.bfloat16(), lambda x: x @ weight.bfloat16().T, token, temperature, VOCABULARY
    )
    assert logp.dtype == entropy.dtype == torch.float32


def test_no_slots_give_no_values():
    nothing = torch.zeros(0, WIDTH)
    logp, entropy, _ = head.token_stats(
        nothing, lambda x: x @ torch.zeros(WIDTH, 3), torch.zeros(0).long(), nothing[:, 0], 3
    )
    assert logp.shape == entropy.shape == (0,)


def test_a_certain_distribution_has_entropy_zero_and_a_finite_gradient():
    hidden = torch.tensor([[200.0, 0.0, -200.0]], requires_grad=True)
    logp, entropy, _ = head.token_stats(hidden, lambda x: x, torch.tensor([0]), torch.ones(1), 3)
    assert (logp.item(), entropy.item()) == (0.0, 0.0)
    (logp + entropy).sum().backward()
    assert torch.isfinite(hidden.grad).all()


def primitive(logits):
    """The entropy of one row of logits, through a head that hands them on, and its slope in each of them."""
    hidden = torch.tensor([logits], requires_grad=True)
    entropy = head.token_stats(
        hidden, torch.clone, torch.tensor([0]), torch.ones(1), hidden.shape[1]
    )[1]
    return entropy.item(), torch.autograd.grad(entropy.sum(), hidden)[0][0]


def test_sheet_example_of_softmax_entropy():
    entropy, _ = primitive([2.0, 1.0, 0.0, -1.0])
    assert entropy == pytest.approx(0.947537, abs=1e-6) and entropy / math.log(2) == pytest.approx(
        1.367007, abs=1e-6
    )
    assert primitive([3.0] * 4)[0] == pytest.approx(1.386294, abs=1e-6)


@pytest.mark.parametrize(
    ("token", "whole", "alone"), [(0, -0.157871, -0.116329), (3, 0.248728, 0.077349)]
)
def test_sheet_example_of_what_a_policy_gradient_step_does_to_entropy(token, whole, alone):
    """To first order, with a step of 1 and an advantage of 1: all logits move, or that of the drawn token alone."""
    logits = [2.0, 1.0, 0.0, -1.0]
    step = torch.eye(4)[token] - torch.tensor(logits).softmax(0)
    slope = primitive(logits)[1]
    assert [(slope @ step).item(), (slope * step)[token].item()] == pytest.approx(
        [whole, alone], abs=1e-6
    )
