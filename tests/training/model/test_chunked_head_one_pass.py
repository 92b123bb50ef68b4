"""The pass of a frozen linear head, against its definition in float64, autograd and differences."""

import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from turngym.training.model import chunked_head as head

WIDTH, VOCABULARY = 6, 11


def problem(slots, dtype=torch.float64, bias=True, mixed=True):
    """A frozen head, hidden states, drawn tokens of which every second is the likeliest, and temperatures."""
    rng = torch.Generator().manual_seed(slots)
    linear = nn.Linear(WIDTH, VOCABULARY, bias=bias).requires_grad_(False)
    for parameter in linear.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=rng))
    hidden = torch.randn(slots, WIDTH, generator=rng) * 2
    token = torch.randint(VOCABULARY, (slots,), generator=rng)
    token[::2] = linear(hidden).argmax(-1)[::2]
    heat = torch.tensor([1.0, 0.7, 2.0, 0.1] if mixed else [1.0]).repeat(slots)[:slots]
    return linear.to(dtype), hidden.to(dtype).requires_grad_(), token, heat


def truth(linear, hidden, token, heat):
    """`(logp, entropy)` from the definition, in float64."""
    logits = nn.functional.linear(
        hidden.double(),
        linear.weight.double(),
        None if linear.bias is None else linear.bias.double(),
    )
    logp = (logits / heat[:, None].double()).log_softmax(-1).gather(-1, token[:, None])[:, 0]
    plain = logits.log_softmax(-1)
    return logp, -(plain.exp() * plain).sum(-1)


def once(linear, hidden, token, heat, slopes=2):
    return head.OnePass.apply(hidden, linear.weight, linear.bias, token, heat, slopes)


def slopes_of(values, hidden):
    """Gradients through each alone and through both, every slot with a weight of its own."""
    weights = torch.linspace(-1, 2, len(hidden)).double()
    parts = [(weights * value.double()).sum() for value in values]
    parts += [parts[0] - 2 * parts[1]]
    return [torch.autograd.grad(part, hidden, retain_graph=True)[0] for part in parts]


@pytest.fixture(params=[(512, 4096), (5, 4), (1, 1)], ids=str)
def tiles(request, monkeypatch):
    """One tile for all, tiles that divide neither rows nor vocabulary, and a logit a tile."""
    monkeypatch.setattr(head, "ROWS", request.param[0])
    monkeypatch.setattr(head, "TILE", request.param[1])


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("slots", [0, 1, 13])
def test_values_and_both_gradients_are_those_of_autograd(tiles, slots, bias, mixed):
    given = problem(slots, bias=bias, mixed=mixed)
    exact = truth(*given)
    for slopes in (0, 1, 2):
        for ours, true in zip(once(*given, slopes), exact, strict=True):
            torch.testing.assert_close(ours, true, rtol=1e-12, atol=1e-12)
    for ours, true in zip(
        slopes_of(once(*given), given[1]), slopes_of(exact, given[1]), strict=True
    ):
        torch.testing.assert_close(ours, true, rtol=1e-11, atol=1e-11)
    if slots:
        alone = torch.autograd.grad(once(*given, 1)[0].sum(), given[1])[0]
        torch.testing.assert_close(
            alone, torch.autograd.grad(exact[0].sum(), given[1])[0], rtol=1e-11, atol=1e-11
        )


@pytest.mark.parametrize("mixed", [False, True])
def test_both_gradients_are_the_slopes_of_differences(mixed, monkeypatch):
    monkeypatch.setattr(head, "TILE", 4)
    linear, hidden, token, heat = problem(5, mixed=mixed)
    assert torch.autograd.gradcheck(lambda x: once(linear, x, token, heat), hidden)


def large(dtype, scale=2.0):
    """A head of a size at which float32 rounds: 500 wide, 3,001 tokens."""
    rng = torch.Generator().manual_seed(0)
    linear = nn.Linear(500, 3001, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.randn(3001, 500, generator=rng) * scale / math.sqrt(500))
    hidden = torch.randn(24, 500, generator=rng)
    token = torch.randint(3001, (24,), generator=rng)
    token[::2] = (hidden @ linear.weight.T).argmax(-1)[::2]
    return (
        linear.to(dtype),
        hidden.to(dtype).requires_grad_(),
        token,
        torch.tensor([1.0, 0.8]).repeat_interleave(12),
    )


def apart(ours, true):
    """The largest difference, relative to values above 1."""
    return float(((ours.double() - true).abs() / true.abs().clamp(min=1)).detach().max())


def test_float32_is_exact_to_2e_6(monkeypatch):
    monkeypatch.setattr(head, "TILE", 700)
    given = large(torch.float32)
    ours, exact = once(*given), truth(*given)
    assert max(apart(a, b) for a, b in zip(ours, exact, strict=True)) < 2e-6
    assert all(value.dtype == torch.float32 for value in ours)
    for one, true in zip(slopes_of(ours, given[1]), exact_slopes(given), strict=True):
        assert (one.double() - true).norm() / true.norm() < 2e-6


def exact_slopes(given):
    """The gradients of the definition in float64."""
    linear, hidden, token, heat = given
    double = hidden.detach().double().requires_grad_()
    return slopes_of(truth(linear, double, token, heat), double)


