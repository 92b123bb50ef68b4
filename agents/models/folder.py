"""The files of a model folder, which anyone may have made: read within limits, refused where they bring code.

A folder is weights in safetensors and settings in JSON. Whatever would load code, a kernel, a pickle or a file from
elsewhere is refused by its name, before a library that would follow it sees the folder.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from ...tools import files

MOST = 1 << 26  # bytes of a JSON file
CONFIG, INDEX, TEMPLATE_FILE = "config.json", "model.safetensors.index.json", "chat_template.jinja"
STORED = {
    "F64": 8,
    "F32": 4,
    "BF16": 2,
    "F16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I8": 1,
    "U8": 1,
}  # bytes of a number
SMALL, WEIGHTS = ("*.json", "*.jinja"), "*.safetensors"
_NEEDED = {  # of a policy, with what to do where it is missing
    CONFIG: ", so it is no model folder; save the model with save_pretrained",
    "tokenizer.json": "; save the model's tokenizer there: "
    "transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)",
    WEIGHTS: " weights; save the model with save_pretrained",
}
_SETTINGS = (CONFIG, "generation_config.json", "tokenizer_config.json")
_CODE = {  # settings that name code, or weights elsewhere
    *(
        "auto_map",
        "auto_mapping",
        "custom_pipelines",
        "custom_generate",
        "trust_remote_code",
        "use_kernels",
    ),
    *(
        "kernel_config",
        "fusion_config",
        "quantization_config",
        "compression_config",
        "transformers_weights",
    ),
    *("gguf_file", "adapter_path"),
}
_ATTENTION = (
    None,
    "eager",
    "sdpa",
    "grouped_mm",
    "batched_mm",
)  # what *_implementation may be: part of torch
_NAMES = ("_name_or_path", "name_or_path")  # where a model came from: nothing reads them
_SIZES = (
    *(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    ),
    *("head_dim", "vocab_size", "max_position_embeddings"),
)


def read_json(path: Path, follow: bool = True) -> dict[str, Any]:
    """Return the JSON object in a file. Raises FileNotFoundError, or ValueError where it holds none or is too large.

    `follow` is for model folders and what a command names; in the folders of runs and evaluations no link is followed.
    """
    try:
        data = json.loads(files.read_bytes(path, follow=follow), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be used: {str(error).removeprefix(f'{path} ')}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds a {type(data).__name__}; it must be a JSON object")
    return data


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return what a plain file holds; a link is followed, as a hub's cache is made of them. Raises as `read_json`."""
    return files.read_bytes(path, most, follow=True)


