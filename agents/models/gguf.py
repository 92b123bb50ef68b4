"""GGUF files: read within limits, and converted to a model folder.

A file is dequantised once, by transformers and to bfloat16, into a folder of the cache that is named by the file and
its sha256. The folder is written aside and renamed, so that it is whole or not there. It is used only while its files
have the checksums of its manifest.
"""

import json
import logging
import shutil
from contextlib import redirect_stderr, suppress
from functools import lru_cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...tools.progress import Progress
from ...tools.search.array_cache import cache_folder
from .folder import CONFIG, TEMPLATE_FILE, read_json, sha256_of
from .memory import GIB, free_bytes

log = logging.getLogger(__name__)
MANIFEST = "gguf.json"
SUFFIX = ".gguf"
ARCHITECTURES = ("llama", "qwen2", "qwen3")
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "llama-bpe": _WORDS % "{1,3}",
    "qwen2": _WORDS % "",
}  # how a text is cut before its pieces are merged
_PLAIN = ("default", "gpt-2", "smollm")


@lru_cache(maxsize=8)
def converted(file: Path) -> Path:
    """Return the model folder of a GGUF file, made on first use. Raises OSError, ModuleNotFoundError, ValueError."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; name a .gguf file, or a model folder")
    source = sha256_of(file)
    folder = cache_folder("models") / f"{file.stem}-{source[:16]}"
    if not folder.exists():
        fields, tensors = _read(file)
        sizes = [(tensor.tensor_type.name, int(tensor.n_elements)) for tensor in tensors]
        kinds = {kind: sum(size for other, size in sizes if other == kind) for kind, _ in sizes}
        stored = f"dequantised from {max(kinds, key=kinds.__getitem__)}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        needed, cache = 2 * sum(kinds.values()), folder.parent
        for what, free in (
            ("memory", free_bytes("cpu")),
            (f"disk of {cache}", shutil.disk_usage(cache).free),
        ):
            if free is not None and needed + (64 << 20) > free:
                lacks = (
                    f"takes {needed / GIB:.2f} GiB, and the {what} has {free / GIB:.2f} GiB free"
                )
                fix = "free some, or set XDG_CACHE_HOME to a folder on a larger disk"
                raise ValueError(f"the converted model {lacks}; {fix}")
        log.warning("converting %s, once, into %s; its weights are %s", file, folder, stored)
        with TemporaryDirectory(dir=folder.parent, prefix=".") as spare:
            made = Path(spare) / "model"
            made.mkdir()
            _convert(file, fields, len(tensors), made)
            files = {path.name: sha256_of(path) for path in sorted(made.iterdir())}
            about = {"file": file.name, "sha256": source, "weights": stored, "files": files}
            (made / MANIFEST).write_text(json.dumps(about, indent=1))
            with suppress(
                OSError
            ):  # another process may have been first: what counts is checked below
                made.rename(folder)
    try:
        manifest = read_json(folder / MANIFEST)
        files = manifest["files"]
        wrong = [name for name, digest in files.items() if sha256_of(folder / name) != digest]
        wrong += [MANIFEST] if manifest["sha256"] != source or CONFIG not in files else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder} is damaged ({error}); remove it, and it is made again"
        ) from None
    if wrong:
        raise ValueError(
            f"{folder} is damaged: {wrong[0]} is not what was written; remove it, and it is made again"
        )
    return folder


def _read(file: Path) -> tuple[dict[str, Any], list[Any]]:
    if find_spec("gguf") is None:
        raise ModuleNotFoundError(
            f"{file} needs the package gguf: pip install 'turngym[gguf]'", name="gguf"
        )
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        whole = all(
            tensor.data_offset + tensor.n_bytes <= file.stat().st_size for tensor in reader.tensors
        )
    except Exception as error:  # what a damaged file may be wrong in is without end
        why = f"{type(error).__name__}: {error!s:.200}"
        raise ValueError(f"{file} is no whole GGUF file ({why}); get it again") from None
    if not whole or not reader.tensors:
        raise ValueError(
            f"{file} is no whole GGUF file: it ends before its tensors do; get it again"
        )
    if (found := fields.get("general.architecture")) not in ARCHITECTURES:
        raise _refusal(
            file, f"has the architecture {found!r}; {', '.join(ARCHITECTURES)} can be converted"
        )
    if (
        fields.get("split.count", 1) > 1
        or fields.get(f"{found}.rope.scaling.type", "none") != "none"
    ):
        raise _refusal(
            file, "is a part of several, or scales its positions, which turngym does not convert"
        )
    layers = fields.get(f"{found}.block_count")
    if not isinstance(layers, int) or not 0 < layers <= len(reader.tensors):
        raise _refusal(file, f"sets {found}.block_count to {layers!r}")
    kind, cut = (fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if kind != "gpt2" or cut not in (None, *_PLAIN, *_SPLITS):
        known = ", ".join((*_PLAIN, *_SPLITS))
        raise _refusal(file, f"has the tokenizer {kind!r}, {cut!r}; gpt2 can be read, with {known}")
    template = fields.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template.strip():
        why = "it is a base model, or was saved without; take the instruct version"
        raise ValueError(f"{file} has no chat template: {why}")
    return fields, reader.tensors


def _refusal(file: Path, what: str) -> ValueError:
    return ValueError(
        f"{file} {what}; save the original model with save_pretrained and give its folder"
    )


def _convert(file: Path, fields: dict[str, Any], count: int, made: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from tokenizers import Regex, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    ids = {
        name: fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom")
    }
    ends = list(
        dict.fromkeys(ids[name] for name in ("eos", "eot", "eom") if isinstance(ids[name], int))
    )
    if not ends:
        raise _refusal(file, "names no token that ends a turn")
    told = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with (
            Progress("converting", text=file.name),
            redirect_stderr(StringIO()),
        ):  # its bars, of which some have no switch
            model = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.bfloat16
            )
            tokenizer = AutoTokenizer.from_pretrained(
                file.parent, gguf_file=file.name
            ).backend_tokenizer
    except Exception as error:  # what settings may be wrong in is without end
        what = " ".join(str(error).split())
        raise _refusal(
            file, f"cannot be converted ({type(error).__name__}: {what:.200})"
        ) from error
    finally:
        logging.set_verbosity(told)
    weights = model.state_dict()
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    if len(weights) != count:  # transformers passes over tensors that it does not know
        raise _refusal(file, f"has {count} tensors, and such a model has {len(weights)}")
    if wrong := next(
        (name for name, values in weights.items() if not values.isfinite().all()), None
    ):
        raise _refusal(file, f"holds numbers in {wrong} that are not finite")
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    config = model.config.to_dict() | {
        "architectures": [type(model).__name__],
        "eos_token_id": ends[0],
    }
    for name in ("quantization_config", "_model_name_or_path"):
        config.pop(name, None)
    cut = fields.get("tokenizer.ggml.pre")  # transformers does not read it
    first: list[Any] = [pre_tokenizers.Digits(True)] if cut == "smollm" else []
    first += [pre_tokenizers.Split(Regex(_SPLITS[cut]), "isolated")] if cut in _SPLITS else []
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut not in _SPLITS)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, last])
    tokenizer.save(str(made / "tokenizer.json"))
    tokens = fields["tokenizer.ggml.tokens"]
    named = {f"{name}_token": tokens[ids[name]] for name in ("bos", "eos") if ids[name] is not None}
    settings = {
        CONFIG: config,
        "generation_config.json": {"eos_token_id": ends, "bos_token_id": ids["bos"]},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **named},
    }
    for name, values in settings.items():
        (made / name).write_text(json.dumps(values, indent=1))
    (made / TEMPLATE_FILE).write_text(fields["tokenizer.chat_template"], "utf-8")
