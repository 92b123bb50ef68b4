"""A tokenizer of one's own: a byte-level BPE trained on an environment's texts, with a plain ChatML template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PAD, START, END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{%- if loop.first and tools %}{{- '\\nTools:' }}"
    "{%- for tool in tools %}{{- ' ' + tool.function.name }}{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


WORDS = r"\d| ?[a-z]+|[A-Z][A-Za-z]*| ?[^\sA-Za-z\d]+|\s+"
"""A word with a capital has the same tokens with a blank in front and without: a name can be copied to any place."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, fixed: Sequence[str] = (), words: str = WORDS) -> Tokenizer:
    """Train a BPE of at most `vocabulary` tokens on `texts`: digits are single tokens, `words` do not merge.

    Each of `fixed` (long texts that the agent says again and again) becomes a token of its own. Any text can be
    encoded: the alphabet holds all bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL) - len(fixed),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_without(text, fixed) for text in texts], trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in fixed])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, with the template, for a model of `context` positions."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": context,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _without(text: str, fixed: Sequence[str]) -> str:
    for part in fixed:
        text = text.replace(part, "")
    return text
