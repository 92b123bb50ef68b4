"""A policy: a causal language model of `transformers`, LoRA weights on it that learn, and its tokenizer.

Only the LoRA weights ever change, so the model with its adapter switched off stays the reference. Nothing is taken from
a pickle or from a model's own code, and weights that a folder does not hold are refused instead of made up.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from ..tools.progress import Progress
from .chat.chat import Encoder, end_of_turn, read_tokenizer, tokenizer_of
from .chat.template import Template, TemplateError, special_tokens
from .cli.settings import LoraOptions, MachineOptions
from .models.folder import check_folder, header, model_folder, read_json
from .models.memory import check_fits
from .models.resolve import Source

ADAPTER = "default"


@dataclass(eq=False)
class Policy:
    """A model that acts and learns.

    `model` is what the learner calls (peft's wrapper, or the plain model without LoRA), `base` the `transformers` model
    with the LoRA layers in place. `version` counts weight updates; whoever changes the weights raises it. `end_ids` are
    the tokens that end a turn: the chat template's, and those that the files of the model name. How the learner
    computes: `checkpointing` keeps of each layer its input alone and computes the layer again in the backward pass,
    `compile` runs the layers through `torch.compile`.
    """

    model: Any
    base: Any
    tokenizer: Tokenizer
    folder: Path
    device: torch.device
    lora: LoraOptions | None
    end_ids: frozenset[int]
    version: int = 0
    checkpointing: bool = False
    compile: bool = False
    anchor: tuple[torch.Tensor, ...] = ()  # the LoRA weights of the reference; () is without any

    @cached_property
    def max_context(self) -> int:
        """The most positions the model knows (tokens)."""
        return int(self.base.config.max_position_embeddings)

    @cached_property
    def vocabulary(self) -> int:
        """Rows of the embedding: token ids are below this."""
        return int(self.base.get_input_embeddings().weight.shape[0])

    def trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """The LoRA matrices by name, sorted; empty without LoRA."""
        names = dict(self.model.named_parameters())
        return {name: names[name] for name in sorted(names) if "lora_" in name}

    def save_adapter(self, folder: Path) -> None:
        """Write `adapter_model.safetensors` and `adapter_config.json` as peft and vLLM read them."""
        if self.lora is None:
            raise ValueError(
                f"the policy {self.folder} has no LoRA weights to save; load it with LoraOptions"
            )
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            _peft_name(name): p.detach().cpu().contiguous()
            for name, p in self.trainable_parameters().items()
        }
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = {**self.model.peft_config[ADAPTER].to_dict(), "inference_mode": True}
        text = json.dumps(config, indent=2, sort_keys=True, default=sorted)
        (folder / "adapter_config.json").write_text(text + "\n", encoding="utf-8")

    @torch.no_grad()
    def load_adapter(self, folder: Path) -> None:
        """Read weights that `save_adapter` wrote into this policy's adapter.

        Raises FileNotFoundError where a file is missing, ValueError where rank, alpha, layers, shapes or types differ.
        """
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder} has no {name}; name a folder that holds a saved adapter"
                )
        saved = read_json(folder / "adapter_config.json")
        rank, alpha = saved.get("r"), saved.get("lora_alpha")
        if self.lora is None or (rank, alpha) != (self.lora.rank, self.lora.alpha):
            what = f"{folder} holds LoRA weights of rank {rank}, alpha {alpha}, but the policy has {self.lora}"
            raise ValueError(f"{what}; load the policy with the same LoraOptions")
        header(folder / "adapter_model.safetensors")  # a damaged file is named
        tensors = load_file(folder / "adapter_model.safetensors")
        mine = {_peft_name(name): p for name, p in self.trainable_parameters().items()}
        kinds = [
            {name: (one.shape, one.dtype) for name, one in some.items()} for some in (mine, tensors)
        ]
        if differing := sorted({name for name, _ in kinds[0].items() ^ kinds[1].items()}):
            what = f"{folder} does not fit: {len(differing)} LoRA matrices differ, the first is {differing[0]}"
            raise ValueError(
                f"{what}; load the policy from the same model with the same LoraOptions"
            )
        for name, parameter in mine.items():
            parameter.copy_(tensors[name])

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the model answers as it was before learning, or when the reference was last reset."""
        if not self.anchor:
            with nullcontext() if self.lora is None else self.model.disable_adapter():
                yield
            return
        parameters = self.trainable_parameters().values()
        now = [parameter.data for parameter in parameters]
        try:
            for parameter, then in zip(parameters, self.anchor):
                parameter.data = then
            yield
        finally:
            for parameter, current in zip(parameters, now):
                parameter.data = current

    def reset_reference(self) -> None:
        self.anchor = tuple(
            parameter.detach().clone() for parameter in self.trainable_parameters().values()
        )


def load_policy(
    source: Source | str | Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    lora: LoraOptions | None = None,
    threads: int | None = None,
    seed: int = 0,
    checkpointing: bool = False,
    compile: bool = False,
) -> Policy:
    """Load a source, a model folder, or a model of the Hugging Face hub by name, and put LoRA on it.

    The adapter of a source keeps its own rank, alpha, targets and type.

    `lora` gives low-rank updates `alpha / rank · B A` of linear layers (Hu et al. 2021, §4.1). By default the output
    head has one too: without it small policies hardly learn. Of a head that shares its matrix with the embedding only
    the head's output is adapted. `dtype` is that of the frozen weights ("float32", "bfloat16"). `threads` fixes torch's
    CPU threads for the process; `seed` determines the LoRA start (the update is 0 there). `checkpointing` and `compile`
    are those of `Policy`. Weights go to the device one by one, in their own type: the host holds no copy. Raises
    ValueError: an unknown device or dtype, a model that does not fit what is asked, or not into memory;
    FileNotFoundError: the folder or one of its files is missing.
    """
    MachineOptions(device, dtype, 1 if threads is None else threads).check()
    try:
        where = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {device!r} is not usable on this machine ({error}); use 'cpu'"
        ) from error
    if threads is not None:
        torch.set_num_threads(threads)
    source = source if isinstance(source, Source) else Source(model_folder(source))
    check_folder(folder := source.folder)
    lora = source.lora() or lora
    if lora is not None:
        lora.check()
    check_fits(folder, dtype, device, lora=lora)
    with Progress("loading the policy", text=str(folder)):
        base = _load_model(folder, getattr(torch, dtype), where)
    model = base if lora is None else _with_lora(base, lora, seed)
    model = model.to(where).eval()
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    ends = _named_ends(folder, base, tokenizer) | _template_ends(source, tokenizer)
    if not ends:
        raise ValueError(
            f"{folder} names no token that ends a turn; set eos_token_id in its generation_config.json"
        )
    policy = Policy(
        model,
        base,
        tokenizer,
        folder,
        where,
        lora,
        ends,
        checkpointing=checkpointing,
        compile=compile,
    )
    if source.adapter is not None:
        policy.load_adapter(source.adapter)
    return policy


