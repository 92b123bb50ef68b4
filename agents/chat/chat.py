"""Token-exact chat: messages to token ids, never re-encoding what the model drew.

Invariant: a path's tokens are `prompt` + drawn tokens + `reply` + drawn tokens + …; control tokens come from the
template only, and what messages spell is text. For this the tokenizer is copied without its control tokens, which get
names that no text can spell; in the text, the template's control tokens are replaced by their names. Everything else,
spelled tokens included, is text by construction, whatever a normalizer makes of it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from ...envs import Message, TextEnv
from ...envs.question.env import QuestionEnv
from ...tools import FORMATS, Format
from ..models.folder import read_bytes, read_json
from .rendering import MarkedText, join, template_text
from .template import Template, TemplateError, special_tokens, token_text

_FIX = "put a template that can (for models that think: the training variant of theirs) into chat_template.jinja"
LARGEST = 1 << 27  # bytes of a tokenizer.json
KEPT = 512  # replies, as tokens
# A name is one of these, chosen so that the text does not hold it, and a letter for the token.
_BASES = [
    chr(code) for code in (0xF0000, 0x100000, *range(0xE000, 0xF900), *range(0xF0001, 0xFFFFE))
]
_LETTERS = 0x10000  # the first letter; it names a gap: nothing, which parts what stands around it
_GAP = -1
# Byte-level vocabularies write a byte as one of 256 printable characters (Radford et al. 2019, the code of GPT-2); the
# others write a space as ▁ and a byte without a character as <0xNN> (Kudo and Richardson, 1808.06226).
_PRINTED = [
    *range(0x21, 0x7F),
    *range(0xA1, 0xAD),
    *range(0xAE, 0x100),
]  # bytes that stand for themselves
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {
    chr(256 + i): byte for i, byte in enumerate(_OTHERS)
}
_STRANGE = "\U00013000\U0010ffff"  # characters that a vocabulary without a fallback does not know


class Chat:
    """A tokenizer with a chat template that is prefix-preserving.

    `opened` is the thought that the template leaves open where the policy begins to draw ("<think>\n"; mostly empty).
    `end` are the tokens `(n,)` with which the template ends a turn, the end token last, with blanks in front of it or
    none. `end_ids` holds that token. Both are empty if the template ends turns with plain text.

    Raises TemplateError where the template is not prefix-preserving, so that the tokens of a path would not be what the
    model saw, or where it writes control tokens in a way that cannot be told from a message's text.
    """

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer, self.template = tokenizer, template
        self.encoder = Encoder(tokenizer)
        template.check()
        self.opened = template.opened
        self.end = end_of_turn(self.encoder, template)
        self.end_ids = frozenset(self.end[-1:].tolist())
        self._replies: dict[str, NDArray[np.int32]] = {}
        for text in _calm(template):
            ours = [
                index for index in self.encoder.encode(text).tolist() if index in self.encoder.added
            ]
            found = tokenizer.encode(str.__str__(text), add_special_tokens=False).ids
            if ours != [index for index in found if index in self.encoder.added]:
                what = "that puts control tokens together from pieces that cannot be told from a message's text"
                fix = "write them out as strings in chat_template.jinja"
                raise TemplateError(f"{template.name} has a chat template {what}; {fix}")

    @classmethod
    def from_folder(cls, folder: str | Path, template: Path | None = None) -> Self:
        """Load `tokenizer.json`, the tokens that `tokenizer_config.json` adds, and the chat template of a model folder.

        `template` is a file that takes the place of the folder's own. Raises FileNotFoundError: a file is missing; the
        message says how to write it; ValueError: a file cannot be used, or the two disagree on a token's id.
        """
        folder = Path(folder)
        return cls(tokenizer_of(folder), Template.from_folder(folder, template))

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> NDArray[np.int32]:
        """Return the tokens `(n,)` that open an episode, up to where the policy starts to draw.

        What an assistant says in an opening is a worked example: its calls have the tokens that a policy would draw.
        """
        shown = [dict(message) for message in messages]
        for message in shown:
            if message["role"] == "assistant":
                message["content"] = self.encoder.drawn(message["content"])
        return self.encoder.encode(self.template.render(shown, tools, generate=True))

    def reply(self, messages: Sequence[Message], last: int | None) -> NDArray[np.int32]:
        """Return the tokens `(n,)` between a turn that the policy drew and its next one.

        They are the end of its turn (less its `last` token, if it drew that), the messages, and the next turn's start.
        """
        # Paths of a group hear the same again and again, and a template takes as long as a decode.
        if (tokens := self._replies.get(key := repr(messages))) is None:
            tokens = self.encoder.encode(self.template.after_turn(messages), inside=True)
            if len(self._replies) == KEPT:
                self._replies.clear()
            self._replies[key] = tokens
        if last in self.end_ids and len(ended := np.flatnonzero(tokens == last)):
            tokens = tokens[ended[0] + 1 :]
        return tokens.copy()

    def text(self, tokens: NDArray[np.int32], end_ids: frozenset[int]) -> str:
        """Return what the policy said, without the token that ended it; a thought that the template `opened` too."""
        ids = (
            tokens[:-1].tolist() if len(tokens) and int(tokens[-1]) in end_ids else tokens.tolist()
        )
        return self.opened + str(self.tokenizer.decode(ids, skip_special_tokens=False))


def end_of_turn(encoder: "Encoder", template: Template) -> NDArray[np.int32]:
    """Return the tokens `(n,)` with which a template ends a turn, its end token last.

    They are its first control token behind the content, and blanks in front of it; none where other text comes first.
    """
    tokens = encoder.encode(template.turn_end(), inside=True)
    for place, token in enumerate(tokens.tolist()):
        if token in encoder.control:
            return tokens[: place + 1]
        if str(encoder.tokenizer.decode([token], skip_special_tokens=False)).strip():
            break
    return tokens[:0]


def _calm(template: Template) -> Iterator[MarkedText]:
    """Yield what a template writes around messages that spell nothing, as far as it can."""
    ask, system = ({"role": role, "content": "turngym"} for role in ("user", "system"))
    tool = {
        "type": "function",
        "function": {"name": "turngym", "parameters": {"type": "object", "properties": {}}},
    }
    yield template.render([ask], generate=True) + template.turn_end()
    with suppress(TemplateError):
        yield template.render([system, ask], [tool], generate=True)
    for role in ("tool", "user"):
        with suppress(TemplateError):
            yield template.after_turn([{"role": role, "content": "turngym"}])


def check_fit(template: Template, env: TextEnv) -> None:
    """Check that `template` can carry episodes of `env` and show its tools. Raises TemplateError, with advice."""
    question = isinstance(env, QuestionEnv)
    plain: list[Message] = [{"role": "user", "content": "question"}]
    opening = env.with_examples(env.messages("question") if question else plain)
    try:
        template.render(opening, env.tool_schemas(), generate=True)
    except TemplateError as error:
        raise TemplateError(f"{error}; {_FIX}") from error
    if env.max_turns == 1:
        return
    calls = env if isinstance(env, QuestionEnv) and len(env.toolbox) else None
    if lacks := _lacks(template, opening, calls, calls.format if calls else None):
        styles = [
            style.name
            for style in FORMATS.values()
            if calls and not _lacks(template, opening, calls, style)
        ]
        way = (
            f"choose another call format: --option format={' or '.join(styles)}" if styles else _FIX
        )
        raise TemplateError(f"{template.name} has a chat template {lacks}; {way}")


def _lacks(
    template: Template, opening: Sequence[Message], env: QuestionEnv | None, style: Format | None
) -> str:
    """Return what a template lacks for the calls of `env` in a format; empty where nothing is missing."""
    roles, tools = {"user"}, list[dict[str, Any]]()
    if env is not None and style is not None:
        roles = {style.observe("", name)[0] for name in (None, *env.toolbox.tools)}
        tools = [*env.toolbox.schemas] if style.native else []
    for role in sorted(roles):
        if reason := template.refuses(role, opening, tools):
            return (
                f"that cannot carry the role {role!r} that this environment answers in ({reason})"
            )
    return (
        "that does not show tools to the model"
        if tools and not template.shows(tools, opening)
        else ""
    )


class Encoder:
    """Encodes marked text with a tokenizer.

    `added` holds the ids of all added tokens, `control` of those that are not text: the special ones and words. Added
    tokens for runs of blanks and single letters are text, and so is the token for unknown characters.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        bare = _copy(tokenizer)
        self._added = sorted(tokenizer.get_added_tokens_decoder().items())
        unknown = set(bare.encode(_STRANGE, add_special_tokens=False).ids)
        tokens = {
            i: token for i, token in self._added if i not in unknown and _is_control(bare, i, token)
        }
        self.added = frozenset(index for index, _ in self._added)
        self.control = frozenset(tokens)
        # A vocabulary may hold a control token as a word, which text can spell without any added token.
        self._leaky = frozenset(index for index in tokens if bare.id_to_token(index) is not None)
        self._letters = {
            token.content: chr(_LETTERS + i) for i, token in enumerate(tokens.values(), 1)
        }
        self._ids = dict(
            zip([chr(_LETTERS), *self._letters.values()], [_GAP, *tokens], strict=True)
        )
        # As in the tokenizer itself, what is sought before normalization is found first.
        groups = [
            [token.content for token in tokens.values() if token.normalized is flag]
            for flag in (False, True)
        ]
        longest_first = [
            map(re.escape, sorted(group, key=len, reverse=True)) for group in groups if group
        ]
        self._patterns = [re.compile("|".join(group)) for group in longest_first]
        self._named: dict[str, tuple[Tokenizer, dict[int, int]]] = {}
        words = [
            re.escape(token.content) for token in tokens.values() if not token.special
        ]  # such as <tool_call>
        self._words = re.compile(f"({'|'.join(words)})") if words else None

    def encode(self, text: MarkedText, *, inside: bool = False) -> NDArray[np.int32]:
        """Return ids `(n,)`; `inside` continues a text. Raises ValueError for a character that is a control token."""
        base = next(char for char in _BASES if char not in text)
        tokenizer, kept = self._named.get(base) or self._tokenizer(base)
        gap = base + chr(_LETTERS)
        named = (gap if inside else "") + self._name(text, base)
        while True:
            found = tokenizer.encode(named, add_special_tokens=False)
            places = (match.start() for match in re.finditer(base, named))
            meant = {found.char_to_token(at): self._ids[named[at + 1]] for at in places}
            ids = [meant.get(i, kept.get(index, index)) for i, index in enumerate(found.ids)]
            leaks = (i for i, index in enumerate(ids) if index in self._leaky and i not in meant)
            leak = next(leaks, None) if self._leaky else None
            if leak is None:
                return np.array([index for index in ids if index != _GAP], np.int32)
            named = self._break(named, *found.offsets[leak], gap)

    def drawn(self, text: str) -> MarkedText:
        """Mark the words of a text that a policy writes as tokens of their own; special tokens remain text."""
        parts = self._words.split(text) if self._words else [text]
        return join(template_text(part) if place % 2 else part for place, part in enumerate(parts))

    def _break(self, named: str, start: int, end: int, gap: str) -> str:
        if end - start > 1:
            return named[: start + 1] + gap + named[start + 1 :]
        normalizer = self.tokenizer.normalizer
        plain = (
            named[start:end]
            if normalizer is None
            else str(normalizer.normalize_str(named[start:end]))
        )
        if len(plain) < 2:
            raise ValueError(
                f"the tokenizer writes the character {named[start:end]!r} as a control token"
            )
        return named[:start] + plain + named[end:]

    def _name(self, text: MarkedText, base: str) -> str:
        plain, parts, at = str.__str__(text), [], 0
        for run in re.finditer("1+", text.marks):
            for found in _find(self._patterns, plain, run.start(), run.end()):
                parts += [plain[at : found.start()], base, self._letters[found[0]]]
                at = found.end()
        return "".join([*parts, plain[at:]])

    def _tokenizer(self, base: str) -> tuple[Tokenizer, dict[int, int]]:
        """Make and keep the tokenizer that knows the names of `base`, with what its ids of kept tokens stand for."""
        tokens = [AddedToken(base + chr(_LETTERS), normalized=False)]
        for index, token in self._added:
            text = base + self._letters[token.content] if index in self.control else token.content
            kept = (
                index not in self.control
            )  # else a name, found whatever stands next to it and whatever is normalized
            flags = {
                "single_word": kept and token.single_word,
                "normalized": kept and token.normalized,
            }
            tokens.append(AddedToken(text, lstrip=token.lstrip, rstrip=token.rstrip, **flags))
        tokenizer = _copy(self.tokenizer)
        tokenizer.add_tokens(tokens)
        texts = [
            (index, token.content) for index, token in self._added if index not in self.control
        ]
        self._named[base] = (
            tokenizer,
            {tokenizer.token_to_id(text) or 0: index for index, text in texts},
        )
        return self._named[base]


