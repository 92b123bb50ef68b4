"""Area `templates`: which chat templates are accepted, what their tokens say, and that no text makes control tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.agents.chat.template import Template
    from turngym.tests.verify.templates.tokenizers import Case

SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>"}
RECORDED = "1.16.0"
# What TRL's is_chat_template_prefix_preserving gives for the templates, by file name (".jinja" left out), with a
# tokenizer of one token a byte, so that the verdict is of the text. It raises where a template takes no tools' answers.
REWRITES = "phi3 phi3_5 phi3_5_training phi3_training qwen3 qwen3_nonthinking"
RAISES = (
    "cohere cohere_training gemma gemma_training gemma3 gemma3_training idefics3 idefics3_training llava_next "
    "llava_next_training"
)
PRESERVES = (
    "cohere2 cohere2_training deepseekv3 deepseekv3_training diffusion_gemma diffusion_gemma_training glm4moe "
    "glm4moe_training gptoss gptoss_training lfm2 lfm2_2_5 lfm2_training llama3 llama3_1 llama3_2 llama3_training "
    "nemotron_3_nano nemotron_3_nano_training nemotron_3_super nemotron_3_super_training nemotron_3_ultra "
    "nemotron_3_ultra_training qwen2_5 qwen2_5_training qwen2_5_vl qwen2_5_vl_training qwen3_5_nothink "
    "qwen3_5_nothink_training qwen3_5_think qwen3_5_think_training qwen3_6 qwen3_6_training qwen3_instruct_2507 "
    "qwen3_instruct_2507_training qwen3_training qwen3_vl qwen3_vl_training"
)
OTHERS = (
    "qwen_vl_tool_chat_template.jinja2 (verl)",
    "qwen3_acc_thinking.jinja2",
    "hermes chatml.j2",
)  # these preserve
TRL: dict[str, bool | None] = {
    **{f"{name}.jinja": True for name in PRESERVES.split()},
    **{f"{name}.jinja": False for name in REWRITES.split()},
    **{f"{name}.jinja": None for name in RAISES.split()},
    **dict.fromkeys(OTHERS, True),
}


@dataclass(frozen=True)
class Templates:
    """Chat templates of real models: verdicts, tokens along paths, and texts that try to be control tokens."""

    seed: int = 0
    """Keys all randomness."""
    data: Path = Path("../shared/data/tokenizer")
    """Folder of chat_templates.jsonl and the tokenizers' files."""
    mixtures: int = 200
    """Random mixtures of pieces of control tokens, a tokenizer."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the templates, then those of the tokenizers."""
        from turngym.agents.chat.template import Template
        from turngym.tests.verify.templates.encoding import TOOL, encoding_row
        from turngym.tests.verify.templates.tokenizers import odd, shipped

        sources = read_templates(self.data / "chat_templates.jsonl")
        templates = {name: Template(source, SPECIAL, name) for name, source in sources.items()}
        yield verdict_row(templates, *trl_verdicts(sources))
        yield refused_row(templates)
        yield from (encoding_row(sources, tools) for tools in ((), (TOOL,)))
        for case in (*shipped(self.data), *odd()):
            yield injection_row(case, self.mixtures, self.seed)


def read_templates(path: Path) -> dict[str, str]:
    """Return the templates of a JSONL file by name.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; name the folder of the chat templates with --data"
        )
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return {row["name"]: row["text"] for row in rows}


def verdict_row(
    templates: Mapping[str, Template], theirs: Mapping[str, bool | None], origin: str
) -> Row:
    """Count the templates of which turngym says what TRL says: preserves, rewrites, or takes no tools' answers."""
    wrong = [
        name
        for name, template in templates.items()
        if verdict(template) is not theirs.get(name, ...)
    ]
    counts = [sum(theirs.get(name) is kind for name in templates) for kind in (True, False, None)]
    note = _noted(
        first(wrong), f"{origin}: {counts[0]} preserve, {counts[1]} rewrite, {counts[2]} raise"
    )
    return Row(
        "templates: verdicts equal to TRL's", len(templates) - len(wrong), len(templates), note
    )


def verdict(template: Template) -> bool | None:
    """Return whether a tool's answer keeps what was before it; None where the template takes no tools' answers."""
    pair = template.answered_call()
    return None if pair is None else pair[1].startswith(pair[0])


def trl_verdicts(sources: Mapping[str, str]) -> tuple[Mapping[str, bool | None], str]:
    """Return TRL's verdicts and where they come from: from TRL itself where it is installed, else as recorded."""
    try:
        from trl import __version__
        from trl.chat_template_utils import is_chat_template_prefix_preserving
    except ModuleNotFoundError:
        return TRL, f"TRL {RECORDED} as recorded"
    from transformers import PreTrainedTokenizerFast

    from turngym.tests.verify.templates.tokenizers import letters

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters(), **SPECIAL)
    found: dict[str, bool | None] = {}
    for name, source in sources.items():
        tokenizer.chat_template = source
        try:
            found[name] = bool(is_chat_template_prefix_preserving(tokenizer))
        except Exception:
            found[name] = None
    return found, f"TRL {__version__} installed"


def refused_row(templates: Mapping[str, Template]) -> Row:
    """Count the templates that are accepted, or refused with the reason and the way out, as their verdict asks."""
    from turngym.agents.chat.template import TemplateError

    wrong, accepted = [], 0
    for name, template in templates.items():
        said = verdict(template)
        try:
            template.check()
            accepted += 1
            right = (
                said is True
                or bool(template.family)
                or (said is None and not template.refuses("user"))
            )
        except TemplateError as error:
            way = said is None or "put a training variant" in str(error)
            right = said is not True and way and str(error).startswith(name)
        wrong += [] if right else [name]
    note = _noted(first(wrong), f"{accepted} accepted, {len(templates) - accepted} refused")
    held = len(templates) - len(wrong)
    return Row("templates: accepted, or refused with the reason", held, len(templates), note)


def injection_row(case: Case, mixed: int, seed: int) -> Row:
    """Count the texts, in every place of a conversation, that bring no control token and are what was written."""
    from turngym.agents.chat.chat import Chat
    from turngym.agents.chat.template import Template
    from turngym.tests.verify.templates.injections import (
        PLACES,
        harm,
        look_alikes,
        mixtures,
        spellings,
    )
    from turngym.tests.verify.templates.tokenizers import names

    chat = Chat(case.tokenizer, Template(case.template, name=case.name))
    found = harm(chat, case.lossless)
    spelled = names(case.tokenizer)
    texts = [text for token in spelled for text in (*spellings(token), *look_alikes(token))]
    texts += mixtures(spelled, mixed, (seed, len(spelled)))
    harms = [said for text in texts for place in PLACES if (said := found(place, text))]
    total = len(texts) * len(PLACES)
    told = "; the tokens say what was written" if case.lossless else ""
    note = _noted(first(harms, 2), f"{len(spelled)} added tokens{told}")
    return Row(
        f"control tokens: none from text, tokenizer {case.name}", total - len(harms), total, note
    )


def _noted(*notes: str) -> str:
    return "; ".join(filter(None, notes))