def _peft_name(name: str) -> str:
    return name.replace(f".{ADAPTER}.", ".")


def _load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        alone = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        base, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map={"": device},
            attn_implementation="eager",
            output_loading_info=True,
            **alone,
        )
    except Exception as error:  # what a config may be wrong in is without end
        what = " ".join(str(error).split())
        raise ValueError(
            f"{folder} cannot be loaded ({type(error).__name__}: {what:.300}); save it again"
        ) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ValueError(
            f"{folder} lacks {len(missing)} of the model's weights, first {missing[0]}; save it whole"
        )
    return base.requires_grad_(False)


def _with_lora(base: Any, lora: LoraOptions, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    linear = {
        name.rsplit(".", 1)[-1]
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    targets = set(lora.targets) or linear
    if unknown := sorted(targets - linear):
        raise ValueError(
            f"targets name {unknown[0]!r}, which is no linear layer of the model; it has {sorted(linear)}"
        )
    shape = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": sorted(targets)}
    config = LoraConfig(**shape, lora_dropout=0.0, task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A tied head is meant to be adapted without the embedding: only the head's output changes.
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`")
        torch.manual_seed(seed)
        model = get_peft_model(base, config, adapter_name=ADAPTER)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(getattr(torch, lora.lora_dtype))
    return model


def _named_ends(folder: Path, base: Any, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of end tokens that a model's files name, and ChatML's.

    Those are of its generation config, its config and its tokenizer. Raises ValueError where one is no token's id.
    """
    ids = set[int]()
    config = read_json(
        folder / "config.json"
    )  # the file, as the class of a config has an end token of its own
    for eos in (base.generation_config.eos_token_id, config.get("eos_token_id")):
        named = [eos] if isinstance(eos, int) else list(eos or ())
        if not all(isinstance(index, int) for index in named):
            raise ValueError(
                f"{folder} has the eos_token_id {eos!r:.80}; it must be a token's id, or a list of ids"
            )
        ids.update(named)
    settings = folder / "tokenizer_config.json"
    names = [
        "<|im_end|>",
        special_tokens(read_json(settings) if settings.is_file() else {}).get("eos_token", ""),
    ]
    return frozenset(ids | {i for name in names if (i := tokenizer.token_to_id(name)) is not None})


def _template_ends(source: Source, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the id of the token with which the chat template ends a turn.

    Empty where it ends turns with plain text, or with a token that the model does not have, and where no conversation
    can be held: whoever tries is told why.
    """
    try:
        template = Template.from_folder(source.folder, source.template)
        end = end_of_turn(Encoder(tokenizer_of(source.folder)), template)
    except (FileNotFoundError, TemplateError):
        return frozenset()
    settings = source.folder / "tokenizer_config.json"
    listed = read_json(settings).get("added_tokens_decoder", {}) if settings.is_file() else {}
    known = (
        index
        for index in end[-1:].tolist()
        if tokenizer.id_to_token(index) is not None or str(index) in listed
    )
    return frozenset(known)
