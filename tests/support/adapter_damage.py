"""Weight updates that go wrong, as what a server gets in place of an adapter: the table that a sync must see through.

Each takes the adapter that it should load, the one before, and another run's, and writes what it loads instead.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Adapters:
    """The adapter's tensors by name: as they should be, as they were before, and as another run has them."""

    new: Tensors
    old: Tensors
    other: Tensors


Change = Callable[[Adapters], Tensors]


def _keep(keep: Callable[[str], bool]) -> Change:
    return lambda all_: {
        name: t if keep(name) else torch.zeros_like(t) for name, t in all_.new.items()
    }


def _each(change: Callable[[str, Tensor], Tensor]) -> Change:
    return lambda all_: {
        name: change(name, tensor).contiguous() for name, tensor in all_.new.items()
    }


def _of_b(change: Callable[[Tensor], Tensor]) -> Change:
    return _each(lambda name, tensor: change(tensor) if "lora_B" in name else tensor)


def _of_a(change: Callable[[Tensor], Tensor]) -> Change:
    return _each(lambda name, tensor: change(tensor) if "lora_A" in name else tensor)


def _swap(one: str, other: str) -> Change:
    """Exchange the matrices of two places that have the same shapes."""

    def swapped(name: str) -> str:
        return name.replace(one, "?").replace(other, one).replace("?", other)

    return lambda all_: {
        name: all_.new.get(swapped(name), tensor) for name, tensor in all_.new.items()
    }


def _int8(tensor: Tensor) -> Tensor:
    scale = tensor.abs().max().clamp_min(1e-12) / 127
    return (tensor / scale).round() * scale


def _last_rank(name: str, tensor: Tensor) -> Tensor:
    cut = tensor.clone()
    (cut[-1:] if "lora_A" in name else cut[:, -1:]).zero_()
    return cut


def _one(all_: Adapters) -> Tensors:
    name = next(name for name in sorted(all_.new) if "lora_B" in name)
    moved = all_.new[name].clone()
    moved[0, 0] += 0.5
    return {**all_.new, name: moved}


def _torn(all_: Adapters) -> Tensors:
    names = sorted(all_.new)
    return {
        name: all_.old[name] if i < len(names) // 2 else all_.new[name]
        for i, name in enumerate(names)
    }


CHANGES: Mapping[str, Change] = {
    "dropped": _keep(lambda name: False),
    "no matrices": lambda all_: {},
    "version before": lambda all_: all_.old,
    "torn between versions": _torn,
    "another run's": lambda all_: all_.other,
    "sign flip": _of_b(torch.neg),
    "layers swapped": _swap(".layers.0.", ".layers.1."),
    "modules swapped": _swap(".q_proj.", ".k_proj."),
    "layer missing": _keep(lambda name: ".layers.1." not in name),
    "module missing": _keep(lambda name: ".v_proj." not in name),
    "head missing": _keep(lambda name: "lm_head" not in name),
    "head alone": _keep(lambda name: "lm_head" in name),
    "rank cut": _each(_last_rank),
    "A alone": _of_b(torch.zeros_like),
    "rounded to bfloat16": _each(lambda name, tensor: tensor.bfloat16().to(tensor.dtype)),
    "rounded to int8": _each(lambda name, tensor: _int8(tensor)),
    "A's ranks reversed": _of_a(lambda tensor: tensor.flip(0)),
    "A transposed": _of_a(lambda tensor: tensor.T.reshape(tensor.shape)),
    "A's inputs reversed": _of_a(lambda tensor: tensor.flip(1)),
    "one number": _one,
    "added twice": _of_b(lambda tensor: 2 * tensor),
    "decayed": _of_b(lambda tensor: 0.99 * tensor),
}
ALPHAS: Mapping[str, Callable[[float, int], float]] = {
    "scale missing": lambda alpha, rank: float(rank),
    "alpha wrong": lambda alpha, rank: 1.05 * alpha,
    "alpha as scale": lambda alpha, rank: alpha * rank,
}
BYTES: Mapping[str, Callable[[bytes], bytes]] = {
    "half-written": lambda data: data[: len(data) // 2],
    "hole at the end": lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "empty file": lambda data: b"",
}
DAMAGE = (*CHANGES, *ALPHAS, *BYTES)


def damage(kind: str, new: Path, old: Path, other: Path, out: Path) -> Path:
    """Write into `out` what a server gets in place of the adapter `new`, and return `out`."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(new, out)
    if kind in CHANGES:
        given = Adapters(*(load_file(folder / WEIGHTS) for folder in (new, old, other)))
        save_file(CHANGES[kind](given), out / WEIGHTS, metadata={"format": "pt"})
    elif kind in ALPHAS:
        settings = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        settings["lora_alpha"] = ALPHAS[kind](settings["lora_alpha"], settings["r"])
        (out / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    else:
        (out / WEIGHTS).write_bytes(BYTES[kind]((out / WEIGHTS).read_bytes()))
    return out
