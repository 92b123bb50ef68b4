import pytest
import torch

from turngym.training.objective import k1, k2, k3, log_ratio, with_k2_gradient

LOGP = torch.tensor([-0.1, -1.1, -1.0], dtype=torch.float64)
REF = torch.tensor([-0.3, -1.2, -0.8], dtype=torch.float64)


def test_sheet_examples_of_the_estimators() -> None:
    assert k1(LOGP, REF).tolist() == pytest.approx([0.2, 0.1, -0.2], abs=1e-6)
    assert k2(LOGP, REF).tolist() == pytest.approx([0.02, 0.005, 0.02], abs=1e-6)
    assert k3(LOGP, REF).tolist() == pytest.approx([0.018731, 0.004837, 0.021403], abs=1e-6)


def test_sheet_example_of_the_mean_k3(sheet) -> None:
    batch, current, _ = sheet
    assert k3(current.logp, batch.logp_ref).mean().item() == pytest.approx(0.022712, abs=1e-6)


def test_gradient_of_k3_is_one_minus_the_inverse_ratio() -> None:
    logp = LOGP.clone().requires_grad_()
    k3(logp, REF).sum().backward()
    assert torch.allclose(logp.grad, 1 - torch.exp(REF - LOGP))


def test_with_k2_gradient_keeps_the_value_and_takes_the_gradient_of_k2() -> None:
    logp = LOGP.clone().requires_grad_()
    value = with_k2_gradient(k3(logp, REF), logp, REF)
    value.sum().backward()
    assert torch.allclose(value, k3(LOGP, REF))
    assert torch.allclose(logp.grad, LOGP - REF)


def test_k3_in_expectation_is_the_kl_divergence() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    exact = (p * (p / q).log()).sum()
    assert torch.allclose((p * k3(p.log(), q.log())).sum(), exact)
    assert torch.allclose((p * k1(p.log(), q.log())).sum(), exact)


def test_log_ratio_is_held_so_that_nothing_overflows() -> None:
    far = torch.tensor([0.0, -500.0])
    assert log_ratio(far, far.flip(0)).tolist() == [20.0, -20.0]
    assert torch.isfinite(k3(far, far.flip(0))).all()


def test_small_differences_keep_their_digits_in_float32() -> None:
    x = torch.tensor([1e-4], dtype=torch.float32)
    assert k3(x, torch.zeros(1)).item() == pytest.approx(5e-9, rel=1e-2, abs=1e-8)
    assert k3(x, torch.zeros(1)).item() >= 0
