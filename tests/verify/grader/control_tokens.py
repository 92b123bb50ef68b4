"""Tokenizers in which a text could spell control tokens, if it were allowed to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tokenizers import AddedToken, Tokenizer

from turngym.agents.models.resolve import TINY
from turngym.tests.verify.templates.tokenizers import letters

_SPELLED = re.compile(r"<[|｜][^<>|｜\s]{1,64}[|｜]>|</?[a-z_]{1,32}>")
_KNOWN = (
    "<|endoftext|> <|im_start|> <|im_end|> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> "
    "<|eom_id|> <|python_tag|> <tool_call> </tool_call> <tool_response> </tool_response> <think> </think> <s> </s>"
)


def tokenizers(texts: Sequence[str]) -> Iterator[Tokenizer]:
    """Yield the tokenizer of the tiny policy, and one that has every control token which the texts spell."""
    yield Tokenizer.from_file(str(TINY / "tokenizer.json"))
    spelled = [token for text in texts for token in _SPELLED.findall(text)]
    names = dict.fromkeys([*_KNOWN.split(), *spelled])
    yield letters(*(AddedToken(name, special=True, normalized=False) for name in names))
