"""Modules that learn beside the policy, such as a value head."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import Parameter

from .optimizer_state import MODULES, _fitting


class Modules(nn.ModuleDict):
    """The modules that controls train beside the policy, such as a value head, by the names that controls gave them.

    A module maps hidden states `[s, d]` to `[s, …]`; its gradient ends at the hidden states, so its loss cannot move
    the policy. It starts from random numbers that depend on its name alone, and is saved with every checkpoint.
    """

    def __init__(
        self, factories: Mapping[str, Callable[[int], nn.Module]], width: int, device: torch.device
    ) -> None:
        super().__init__()
        for name, factory in factories.items():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(
                    int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")
                )
                self[name] = factory(width).to(device)

    def forward(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the output of each module for `hidden` `[s, d]`."""
        return {name: module(hidden.detach().float()) for name, module in self.items()}

    def named(self) -> dict[str, Parameter]:
        """Return all parameters as `modules.NAME.PARAMETER`."""
        return {f"modules.{name}": parameter for name, parameter in self.named_parameters()}

    def save(self, folder: Path) -> None:
        if tensors := {name: parameter.detach().cpu() for name, parameter in self.named().items()}:
            save_file(tensors, folder / MODULES)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raises CheckpointError unless names, shapes and types fit and all is finite."""
        mine = self.named()
        for name, value in _fitting(folder / MODULES, mine).items():
            mine[name].copy_(value)