def tokenizer_of(folder: Path) -> Tokenizer:
    """Return the tokenizer of a model folder, with the tokens that its `tokenizer_config.json` adds.

    Raises FileNotFoundError where there is none, ValueError where a file cannot be used, or the two disagree.
    """
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.is_file():
        fix = "transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
        raise FileNotFoundError(
            f"{folder} has no tokenizer.json; save the model's tokenizer there: {fix}"
        )
    tokenizer = read_tokenizer(path)
    try:
        add_named_tokens(tokenizer, read_json(config) if config.is_file() else {})
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{config} names tokens in a way that cannot be read ({error!r}); save it again"
        ) from None
    return tokenizer


def read_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`; raises ValueError where it cannot be read, or is too large."""
    try:
        return Tokenizer.from_buffer(read_bytes(file, LARGEST))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # the library raises bare exceptions, and panics, which are none
        what = " ".join(str(error).split()).removeprefix(f"{file} ")
        raise ValueError(f"{file} is no tokenizer that can be used: {what:.200}") from None


def add_named_tokens(tokenizer: Tokenizer, config: Mapping[str, Any]) -> None:
    """Add the control tokens that a `tokenizer_config.json` names; ValueError where one would get another id there."""
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    listed = sorted(
        (int(index), entry) for index, entry in config.get("added_tokens_decoder", {}).items()
    )
    for index, entry in listed:
        text = entry["content"]
        if text in known:
            continue
        flags = {
            name: bool(entry.get(name, False))
            for name in ("lstrip", "rstrip", "single_word", "normalized")
        }
        add = tokenizer.add_special_tokens if entry.get("special") else tokenizer.add_tokens
        add([AddedToken(text, special=bool(entry.get("special")), **flags)])
        known.add(text)
        if tokenizer.token_to_id(text) != index:
            what = f"tokenizer_config.json gives the token {text!r} the id {index}, tokenizer.json gives it"
            raise ValueError(
                f"{what} {tokenizer.token_to_id(text)}; save the tokenizer again with save_pretrained"
            )
    lists = [
        config.get(name) or () for name in ("additional_special_tokens", "extra_special_tokens")
    ]
    more = [
        token_text(entry)
        for one in lists
        for entry in (one.values() if isinstance(one, Mapping) else one)
    ]
    named = [*special_tokens(config).values(), *filter(None, more)]
    tokenizer.add_special_tokens([text for text in dict.fromkeys(named) if text not in known])


def _is_control(bare: Tokenizer, index: int, token: AddedToken) -> bool:
    letter = len(token.content) == 1
    if letter and index in bare.encode(token.content, add_special_tokens=False).ids:
        return False
    return token.special or not (letter or not token.content.strip())


def _copy(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same model and no added tokens; the model itself is shared."""
    bare = Tokenizer(tokenizer.model)
    bare.normalizer, bare.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    return bare


def _find(
    patterns: Sequence[re.Pattern[str]], text: str, start: int, end: int
) -> Iterator[re.Match[str]]:
    if not patterns:
        return
    for found in patterns[0].finditer(text, start, end):
        yield from _find(patterns[1:], text, start, found.start())
        yield found
        start = found.end()
    yield from _find(patterns[1:], text, start, end)


def pieces(tokenizer: Tokenizer) -> list[bytes]:
    """Return the bytes of each token by its id; empty for an id that is no token."""
    decoder = tokenizer.decoder
    level = decoder is not None and b"ByteLevel" in decoder.__getstate__()
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    known = {
        index: text for text, index in tokenizer.get_vocab(with_added_tokens=True).items()
    } | added
    found = [b""] * (max(known, default=-1) + 1)
    for index, text in known.items():
        found[index] = text.encode() if index in added else _piece(text, level)
    return found


def vocabulary(tokenizer: Tokenizer) -> str:
    """Return the pieces as a JSON array of texts; a byte that is no UTF-8 is a lone surrogate (PEP 383)."""
    return (
        json.dumps([piece.decode("utf-8", "surrogateescape") for piece in pieces(tokenizer)]) + "\n"
    )


def _piece(text: str, level: bool) -> bytes:
    if level and all(char in _BYTES for char in text):
        return bytes(_BYTES[char] for char in text)
    if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", text):
        return bytes([int(byte[1], 16)])
    return text.replace("▁", " ").encode()
