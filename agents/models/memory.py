"""What a model needs in memory, read from the small files of its folder before torch is imported.

What is added up is what the engine and the learner of turngym keep of a dense decoder. The parts that torch chooses by
itself (workspaces of matrix products, what an allocator keeps of freed blocks) are in none of the formulas;
`benchmarks/memory.py` measures how much that is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from ..cli.settings import LoraOptions
from .folder import CONFIG, INDEX, STORED, header, read_json

BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}  # of a number
GIB = 1 << 30
CHUNK = 1 << 24  # logits that an adapted head computes at a time: `CHUNK_ELEMENTS` of the learner's
LOGITS = 7  # tensors of that size while they are computed again, in float32
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


class TooLarge(ValueError):
    """A model does not fit into the memory that is free."""


@dataclass(frozen=True)
class Needed:
    """Bytes that a policy takes before its first forward pass, and those of a training step where one is given."""

    weights: int  # frozen
    lora: int
    optimizer: int  # gradient and both moments of the LoRA weights
    cache: int = 0  # keys and values
    copy: int = 0  # the weights of the embedded engine, which have the LoRA update in them
    merging: int = 0  # the largest matrix once more, while it gets its update
    activations: int = 0  # what the learner's layers keep of a forward pass
    logits: int = 0  # of a chunk of tokens, with their gradient

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@dataclass(frozen=True)
class Load:
    """A training step: the tokens of the learner's largest forward pass, those of them that were drawn, and how."""

    tokens: int
    drawn: int
    checkpointing: bool = False
    copied: bool = True  # by the embedded engine


def check_fits(
    folder: Path,
    dtype: str,
    device: str = "cpu",
    *,
    lora: LoraOptions | None = None,
    context: int = 0,
) -> Needed:
    """Return what a policy of the model in `folder` takes on `device`, if that is free.

    What forward and backward passes take comes on top; it depends on the tokens of a micro-batch. Of the folder
    `config.json` is read, and the headers of the weights or their index. Of devices other than "cpu" and "cuda" nothing
    is known, and all fits. `context` is the tokens whose keys and values are kept. Raises TooLarge where it does not
    fit; the message has the numbers.
    """
    takes = needed(read_config(folder), parameters(folder), dtype, lora, context)
    there = free_bytes(device)
    if there is not None and takes.total > there:
        smaller = (", dtype bfloat16" if dtype == "float32" else "") + (
            ", a shorter context" if context else ""
        )
        kept = (
            f", {takes.cache / GIB:.2f} GiB of keys and values for {context} tokens"
            if context
            else ""
        )
        parts = f"{takes.weights / GIB:.1f} GiB of weights in {dtype}, {takes.lora / GIB:.2f} GiB of LoRA weights{kept}"
        parts += f" and {takes.optimizer / GIB:.2f} GiB for their optimizer need {takes.total / GIB:.1f} GiB"
        fix = f"use a smaller model{smaller} or a larger device"
        raise TooLarge(
            f"{folder} does not fit: {parts}; {device} has {there / GIB:.1f} GiB free; {fix}"
        )
    return takes