@pytest.mark.parametrize("scale", [2.0, 8.0])  # with 8 most likely tokens are nearly certain
def test_bfloat16_is_as_exact_as_autograd_row_by_row(monkeypatch, scale):
    monkeypatch.setattr(head, "TILE", 700)
    linear, hidden, token, heat = given = large(torch.bfloat16, scale)
    logits = linear(hidden).float()
    logp = (logits / heat[:, None]).log_softmax(-1).gather(-1, token[:, None])[:, 0]
    entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    ours = once(*given)
    for value, same in zip(ours, (logp, entropy), strict=True):  # of the same rounded logits
        assert value.dtype == torch.float32 and apart(value, same.double()) < 2e-6
    for one, usual, true in zip(
        slopes_of(ours, hidden), slopes_of((logp, entropy), hidden), exact_slopes(given)
    ):
        assert one.dtype == torch.bfloat16
        error, usually = ((part.double() - true).norm(dim=1) for part in (one, usual))
        assert float((error / (usually + 0.02 * true.norm(dim=1))).max()) < 2


def test_logits_exist_a_tile_at_a_time_and_are_computed_once(monkeypatch):
    monkeypatch.setattr(head, "ROWS", 5)
    monkeypatch.setattr(head, "TILE", 4)
    products = []
    for name in ("mm", "addmm"):
        method = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda *a, f=method, **k: products.append(a[0].shape) or f(*a, **k)
        )
    linear, hidden, token, heat = problem(12, torch.float32)
    values = head.token_stats(hidden, linear, token, heat, VOCABULARY)[:2]
    assert products == 9 * [(4, WIDTH)]  # chunks of one size
    products.clear()
    sum(value.sum() for value in values).backward()
    assert not products


def test_what_needs_no_gradient_keeps_nothing():
    linear, hidden, token, heat = problem(4, torch.float32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        with torch.no_grad():
            head.token_stats(hidden, linear, token, heat, VOCABULARY)
        head.token_stats(hidden.detach(), linear, token, heat, VOCABULARY)
        assert not kept
        _, entropy, _ = head.token_stats(
            hidden, linear, token, heat, VOCABULARY, entropy_grad=False
        )
        assert len(kept) == 1 and not entropy.requires_grad
        kept.clear()
        assert (
            head.token_stats(hidden, linear, token, heat, VOCABULARY)[1].requires_grad
            and len(kept) == 2
        )


def test_values_are_never_beyond_their_bounds():
    linear, hidden, token, heat = problem(12, torch.float32)
    logp, entropy, _ = head.token_stats(hidden * 100, linear, token, heat, VOCABULARY)
    assert bool((logp <= 0).all()) and bool((entropy >= 0).all())
    slope = torch.autograd.grad((logp + entropy).sum(), hidden)[0]
    assert bool(torch.isfinite(slope).all())


def test_numbers_that_are_not_finite_are_not_hidden():
    linear, hidden, token, heat = problem(3, torch.float32)
    broken = hidden.detach().clone()
    broken[1, 2] = math.nan
    logp, entropy, _ = head.token_stats(broken, linear, token, heat, VOCABULARY)
    assert logp.isfinite().tolist() == entropy.isfinite().tolist() == [True, False, True]


class Model(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.lm_head = linear

    def forward(self, x):
        return self.lm_head(x)


def test_an_adapted_head_is_passed_once_only_while_its_adapter_is_off(monkeypatch):
    linear, hidden, token, heat = problem(9, torch.float32)
    before = truth(linear, hidden, token, heat)
    model = get_peft_model(
        Model(linear), LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False)
    )
    adapted, calls = model.base_model.model.lm_head, []
    apply = head.OnePass.apply
    monkeypatch.setattr(head.OnePass, "apply", lambda *given: calls.append(1) or apply(*given))
    on = head.token_stats(hidden, adapted, token, heat, VOCABULARY)[:2]
    assert not calls
    assert all(
        one.abs().sum() > 0
        for one in torch.autograd.grad(sum(on).sum(), list(adapted.lora_B.parameters()))
    )
    with model.disable_adapter():
        off = head.token_stats(hidden, adapted, token, heat, VOCABULARY)[:2]
    assert len(calls) == 1
    for ours, true, other in zip(off, before, on, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(ours, other, atol=1e-3)
    model.merge_adapter()
    merged = head.token_stats(hidden, adapted, token, heat, VOCABULARY)[:2]
    for one, other in zip(on, merged, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert len(calls) == 1


def test_a_head_that_learns_and_functionals_are_computed_as_before(monkeypatch):
    linear, hidden, token, heat = problem(9, torch.float32)
    plain = head.token_stats(hidden, linear, token, heat, VOCABULARY)[:2]
    largest = {"largest": lambda logits, token, before: logits.amax(-1)}
    *same, extras = head.token_stats(hidden, linear, token, heat, VOCABULARY, largest)
    learns = head.token_stats(hidden, linear.requires_grad_(), token, heat, VOCABULARY)[:2]
    assert extras["largest"].requires_grad
    assert torch.autograd.grad(learns[0].sum(), linear.weight)[0].abs().sum() > 0
    for ours, one, other in zip(plain, same, learns, strict=True):
        torch.testing.assert_close(ours, one, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)
    _, entropy, _ = head.token_stats(
        hidden, linear, token, heat, VOCABULARY, largest, entropy_grad=False
    )
    assert not entropy.requires_grad
