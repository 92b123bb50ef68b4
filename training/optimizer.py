"""What is trained and saved beside the adapter: the moments of AdamW, and modules of controls, as safetensors.

The moments of every parameter are saved, so that a missing one is noticed; those without a step are AdamW's first, 0.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW

from ..agents.checkpoint import CheckpointError
from ..agents.model_folder import header

MOMENTS = "optimizer.safetensors"
MODULES = "modules.safetensors"


def save_moments(optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path) -> None:
    """Write the moments of `parameters` by their names. Raises CheckpointError where one is not finite."""
    moments = {name: value.cpu().contiguous() for name, value in _moments(optimizer, parameters).items()}
    for name, value in (*parameters.items(), *moments.items()):
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{name} has a value that is not finite, so no checkpoint of it is written")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(moments, folder / MOMENTS)


def load_moments(optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path, others: bool = False) -> None:
    """Read what `save_moments` wrote, also among `others`. Raises CheckpointError unless it fits and is finite."""
    found = _fitting(folder / MOMENTS, _moments(optimizer, parameters), others)
    for name, parameter in parameters.items():
        for part in _fresh(parameter):
            value = found[f"{name}/{part}"]
            optimizer.state[parameter][part] = value if part == "step" else value.to(parameter.device)


def _moments(optimizer: AdamW, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    states = {name: optimizer.state.get(one) or _fresh(one) for name, one in parameters.items()}
    return {f"{name}/{part}": value.detach() for name, state in states.items() for part, value in state.items()}


def _fresh(parameter: Parameter) -> dict[str, Tensor]:
    zeros = torch.zeros_like(parameter, requires_grad=False)
    return {"step": torch.zeros(()), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


def _fitting(path: Path, needed: Mapping[str, Tensor], others: bool = False) -> dict[str, Tensor]:
    """Return the tensors of a file like those `needed`, finite, and `others` if so; a missing file has none."""
    try:
        found = load_file(path) if path.exists() and header(path) else {}
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(str(error)) from None
    for name in sorted(needed.keys() if others else found.keys() | needed.keys()):
        both = (tensors.get(name) for tensors in (found, needed))
        have, need = ("missing" if one is None else f"{one.dtype} {list(one.shape)}" for one in both)
        if have != need:
            raise CheckpointError(f"{path}: {name} is {have}, and the run needs {need}")
        if not bool(torch.isfinite(found[name]).all()):
            raise CheckpointError(f"{path}: {name} has a value that is not finite")
    return found


class Modules(nn.ModuleDict):
    """The modules that controls train beside the policy, such as a value head, by the names that controls gave them.

    A module maps hidden states `[s, d]` to `[s, …]`; its gradient ends at the hidden states, so its loss cannot move
    the policy. It starts from random numbers that depend on its name alone, and is saved with every checkpoint.
    """

    def __init__(self, factories: Mapping[str, Callable[[int], nn.Module]], width: int, device: torch.device) -> None:
        super().__init__()
        for name, factory in factories.items():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little"))
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
