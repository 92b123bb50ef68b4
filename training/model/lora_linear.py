"""LoRA layers on a processor: the product with the adapter in one step, forward and backward."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ...agents.engines.torch.decoder import packs


@contextmanager
def one_step_linears(model: nn.Module) -> Iterator[None]:
    """Inside, the frozen linear layers of `model` in float32 on a CPU, adapted or not, are computed as said above."""
    from peft.tuners.lora import Linear

    found = []
    for module in model.modules():
        adapted = isinstance(module, Linear)
        plain: Any = module.base_layer if adapted else module
        frozen = (
            type(plain) is nn.Linear and _on_cpu(plain.weight) and not plain.weight.requires_grad
        )
        frozen &= not (
            adapted and module.merged
        )  # peft knows whether the update is to be taken off again
        if frozen and "forward" not in vars(
            module
        ):  # a checkpointed layer enters this again from within
            module.forward = partial(_forward, module)
            found.append(module)
    try:
        yield
    finally:
        for module in found:
            del module.forward


def product(
    x: Float[Tensor, "r d"], weight: Float[Tensor, "n d"], added: Tensor | None = None
) -> Float[Tensor, "r n"]:
    """Return x Wᵀ, plus `added`: a bias `[n]`, or another product."""
    if not (_on_cpu(x) and packs() and x.numel()):
        out = nn.functional.linear(x, weight)
        return out if added is None else out + added
    if added is None or added.dim() == 1:
        return torch.ops.mkldnn._linear_pointwise(x, weight, added, "none", [], "")  # type: ignore[no-any-return]
    return torch.ops.mkldnn._linear_pointwise(x, added, weight, None, "add")  # type: ignore[no-any-return]


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


class OneStep(torch.autograd.Function):
    """x Wᵀ + b, and s (x Aᵀ) Bᵀ where there are A and B, with gradient to x, A, B (Hu et al., arXiv 2106.09685, 4.1).

    peft takes six operations that each keep what they read; here x and x Aᵀ are kept. On a CPU, in float32, oneDNN
    multiplies up to twice as fast as what PyTorch calls by itself; it depends on the maker of the processor.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "r d"],
        weight: Float[Tensor, "n d"],
        bias: Float[Tensor, "n"] | None,
        down: Float[Tensor, "k d"] | None = None,
        up: Float[Tensor, "n k"] | None = None,
        scale: float = 0.0,
    ) -> Float[Tensor, "r n"]:
        if down is None or up is None:
            ctx.save_for_backward(weight)
            return product(x, weight, bias)
        low = product(x, down).mul_(scale)
        ctx.save_for_backward(weight, x, down, up, low)
        ctx.scale = scale
        return product(low, up, product(x, weight, bias))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight, *adapter = ctx.saved_tensors
        grad = grads[0].contiguous()
        if not adapter:
            return product(grad, weight.t()), *(None,) * 5
        x, down, up, low = adapter
        back = product(grad, up.t()).mul_(ctx.scale)
        to_x = (
            product(back, down.t(), product(grad, weight.t())) if ctx.needs_input_grad[0] else None
        )
        return to_x, None, None, product(back.t(), x.t()), product(grad.t(), low.t()), None


def _forward(module: Any, x: Tensor) -> Tensor:
    """Stand in for the `forward` of a linear layer, or of peft's."""
    plain: Any = getattr(module, "base_layer", module)
    lora: tuple[Any, ...] = ()
    if plain is not module and not module.disable_adapters:
        (name,) = module.active_adapters
        lora = (
            module.lora_A[name].weight.float(),
            module.lora_B[name].weight.float(),
            module.scaling[name],
        )
    rows = OneStep.apply(x.flatten(0, -2), plain.weight, plain.bias, *lora)  # type: ignore[no-untyped-call]
    return rows.view(*x.shape[:-1], plain.out_features)  # type: ignore[no-any-return]