def sha256_of(path: Path, follow: bool = True) -> str:
    with files.open_plain(path, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file that a command names. Raises ValueError where it is none, OSError."""
    return files.read_toml(path, follow=True)


def template_digest(source: str) -> str:
    """Return the sha256 of a chat template without the newlines at its end, which jinja leaves out, as 32 digits."""
    return hashlib.sha256(source.rstrip("\n").encode()).hexdigest()[:32]


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, for `object_pairs_hook`; raise ValueError where a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def header(file: Path) -> dict[str, Any]:
    """Return "dtype" and "shape" of the tensors of a safetensors file. Raises ValueError for a damaged one."""
    try:
        with files.open_plain(file, follow=True) as stream:
            length, rest = int.from_bytes(stream.read(8), "little"), file.stat().st_size - 8
            if not 0 < length <= min(rest, MOST):
                raise ValueError(
                    f"its header would have {length} bytes, and the file has {rest} more"
                )
            found = json.loads(stream.read(length), object_pairs_hook=unique)
        found.pop("__metadata__", None)
        for name, entry in found.items():
            (start, end), shape = entry["data_offsets"], entry["shape"]
            if not (
                0 <= start <= end <= rest - length
                and len(shape) < 9
                and all(0 <= n < 1 << 48 for n in shape)
            ):
                raise ValueError(f"tensor {name!r} lies outside the file")
            if entry["dtype"] in STORED and prod(shape) * STORED[entry["dtype"]] != end - start:
                raise ValueError(
                    f"tensor {name!r} has {end - start} bytes, which its shape {shape} does not need"
                )
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} is no safetensors file that can be used ({error}); copy or save it again"
        ) from None
    return found  # type: ignore[no-any-return]


def model_folder(name: str | Path, weights: bool = True) -> Path:
    """Return the folder of a model given by path or hub name (fetched first), checked for the files a policy needs.

    Without `weights` its small files are enough. Raises FileNotFoundError where there is no such folder or hub model,
    or one of its files is missing, and ValueError where a file is damaged, or leads to code or out of the folder.
    """
    if "://" in str(name):
        server, model = "--engine vllm --server URL", "--model NAME --base-url URL"
        what = f"{name} is a URL, and a policy is a folder or a hub model; for a vLLM server give that too, with"
        raise FileNotFoundError(f"{what} {server}; to evaluate a model behind a URL: {model}")
    folder = Path(name).expanduser()
    if (
        not folder.exists()
        and not str(name).startswith((".", "/", "~"))
        and str(name).count("/") <= 1
    ):
        folder = _download(str(name), [*SMALL, *[WEIGHTS] * weights])
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{str(folder)!r} is not a folder; name `tiny`, a run folder, a model folder or a hub model such as "
            "Qwen/Qwen3-0.6B, a .gguf file or smollm2-135m; `turngym warmup RECIPE` makes the one that a recipe starts "
            "from"
        )
    for file, what in _NEEDED.items():
        if (weights or file != WEIGHTS) and not any(folder.glob(file)):
            raise FileNotFoundError(f"{folder} has no {file}{what}")
    check_folder(folder, weights)
    return folder


def _download(name: str, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (OSError, ValueError) as error:
        what = f"{name!r} is neither a folder here nor a hub model that can be fetched ({type(error).__name__})"
        raise FileNotFoundError(
            f"{what}; check the spelling, the connection, or give a folder"
        ) from error


def check_folder(folder: Path, weights: bool = True) -> None:
    """Raise ValueError where a model folder leads out of it or to code, or lacks what it names; `weights` too."""
    for name in ("adapter_config.json", "custom_generate"):
        if (folder / name).exists():
            raise ValueError(
                f"{folder} holds {name}, so it is no plain model folder; save the model alone there"
            )
    home = folder.resolve()
    blobs = (
        home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    )  # of a hub's cache
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".jinja", ".safetensors"):
            if not path.is_file():
                raise ValueError(f"{path} is no plain file; a model folder holds files alone")
            if not ((real := path.resolve()).is_relative_to(home) or real.is_relative_to(blobs)):
                raise ValueError(
                    f"{path} is a link to {real}, outside its folder; copy the file there"
                )
    for name in _SETTINGS:
        if (folder / name).is_file():
            for key, value in _walk(read_json(folder / name)):
                _check_setting(folder / name, key, value)
    if not weights:
        return
    shapes = [entry["shape"] for file in _weights(folder) for entry in header(file).values()]
    tensors, largest = len(shapes), max((n for shape in shapes for n in shape), default=0)
    config = read_json(folder / CONFIG)
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        # To build a larger model than the weights are of would take all memory or all day.
        for name, value in ((name, part.get(name)) for name in _SIZES):
            for number in value if isinstance(value, list) else [value]:
                most = {"num_hidden_layers": tensors, "max_position_embeddings": 1 << 31}.get(
                    name, largest
                )
                if number is not None and (type(number) is not int or not 0 < number <= most):
                    what = f"{folder / CONFIG} sets {name} to {value!r:.80}, which does not fit its weights of"
                    shape = f"{tensors} tensors, none longer than {largest}"
                    raise ValueError(f"{what} {shape}; save the model again with save_pretrained")


def _weights(folder: Path) -> list[Path]:
    if (folder / "model.safetensors").is_file() or not (folder / INDEX).is_file():
        return sorted(folder.glob("*.safetensors"))
    files = read_json(folder / INDEX).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ValueError(
            f"{folder / INDEX} has no weight_map; save the model again with save_pretrained"
        )
    names = list(files.values())
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
            rule = "they must be *.safetensors files in its own folder"
            raise ValueError(f"{folder / INDEX} takes weights from {name!r}; {rule}")
    found = [folder / name for name in sorted(set(names))]
    for file in found:
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is missing, which {INDEX} names; copy the whole folder"
            )
    return found


def _walk(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of nested settings with its value; an item of a list has the key of the list."""
    left = [("", data)]
    while left:
        key, data = left.pop()
        if isinstance(data, list):
            items = [(key, value) for value in data]
        else:  # {"": "eager", "text_config": "sdpa"} is an implementation for each part
            items = [
                (key if "implementation" in key else name, value) for name, value in data.items()
            ]
        yield from items
        left += [(key, value) for key, value in items if isinstance(value, list | dict)]


def _check_setting(file: Path, key: str, value: Any) -> None:
    if isinstance(value, dict | list) and value and key not in _CODE:
        return  # its parts are looked at
    bad = key in _CODE and value not in (None, False, {}, [])
    if "implementation" in key and key != "cache_implementation":
        bad = value not in _ATTENTION
    elif file.name != "tokenizer_config.json" and isinstance(value, str) and key not in _NAMES:
        bad = bad or "/" in value or "\\" in value
    if bad:
        what = f"{file} sets {key} to {value!r:.80}, which names code or files outside the folder"
        raise ValueError(
            f"{what}; turngym loads safetensors with the code of transformers alone: remove it"
        )
