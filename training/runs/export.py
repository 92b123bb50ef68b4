"""`turngym export`: what a run has learned, as a folder that peft, transformers and vLLM load, with a model card.

The folder has a name only once it is complete. The base model's weights are copied with `merged` alone.
"""

import json
import os
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from ...agents.evaluation.scores import Interval
from ...agents.journal.checkpoint import latest
from ...agents.journal.trees import make_writable_folder
from ...agents.models.folder import CONFIG, TEMPLATE_FILE, read_json
from ...agents.models.resolve import Source, find
from .config import TrainConfig, from_run, recorded
from .folder import SUMMARY, read_boundary

PACKAGES = ("torch", "transformers", "peft", "safetensors")
ORIGIN = "gguf.json"  # of a model that turngym converted: from which file, and how that stored its numbers


@dataclass(frozen=True)
class PreparedExport:
    """A checked export."""

    run: Path
    out: Path
    source: Source
    config: TrainConfig
    steps: int  # of the checkpoint
    merged: bool


def prepare(run: Path, out: Path, merged: bool) -> PreparedExport:
    """Check all that can be wrong. Raises FileNotFoundError, CheckpointError, or FileExistsError: `out` is there."""
    config = from_run(run, allowed=None)
    if os.path.lexists(out):
        raise FileExistsError(f"{out} is there already; choose another folder with --out")
    checkpoint = latest(run / "checkpoints", check=read_boundary)
    if checkpoint is None:
        raise FileNotFoundError(
            f"{run} has no checkpoint to export; resume it: turngym train --out {run} --resume"
        )
    try:
        source = find(run)
    except FileNotFoundError as error:
        what = f"{run} was trained from the policy {config.policy!r}, which is missing"
        raise FileNotFoundError(f"{what}: {error}") from None
    return PreparedExport(run, out, source, config, read_boundary(checkpoint).step, merged)


