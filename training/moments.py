"""The moments of AdamW as safetensors: all of every parameter, so that nothing can be missing unseen.

A parameter that has had no step has moments of 0, which is what AdamW begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter
from torch.optim import AdamW

from ..agents.checkpoint import CheckpointError

NAME = "optimizer.safetensors"


def save_moments(optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path) -> None:
    """Write the moments of `parameters`, by their names.

    Raises:
        CheckpointError: a parameter or a moment is not finite.
        SafetensorError: the file cannot be written.
    """
    moments = {name: value.cpu().contiguous() for name, value in _moments(optimizer, parameters).items()}
    for name, value in (*parameters.items(), *moments.items()):
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{name} has a value that is not finite, so no checkpoint of it is written")
    folder.mkdir(parents=True, exist_ok=True)
    save_file(moments, folder / NAME)


def load_moments(optimizer: AdamW, parameters: Mapping[str, Parameter], folder: Path) -> None:
    """Read what `save_moments` wrote.

    Raises:
        CheckpointError: it does not fit the parameters to the last name, shape and type, or is not finite.
    """
    found, needed = load_file(folder / NAME), _moments(optimizer, parameters)
    for name in sorted(found.keys() | needed.keys()):
        have, need = _described(found.get(name)), _described(needed.get(name))
        if have != need:
            raise CheckpointError(f"{folder / NAME}: {name} is {have}, and the policy needs {need}")
        if not bool(torch.isfinite(found[name]).all()):
            raise CheckpointError(f"{folder / NAME}: {name} has a value that is not finite")
    for name, parameter in parameters.items():
        state = {part: found[f"{name}/{part}"] for part in _fresh(parameter)}
        optimizer.state[parameter] = {
            part: value if part == "step" else value.to(parameter.device) for part, value in state.items()
        }


def _moments(optimizer: AdamW, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    moments = {}
    for name, parameter in parameters.items():
        for part, value in (optimizer.state.get(parameter) or _fresh(parameter)).items():
            moments[f"{name}/{part}"] = value.detach()
    return moments


def _fresh(parameter: Parameter) -> dict[str, Tensor]:
    """Return what AdamW keeps of a parameter before its first step."""
    zeros = torch.zeros_like(parameter, requires_grad=False)
    return {"step": torch.zeros(()), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


def _described(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
