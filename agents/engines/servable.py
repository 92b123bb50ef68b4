"""Model folders and adapters in the form that a vLLM server can carry.

vLLM adapts the output head of some model types only. Where a policy's type is not one of them, but computes what
another one does, the folder is written again under that type: a new `config.json` beside links to the same weights, to
the bit the same model. Nothing is written for policies that can be served as they are.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .. import durable
from ..policy import ADAPTER, Policy

HEAD = "lm_head"
# Types whose class in vLLM 0.32 lists the head among its `embedding_modules`.
HEADED = frozenset({"llama", "qwen3", "qwen3_moe", "granite", "nemotron", "exaone4"})
# Types that are Llama with these settings, where no window slides.
AS_LLAMA = {"qwen2": {"qkv_bias": True}, "mistral": {"qkv_bias": False}}


def servable(policy: Policy, folder: Path) -> Path:
    """Return the model folder to serve: the policy's own, or `folder`, written so that it carries the head's adapter.

    Raises:
        ValueError: vLLM cannot carry an adapter on the head of this model.
    """
    config = policy.base.config.to_dict()
    kind = str(config["model_type"])
    targets = _targets(policy)
    if HEAD not in targets or kind in HEADED:
        return policy.folder
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if kind not in AS_LLAMA or window is not None:
        others = " ".join(sorted(targets - {HEAD})) or "q_proj v_proj"
        why = f"its attention slides over {window} tokens" if kind in AS_LLAMA else f"its type is {kind!r}"
        raise ValueError(
            f"{policy.folder}: vLLM cannot carry the adapter of the output head ({policy.vocabulary} x "
            f"{config['hidden_size']}, rank {policy.lora.rank if policy.lora else 0}) of this model ({why}); "
            f"name targets without the head: --targets {others}"
        )
    drop = {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"}
    kept = {key: value for key, value in config.items() if key not in drop}
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False}
    _link(policy.folder, folder, json.dumps({**kept, **llama, **AS_LLAMA[kind]}, indent=2, default=str))
    return folder


def write_adapter(policy: Policy, folder: Path) -> None:
    """Write the adapter so that `folder` holds all of it, on the disk, or does not exist.

    Raises:
        OSError: it cannot be written.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    policy.save_adapter(temporary)
    for file in (*temporary.iterdir(), temporary):
        durable.sync(file)
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)
    durable.sync(folder.parent)


def _targets(policy: Policy) -> set[str]:
    return set() if policy.lora is None else set(policy.model.peft_config[ADAPTER].target_modules)


def _link(source: Path, folder: Path, config: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        if file.is_file() and file.name != "config.json":
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())
    durable.write(folder / "config.json", config + "\n")