def needed(
    config: Mapping[str, Any],
    count: int,
    dtype: str,
    lora: LoraOptions | None,
    context: int,
    work: Load | None = None,
) -> Needed:
    """Return what a policy of `count` parameters takes; the arguments are those of `check_fits`."""
    size, learned, shapes = BYTES[dtype], 0, linear_shapes(config)
    if lora is not None:
        sizes = (sum(shape) for name, shape in shapes if not lora.targets or name in lora.targets)
        learned = BYTES[lora.lora_dtype] * lora.rank * sum(sizes)
    cached = (
        2 * int(config["num_hidden_layers"]) * _heads(config)[1] * size if context else 0
    )  # of a token
    found = Needed(count * size, learned, 3 * learned, context * cached)
    if work is None:
        return found
    width, layers, vocabulary = (
        int(config[name]) for name in ("hidden_size", "num_hidden_layers", "vocab_size")
    )
    layer, rows = _kept(config, dtype, lora), min(work.drawn, max(CHUNK // vocabulary, 1))
    adapts_head = lora is not None and (not lora.targets or "lm_head" in lora.targets)
    return replace(
        found,
        copy=size * sum(prod(shape) for _, shape in shapes) if work.copied else 0,
        merging=BYTES["float32"] * width * max(vocabulary, 2 * _inner(config))
        if work.copied
        else 0,
        activations=work.tokens
        * (size * width * layers + layer if work.checkpointing else layer * layers),
        logits=LOGITS * rows * vocabulary * BYTES["float32"] if adapts_head else 0,
    )


def _kept(config: Mapping[str, Any], dtype: str, lora: LoraOptions | None) -> int:
    """Return the bytes that a layer keeps of a token for its backward pass.

    The inputs of both halves and what their norms make of them; queries, what attention gives, twice, and keys and
    values, once more as copies for the paths that see them; gate, up, and what the one makes of the other. In half
    precision norms compute in float32, and LoRA in float32 takes a copy of each layer's input.
    """
    width, (own, shared), inner = int(config["hidden_size"]), _heads(config), _inner(config)
    low = 0 if lora is None else 7 * BYTES["float32"] * lora.rank
    if dtype == "float32":
        return BYTES[dtype] * (4 * width + 3 * own + 4 * shared + 4 * inner) + low
    attended = BYTES[dtype] * (2 * own + 4 * shared + 3 * inner)
    copies = (
        BYTES["float32"] * (5 * width + own + inner)
        if lora is None or lora.lora_dtype == "float32"
        else 0
    )
    return (
        attended
        + low
        + BYTES["float32"] * 2 * width
        + (copies or BYTES[dtype] * (2 * width + own + inner))
    )


def parameters(folder: Path) -> int:
    """Return how many numbers the weights in `folder` hold, without reading them.

    Where there are neither safetensors nor an index of them, it is what the config of a dense decoder comes to. Raises
    FileNotFoundError where there is nothing of that.
    """
    if (index := folder / INDEX).is_file():
        about = read_json(index).get("metadata")
        count, size = (
            about.get(f"total_{of}") if isinstance(about, dict) else None
            for of in ("parameters", "size")
        )
        if isinstance(count, int):
            return count
        if isinstance(size, int):
            config = read_config(folder)
            return size // BYTES.get(str(config.get("dtype", config.get("torch_dtype"))), 4)
    files = sorted(folder.glob("*.safetensors"))
    if not files and (folder / CONFIG).is_file() and (count := count_of(read_config(folder))):
        return count
    if not files:
        raise FileNotFoundError(
            f"{folder} has neither *.safetensors nor their index; save it with save_pretrained"
        )
    return sum(
        prod(entry["shape"])
        for file in files
        for entry in header(file).values()
        if entry["dtype"] in STORED
    )


def count_of(config: Mapping[str, Any]) -> int:
    """Return how many numbers the weights of a dense decoder hold; 0 where the config is of something else."""
    if not (shapes := linear_shapes(config)):
        return 0
    width, layers, (own, shared) = (
        int(config["hidden_size"]),
        int(config["num_hidden_layers"]),
        _heads(config),
    )
    kind, vectors = config.get("model_type"), 2 * width
    if config.get("attention_bias", kind == "qwen2"):
        vectors += own + 2 * shared
    if kind == "qwen3":
        vectors += 2 * int(config.get("head_dim") or width // int(config["num_attention_heads"]))
    embeddings = 0 if config.get("tie_word_embeddings") else int(config["vocab_size"]) * width
    return (
        sum(inputs * outputs for _, (inputs, outputs) in shapes)
        + embeddings
        + layers * vectors
        + width
    )


def _inner(config: Mapping[str, Any]) -> int:
    return int(config.get("intermediate_size") or 4 * int(config["hidden_size"]))


def _heads(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the outputs of all queries' heads of a layer, and of its keys' heads."""
    heads = int(config["num_attention_heads"])
    of_head = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    return heads * of_head, int(config.get("num_key_value_heads") or heads) * of_head


def linear_shapes(config: Mapping[str, Any]) -> list[tuple[str, tuple[int, int]]]:
    """Return name and (inputs, outputs) of every linear layer of a dense decoder, the head included; none of others."""
    if (
        not {"hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}
        <= config.keys()
    ):
        return []
    width, (own, shared), inner = int(config["hidden_size"]), _heads(config), _inner(config)
    outputs = {
        "q_proj": own,
        "k_proj": shared,
        "v_proj": shared,
        "gate_proj": inner,
        "up_proj": inner,
    }
    layer = [(name, (width, size)) for name, size in outputs.items()]
    layer += [("o_proj", (own, width)), ("down_proj", (inner, width))]
    return [
        *layer * int(config["num_hidden_layers"]),
        ("lm_head", (width, int(config["vocab_size"]))),
    ]


def read_config(folder: Path) -> dict[str, Any]:
    """Return the `config.json` of a (language) model. Raises FileNotFoundError where there is none."""
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} has no config.json, so it is no model folder")
    config = read_json(folder / CONFIG)
    inner = config.get("text_config")
    return {**config, **(inner if isinstance(inner, dict) else {})}


def free_bytes(device: str = "cpu") -> int | None:
    """Return how much memory `device` has free, on the host within the limits of the container; None if unknown."""
    kind = device.split(":")[0]
    if kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    if kind != "cpu" or not _MEMINFO.is_file():
        return None
    line = next(
        line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable")
    )
    return min([int(line.split()[1]) << 10, *_within_limits()])


def _within_limits() -> list[int]:
    """Return what the container's limit leaves; files that the kernel keeps in memory can be given up."""
    limit, used, about = (_CGROUP / f"memory.{name}" for name in ("max", "current", "stat"))
    if (
        not (limit.is_file() and used.is_file() and about.is_file())
        or limit.read_text().strip() == "max"
    ):
        return []
    kept = dict(line.split() for line in about.read_text().splitlines()).get("inactive_file", 0)
    return [int(limit.read_text()) - int(used.read_text()) + int(kept)]
