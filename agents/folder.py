"""Model folders: found on disk or fetched from the Hugging Face hub, and checked, without importing torch."""

from __future__ import annotations

from pathlib import Path


def model_folder(name: str | Path) -> Path:
    """Return the folder of a model given by path or hub name (fetched first), checked for the files a policy needs.

    Raises:
        FileNotFoundError: there is no such folder or hub model, or one of its files is missing.
    """
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
