import pytest
import torch
from torch import nn

from turngym.training.model import lora_linear
from turngym.training.model.lora_linear import OneStep, one_step_linears

ROWS, IN, OUT, RANK = 7, 12, 10, 3


@pytest.fixture
def adapted():
    """A model of an adapted layer and a frozen one, in peft's wrapper."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(IN, OUT), nn.Linear(OUT, OUT, bias=False)).requires_grad_(False)
    model = get_peft_model(
        model, LoraConfig(r=RANK, lora_alpha=5, target_modules=["0"], lora_dropout=0.0)
    )
    for parameter in model.parameters():
        parameter.data.normal_()
    return model


def results(model, x):
    """The output, and the gradients of a weighed sum to the input and all that is trained."""
    x = x.clone().requires_grad_()
    out = model(x)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weights).sum(), [x, *trained])


@pytest.mark.parametrize("shape", [(ROWS, IN), (2, ROWS, IN), (1, 0, IN)])
def test_values_and_gradients_are_those_of_peft_in_float64(adapted, shape):
    x = torch.randn(shape)
    with one_step_linears(adapted):
        ours = results(adapted, x)
        assert "OneStep" in _nodes(ours[0])
    for one, true in zip(ours, results(adapted.double(), x.double()), strict=True):
        torch.testing.assert_close(one.double(), true, rtol=1e-5, atol=1e-4)


def test_without_onednn_the_values_are_the_same(adapted, monkeypatch):
    x = torch.randn(ROWS, IN)
    with one_step_linears(adapted):
        ours = results(adapted, x)
        monkeypatch.setattr(lora_linear, "packs", lambda: False)
        for one, other in zip(ours, results(adapted, x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_an_adapter_that_is_off_adds_nothing(adapted):
    x = torch.randn(ROWS, IN)
    with adapted.disable_adapter():
        true = adapted(x)
        with one_step_linears(adapted):
            torch.testing.assert_close(adapted(x), true)


def test_weights_in_half_precision_learn_in_it(adapted):
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.bfloat16()
    with one_step_linears(adapted):
        assert [part.dtype for part in results(adapted, torch.randn(ROWS, IN))[2:]] == [
            torch.bfloat16
        ] * 2


@pytest.mark.parametrize(
    "change", [lambda m: m.double(), lambda m: m.bfloat16(), lambda m: m.requires_grad_(True)]
)
def test_other_layers_are_computed_as_they_are(adapted, change):
    change(adapted)
    with one_step_linears(adapted):
        assert not any("forward" in vars(module) for module in adapted.modules())


def test_outside_the_layers_are_what_they_were(adapted):
    with pytest.raises(KeyError), one_step_linears(adapted):
        assert any("forward" in vars(module) for module in adapted.modules())
        raise KeyError
    assert not any("forward" in vars(module) for module in adapted.modules())


def test_gradients_are_the_slopes_of_differences():
    draw = torch.Generator().manual_seed(1)
    shapes = ((ROWS, IN), (OUT, IN), (OUT,), (RANK, IN), (OUT, RANK))
    x, weight, bias, down, up = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in shapes
    )
    inputs = [part.requires_grad_() for part in (x, down, up)]
    assert torch.autograd.gradcheck(
        lambda x, down, up: OneStep.apply(x, weight, bias, down, up, 1.5), inputs
    )


def _nodes(out):
    """The names of all steps of autograd behind `out`."""
    names, open_ = set(), [out.grad_fn]
    while open_:
        if node := open_.pop():
            names.add(type(node).__name__.removesuffix("Backward"))
            open_ += [parent for parent, _ in node.next_functions]
    return names
