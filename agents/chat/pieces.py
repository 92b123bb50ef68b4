"""The bytes that each token of a vocabulary stands for, so that a text can be cut where its tokens are.

Byte-level vocabularies write a byte as one of 256 printable characters (Radford et al. 2019, the code of GPT-2); the
others write a space as ▁ and a byte without a character as <0xNN> (Kudo and Richardson, 1808.06226).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = "vocabulary.json"  # of a run or an evaluation
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # bytes that stand for themselves
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


def pieces(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes of each token by its id; empty for an id that is no token."""
    decoder = tokenizer.decoder
    level = decoder is not None and b"ByteLevel" in decoder.__getstate__()
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    known = {index: text for text, index in tokenizer.get_vocab(with_added_tokens=True).items()} | added
    found = [b""] * (max(known, default=-1) + 1)
    for index, text in known.items():
        found[index] = text.encode() if index in added else _piece(text, level)
    return found


def vocabulary(tokenizer: Tokenizer) -> str:
    """Return the pieces as a JSON array of texts; a byte that is no UTF-8 is a lone surrogate (PEP 383)."""
    return json.dumps([piece.decode("utf-8", "surrogateescape") for piece in pieces(tokenizer)]) + "\n"


def _piece(text: str, level: bool) -> bytes:
    if level and all(char in _BYTES for char in text):
        return bytes(_BYTES[char] for char in text)
    if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", text):
        return bytes([int(byte[1], 16)])
    return text.replace("▁", " ").encode()
