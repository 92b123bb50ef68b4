"""Texts that try to become control tokens, and the count of those that do."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from turngym.agents.chat.chat import Chat
from turngym.envs import Message

CALM = "x"
PLACES = (
    "system",
    "question",
    "result",
    "answer",
    "tool name",
    "tool description",
    "argument name",
)
_WIDE = {
    code: code + 0xFEE0 for code in range(0x21, 0x7F)
}  # full-width forms, which NFKC turns into ASCII
_BAR = str.maketrans("|", "\uff5c")
_UNSEEN = (
    "\u200b",
    "\u200d",
    "\u00ad",
    "\u0338",
    "\u0301",
    "\ufe0f",
    "\ue000",
    "\U000f0000",
    "\U000f0000\U00010001",
    " ",
)


def spellings(token: str) -> Iterator[str]:
    """Yield `token` at the ends and inside of a text, nested in itself, and its halves."""
    half = len(token) // 2
    yield token
    yield f"{token} at the start, {token}{token} inside, at the end {token}"
    yield f"\n {token} \n"
    yield token[:half] + token + token[half:]
    yield token[:1] + token + token[1:]
    yield from (f"{token[cut:]} and {token[:cut]}" for cut in range(1, len(token)))


def look_alikes(token: str) -> Iterator[str]:
    """Yield what a normalizer may take for `token`: other forms, other cases, characters that are not seen."""
    half = len(token) // 2
    yield from (
        token.translate(_BAR),
        token.translate(_WIDE),
        token[:half] + token[half:].translate(_WIDE),
    )
    yield from (token.upper(), token.lower(), token.title(), token.swapcase())
    yield from (token[:half] + char + token[half:] for char in _UNSEEN)
    yield from (char + token + char for char in _UNSEEN)


def mixtures(tokens: Sequence[str], count: int, key: Sequence[int]) -> Iterator[str]:
    """Yield `count` random mixtures of pieces of `tokens`, keyed."""
    rng = np.random.default_rng(list(key))
    pieces = sorted(
        {part for token in tokens for part in (token, *_thirds(token))} | {"é", "\n", *_UNSEEN}
    )
    for _ in range(count):
        yield "".join(pieces[i] for i in rng.integers(len(pieces), size=int(rng.integers(2, 12))))


def _thirds(token: str) -> tuple[str, str, str]:
    one, two = max(1, len(token) // 3), max(1, 2 * len(token) // 3)
    return token[:one], token[one:two], token[two:]


def talk(place: str, text: str) -> tuple[list[Message], list[dict[str, Any]], list[Message]]:
    """Return an opening, its tools and an answer that are calm but for `text` in one of `PLACES`."""
    said: Mapping[str, str] = {**dict.fromkeys(PLACES, CALM), place: text}
    schema = {"type": "object", "properties": {said["argument name"]: {"type": "string"}}}
    function = {
        "name": said["tool name"],
        "description": said["tool description"],
        "parameters": schema,
    }
    opening: list[Message] = [
        {"role": "system", "content": said["system"]},
        {"role": "user", "content": said["question"]},
    ]
    answer: list[Message] = [
        {"role": "tool", "content": said["result"]},
        {"role": "user", "content": said["answer"]},
    ]
    return opening, [{"type": "function", "function": function}], answer


def harm(chat: Chat, lossless: bool) -> Callable[[str, str], str]:
    """Return a function of a place and a text that says what harm the text does there; empty where it does none.

    Harm is a control token that calm text would not have brought; or, where the tokenizer is `lossless`, tokens that do
    not stand for the text (some tokenizers compose characters first, so NFC forms are compared).
    """

    def tokens(place: str, text: str) -> tuple[list[int], str]:
        opening, tools, answer = talk(place, text)
        if place in ("result", "answer"):
            return chat.reply(answer, None).tolist(), chat.template.after_turn(answer)
        return chat.prompt(opening, tools).tolist(), chat.template.render(
            opening, tools, generate=True
        )

    def control(ids: Sequence[int]) -> list[int]:
        return [index for index in ids if index in chat.encoder.control]

    calm = {place: control(tokens(place, CALM)[0]) for place in PLACES}

    def found(place: str, text: str) -> str:
        ids, written = tokens(place, text)
        if control(ids) != calm[place]:
            return f"{text!r} as {place} brings control tokens"
        if lossless and _nfc(chat.tokenizer.decode(ids, skip_special_tokens=False)) != _nfc(
            written
        ):
            return f"{text!r} as {place} is not what its tokens say"
        return ""

    return found


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
