"""Modules that controls train beside the policy, such as a value head: they read hidden states and do not change them.

A module maps hidden states `[s, d]` to `[s, …]`; its gradient ends at the hidden states, so its loss cannot move the
policy. It starts from random numbers that depend on its name alone, and is saved with every checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import Parameter

from ..agents.checkpoint import CheckpointError

NAME = "modules.safetensors"


class Modules:
    """The modules of a control, by the names under which it asked for them."""

    def __init__(self, factories: Mapping[str, Callable[[int], nn.Module]], width: int, device: torch.device) -> None:
        self.modules = {name: _seeded(name, factory, width).to(device) for name, factory in factories.items()}

    def __call__(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return what each module says of `hidden` `[s, d]`."""
        return {name: module(hidden.detach().float()) for name, module in self.modules.items()}

    def parameters(self) -> dict[str, Parameter]:
        """Return all parameters as `modules.NAME.PARAMETER`."""
        return {
            f"modules.{name}.{part}": parameter
            for name, module in self.modules.items()
            for part, parameter in module.named_parameters()
        }

    def save(self, folder: Path) -> None:
        """Write the parameters; nothing where there is no module."""
        if self.modules:
            save_file({name: parameter.detach().cpu() for name, parameter in self.parameters().items()}, folder / NAME)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: it does not fit the modules to the last name, shape and type, or is not finite.
        """
        mine = self.parameters()
        found = load_file(folder / NAME) if (folder / NAME).exists() else {}
        for name in sorted(mine.keys() | found.keys()):
            have, need = (
                None if part is None else (part.shape, part.dtype) for part in (found.get(name), mine.get(name))
            )
            if have != need or not bool(torch.isfinite(found[name]).all()):
                raise CheckpointError(
                    f"{folder / NAME}: {name} is {have or 'missing'}, and the run needs {need}, finite"
                )
            mine[name].copy_(found[name])


def _seeded(name: str, factory: Callable[[int], nn.Module], width: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little"))
        return factory(width)
