"""The moments of the optimizer, saved and loaded to the bit."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter
from torch.optim import AdamW

from ...agents.journal.checkpoint import CheckpointError
from ...agents.models.folder import header

MOMENTS = "optimizer.safetensors"
MODULES = "modules.safetensors"


def save_moments(optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path) -> None:
    """Write the moments of `parameters` by their names. Raises CheckpointError where one is not finite."""
    moments = {
        name: value.cpu().contiguous() for name, value in _moments(optimizer, parameters).items()
    }
    for name, value in (*parameters.items(), *moments.items()):
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(
                f"{name} has a value that is not finite, so no checkpoint of it is written"
            )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(moments, folder / MOMENTS)


def load_moments(
    optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path, others: bool = False
) -> None:
    """Read what `save_moments` wrote, also among `others`. Raises CheckpointError unless it fits and is finite."""
    found = _fitting(folder / MOMENTS, _moments(optimizer, parameters), others)
    for name, parameter in parameters.items():
        for part in _fresh(parameter):
            value = found[f"{name}/{part}"]
            optimizer.state[parameter][part] = (
                value if part == "step" else value.to(parameter.device)
            )


def _moments(optimizer: AdamW, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    states = {name: optimizer.state.get(one) or _fresh(one) for name, one in parameters.items()}
    return {
        f"{name}/{part}": value.detach()
        for name, state in states.items()
        for part, value in state.items()
    }


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
        have, need = (
            "missing" if one is None else f"{one.dtype} {list(one.shape)}" for one in both
        )
        if have != need:
            raise CheckpointError(f"{path}: {name} is {have}, and the run needs {need}")
        if not bool(torch.isfinite(found[name]).all()):
            raise CheckpointError(f"{path}: {name} has a value that is not finite")
    return found