def execute(export: PreparedExport) -> Path:
    from ...agents.chat.serving import served

    make_writable_folder(export.out.parent)
    temporary = Path(mkdtemp(prefix=f".{export.out.name}.", dir=export.out.parent))
    try:
        (_merge if export.merged else _adapt)(export, temporary)
        for file in (
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            TEMPLATE_FILE,
        ):
            if (export.source.folder / file).is_file():
                shutil.copy(export.source.folder / file, temporary)
        if (template := served(export.source)) is not None and template.differences:
            (temporary / TEMPLATE_FILE).write_text(template.source, encoding="utf-8")
            _drop_template(temporary / "tokenizer_config.json")
        (temporary / "README.md").write_text(card(export), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(export.out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return export.out


def _drop_template(config: Path) -> None:
    """Take the base's chat template out of a tokenizer's config, so that no program reads it in place of the file."""
    if config.is_file() and "chat_template" in (settings := read_json(config)):
        settings.pop("chat_template")
        config.write_text(
            json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def about_template(source: Source) -> list[str]:
    """Return how the exported chat template differs from the base's, and which end a server must be told of."""
    from ...agents.chat.chat import Chat
    from ...agents.chat.serving import served

    if (template := served(source)) is None:
        return ["the base model has none"]
    about = list(template.differences) or ["the base model's"]
    chat = Chat.from_folder(source.folder, source.template)
    for index in chat.end_ids - _named_ends(source.folder):
        end = chat.tokenizer.decode([index], skip_special_tokens=False)
        about.append(
            f"turns end with {end}, which the base's generation config does not name: stop at token {index}"
        )
    return about


def _named_ends(folder: Path) -> frozenset[int]:
    """Return the ids of end tokens that a server reads from a model's files."""
    for name in ("generation_config.json", CONFIG):
        if (folder / name).is_file() and (
            eos := read_json(folder / name).get("eos_token_id")
        ) is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()


def _adapt(export: PreparedExport, folder: Path) -> None:
    assert export.source.adapter is not None
    for file in sorted(export.source.adapter.iterdir()):
        shutil.copy(file, folder)
    config = read_json(folder / "adapter_config.json") | {
        "base_model_name_or_path": base_of(export)
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _merge(export: PreparedExport, folder: Path) -> None:
    """Write the model with the LoRA update in its weights, in the type that the run computed with."""
    import torch
    from transformers.utils import logging

    from ...agents.chat.chat import Chat
    from ...agents.policy import load_policy

    policy = load_policy(export.source, dtype=export.config.machine.dtype)
    head = getattr(policy.base.get_output_embeddings(), "base_layer", None)
    if head is not None and head.weight is policy.base.get_input_embeddings().weight:
        head.weight = torch.nn.Parameter(
            head.weight.detach().clone(), requires_grad=False
        )  # the update is the head's
        policy.base.config.tie_word_embeddings = False
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        if Chat.from_folder(export.source.folder, export.source.template).end_ids - _named_ends(
            export.source.folder
        ):
            policy.base.generation_config.eos_token_id = sorted(
                policy.end_ids
            )  # a server reads them there
        policy.model.merge_and_unload().save_pretrained(folder)
    finally:
        if bars:
            logging.enable_progress_bar()


def base_of(export: PreparedExport) -> str:
    """Return what the adapter belongs to: the model's name on the hub, or its folder."""
    name = export.config.policy
    return (
        name if not Path(name).expanduser().exists() and "/" in name else str(export.source.folder)
    )


def card(export: PreparedExport) -> str:
    config, record, base = export.config, recorded(export.run), base_of(export)
    origin = export.source.folder / ORIGIN
    about = read_json(origin).get("weights") if origin.is_file() else None
    lora = export.source.lora() or config.lora
    kind = (
        "model, with its LoRA update merged" if export.merged else "LoRA adapter in peft's format"
    )
    options = {**config.environment.kwargs(), **(record.get("fitted") or {})}
    rows = {
        "base model": f"{base}{f' ({about})' if about else ''}",
        "environment": f"{config.env}{''.join(f', {name}={value}' for name, value in options.items())}",
        "method": config.method,
        "steps": f"{export.steps}, each of {config.prompts} tasks with {config.group} episodes",
        "learning rate": f"{config.lr:g}, falling to {config.schedule.lr_end:g} of it",
        "LoRA": f"rank {lora.rank}, alpha {lora.alpha:g}, on {' '.join(lora.targets)}",
        "sampling": f"temperature {config.sampling.temperature:g}, {config.sampling.max_tokens} tokens a turn",
        "chat template": "; ".join(about_template(export.source)),
        "seed": str(config.seed)
        + (" (rewards were shuffled: a control experiment)" if config.shuffle_rewards else ""),
        "versions": f"turngym {record.get('version', 'unknown')} ({record.get('revision', 'unknown')}), exported with "
        + ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }
    front = [
        "---",
        f"base_model: {json.dumps(base)}",
        "tags: [turngym, reinforcement-learning, lora]",
    ]
    front += [f"library_name: {'transformers' if export.merged else 'peft'}", "---"]
    cells = {name: " ".join(text.split()).replace("|", "\\|") for name, text in rows.items()}
    table = ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in cells.items())]
    title = f"# {export.run.resolve().name}: a {kind}"
    loads = ["```python", "from transformers import AutoModelForCausalLM"]
    model = f"AutoModelForCausalLM.from_pretrained({'FOLDER' if export.merged else repr(base)})"
    loads += [] if export.merged else ["from peft import PeftModel"]
    loads += [
        "",
        f"model = {model if export.merged else f'PeftModel.from_pretrained({model}, FOLDER)'}",
        "```",
    ]
    return "\n".join([*front, "", title, "", *table, "", *_measured(export.run), "", *loads, ""])


def _measured(run: Path) -> list[str]:
    file = run / SUMMARY
    if not os.path.lexists(file):
        return ["The run has not ended, so there are no figures of it."]
    lines = ["| held-out success (95 %) | step | episodes |", "|---|---|---|"]
    summary = read_json(file, follow=False)
    for name, step in (("before", 0), ("after", summary["steps"])):
        found = summary[name]
        success = Interval(found["success"], found["low"], found["high"])
        lines.append(f"| {name}: {success} | {step} | {found['episodes']} |")
    return lines
