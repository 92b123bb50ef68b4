"""Where a policy comes from, checked before torch is imported: `tiny`, a run folder, a model folder, a hub name."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import latest
from .memory import header, layer_names

TINY = Path(__file__).parent / "tiny"


@dataclass(frozen=True)
class Source:
    """A model folder, and the folder of a trained adapter where there is one."""

    folder: Path
    adapter: Path | None = None

    def lora(self) -> tuple[int, float, tuple[str, ...]] | None:
        """Return rank, alpha and targets of the adapter; None without one."""
        if self.adapter is None:
            return None
        config = json.loads((self.adapter / "adapter_config.json").read_text("utf-8"))
        return int(config["r"]), float(config["lora_alpha"]), tuple(sorted(config["target_modules"]))

    def lora_dtype(self) -> str | None:
        """Return the type of the adapter's weights; None without one."""
        file = None if self.adapter is None else self.adapter / "adapter_model.safetensors"
        if file is None or not file.is_file():
            return None
        return "bfloat16" if {entry["dtype"] for entry in header(file).values()} == {"BF16"} else "float32"

    def check_targets(self, targets: Sequence[str]) -> None:
        """Raise ValueError where LoRA cannot be put on the layers named, as far as the model's files tell."""
        shape = self.lora()
        if targets and shape is not None and set(targets) != set(shape[2]):
            raise ValueError(
                f"targets is {tuple(targets)}, but the adapter in {self.adapter} is on {shape[2]} and stays there; "
                f"leave targets out, or begin with the model: --policy {self.folder}"
            )
        known = sorted(layer_names(self.folder)) if targets else []
        for name in targets:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise ValueError(
                    f"targets name {name!r}, which is no layer of {self.folder}; {hint}it has {', '.join(known)}"
                )


def find(name: str | Path) -> Source:
    """Return the source that `name` stands for, checked for the files a policy needs.

    Raises:
        FileNotFoundError: there is no such folder or hub model, or one of its files is missing.
        CheckpointError: all checkpoints of a run folder are damaged.
    """
    if str(name) == "tiny":
        return Source(TINY)
    folder = Path(name).expanduser()
    if (folder / "config.toml").is_file():
        checkpoint = latest(folder / "checkpoints")
        if checkpoint is None:
            raise FileNotFoundError(
                f"{folder} is a run without a checkpoint; resume it: turngym train --out {folder} --resume"
            )
        config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
        return Source(find(config["train"]["policy"]).folder, checkpoint / "adapter")
    return Source(model_folder(name))


def model_folder(name: str | Path) -> Path:
    """Return the folder of a model given by path or hub name (fetched first), checked for the files a policy needs.

    Raises:
        FileNotFoundError: there is no such folder or hub model, or one of its files is missing.
    """
    if "://" in str(name):
        raise FileNotFoundError(
            f"{name} is a URL, and a policy is a folder or a hub model; for a vLLM server give that too, with "
            "--engine vllm --server URL"
        )
    folder = Path(name).expanduser()
    if not folder.exists() and not str(name).startswith((".", "/", "~")) and str(name).count("/") <= 1:
        folder = _download(str(name))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{str(folder)!r} is not a folder; name `tiny`, a run folder, a model folder or a hub model such as "
            "Qwen/Qwen3-0.6B; `turngym warmup RECIPE` makes the one that a recipe starts from"
        )
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no config.json, so it is no model folder; save the model with save_pretrained"
        )
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no tokenizer.json; save the model's tokenizer there: "
            "transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
        )
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} has no *.safetensors weights; save the model with save_pretrained")
    return folder


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja"]))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{name!r} is neither a folder here nor a hub model that can be fetched ({type(error).__name__}); check "
            "the spelling, the connection, or give a folder"
        ) from error
