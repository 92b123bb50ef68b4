"""Text to token ids, where control tokens come only from what the chat template wrote.

The tokenizer is copied without its control tokens, which get names that no text can spell; in the text, the template's
control tokens are replaced by their names. Everything else, spelled tokens included, is text by construction, whatever
a normalizer makes of it.

Jinja builds a conversation from strings of the template and strings of the messages. Here the template's strings are
`MarkedText`, and what jinja makes of them by joining, cutting and trimming stays `MarkedText`; any other operation
gives a plain `str`, whose characters count as a message's. A control token is the template's only where every character
of it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import jinja2
import numpy as np
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from ..model_folder import read_bytes
from .limits import LimitedEnvironment, each, kept, limited

LARGEST = 1 << 27  # bytes of a tokenizer.json

_TEMPLATE, _MESSAGE = "1", "0"
# A name is one of these, chosen so that the text does not hold it, and a letter for the token.
_BASES = [chr(code) for code in (0xF0000, 0x100000, *range(0xE000, 0xF900), *range(0xF0001, 0xFFFFE))]
_LETTERS = 0x10000  # the first letter; it names a gap: nothing, which parts what stands around it
_GAP = -1
_STRANGE = "\U00013000\U0010ffff"  # characters that a vocabulary without a fallback does not know


class MarkedText(str):
    """A string with `marks`, a string of the same length: "1" where the template wrote the character, else "0"."""

    __slots__ = ("marks",)
    marks: str

    def __new__(cls, text: str = "", marks: str | None = None) -> MarkedText:
        """Return `text`, the template's where `marks` says so; without it, a message's."""
        made = super().__new__(cls, text)
        made.marks = _MESSAGE * len(text) if marks is None else marks
        return made

    def __str__(self) -> MarkedText:
        """Return itself: jinja passes all it writes through `str`."""
        return self

    def __add__(self, other: str) -> MarkedText:
        """Join with what follows."""
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> MarkedText:
        """Join with what stands before."""
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> MarkedText:
        """Cut a piece out."""
        return MarkedText(super().__getitem__(key), self.marks[key])

    def lstrip(self, chars: str | None = None, /) -> MarkedText:
        """Trim the left."""
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> MarkedText:
        """Trim the right."""
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None, /) -> MarkedText:
        """Trim both sides."""
        return self.lstrip(chars).rstrip(chars)

    def join(self, pieces: Iterable[str], /) -> MarkedText:
        """Join pieces with this one between them."""
        parts = [part for piece in pieces for part in (self, piece)]
        return join(parts[1:])


def join(pieces: Iterable[Any]) -> MarkedText:
    """Join pieces end to end; what is not `MarkedText` is a message's."""
    parts = [piece if isinstance(piece, str) else str(piece) for piece in pieces]
    marks = "".join([part.marks if isinstance(part, MarkedText) else _MESSAGE * len(part) for part in parts])
    return MarkedText("".join(parts), marks)


def template_text(text: str) -> MarkedText:
    """Return `text` as written by the template."""
    return MarkedText(text, _TEMPLATE * len(text))


class _Generation(Extension):
    """The `{% generation %}` block of training templates: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own annotation)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class MarkedEnvironment(LimitedEnvironment):
    """Jinja as transformers sets it up, rendering `MarkedText` text, within limits."""

    concat = staticmethod(join)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.written: list[MarkedText] = []  # the strings that stand in the template
        self.filters["marked"] = limited(join)

    def compile_text(self, source: str) -> jinja2.Template:
        """Compile a template whose strings are `MarkedText`.

        Raises:
            jinja2.TemplateSyntaxError: it is not jinja.
        """
        tree: nodes.Template = _Writer(self.written).visit(self.parse(source))
        return self.from_string(tree)


class _Writer(NodeTransformer):
    """Turns every string of a template into a look-up in `environment.written`, which compiled code cannot fold."""

    def __init__(self, written: list[MarkedText]) -> None:
        self.written = written

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return self._look_up(node, node.value) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return self._look_up(node, node.data)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return nodes.Filter(parts, "marked", [], [], None, None, lineno=node.lineno, environment=node.environment)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = each(node.iter)  # type: ignore[arg-type]  # jinja2 types it as any node
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return kept(node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") != "load" else kept(node)

    visit_Dict = visit_Tuple = visit_List

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        constant = isinstance(node.expr, nodes.Const) or any(isinstance(one.expr, nodes.Const) for one in node.ops)
        self.generic_visit(node)
        for one in node.ops:
            if not constant or one.op in ("in", "notin"):
                node.expr, one.expr = kept(node.expr), kept(one.expr)
        return node

    def _look_up(self, node: nodes.Node, text: str) -> nodes.Node:
        self.written.append(template_text(text))
        table = nodes.EnvironmentAttribute("written", lineno=node.lineno)
        index = nodes.Const(len(self.written) - 1, lineno=node.lineno)
        return nodes.Getitem(table, index, "load", lineno=node.lineno, environment=node.environment)


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
        tokens = {i: token for i, token in self._added if i not in unknown and _is_control(bare, i, token)}
        self.added = frozenset(index for index, _ in self._added)
        self.control = frozenset(tokens)
        # A vocabulary may hold a control token as a word, which text can spell without any added token.
        self._leaky = frozenset(index for index in tokens if bare.id_to_token(index) is not None)
        self._letters = {token.content: chr(_LETTERS + i) for i, token in enumerate(tokens.values(), 1)}
        self._ids = dict(zip([chr(_LETTERS), *self._letters.values()], [_GAP, *tokens], strict=True))
        # As in the tokenizer itself, what is sought before normalization is found first.
        groups = [[token.content for token in tokens.values() if token.normalized is flag] for flag in (False, True)]
        self._patterns = [_any_of(group) for group in groups if group]
        self._named: dict[str, tuple[Tokenizer, dict[int, int]]] = {}

    def encode(self, text: MarkedText, *, inside: bool = False) -> NDArray[np.int32]:
        """Return the ids `(n,)` of `text`; `inside` says that it continues another text.

        Raises:
            ValueError: the vocabulary spells a single character with a control token.
        """
        base = next(char for char in _BASES if char not in text)
        tokenizer, kept = self._named.get(base) or self._tokenizer(base)
        gap = base + chr(_LETTERS)
        named = (gap if inside else "") + self._name(text, base)
        while True:
            found = tokenizer.encode(named, add_special_tokens=False)
            meant = {found.char_to_token(at): self._ids[named[at + 1]] for at in _places(named, base)}
            ids = [meant.get(i, kept.get(index, index)) for i, index in enumerate(found.ids)]
            leaks = (i for i, index in enumerate(ids) if index in self._leaky and i not in meant)
            leak = next(leaks, None) if self._leaky else None
            if leak is None:
                return np.array([index for index in ids if index != _GAP], np.int32)
            named = self._break(named, *found.offsets[leak], gap)

    def _break(self, named: str, start: int, end: int, gap: str) -> str:
        """Put a gap into the word that the vocabulary reads as a control token."""
        if end - start > 1:
            return named[: start + 1] + gap + named[start + 1 :]
        plain = self._normalized(named[start:end])
        if len(plain) < 2:
            raise ValueError(f"the tokenizer writes the character {named[start:end]!r} as a control token")
        return named[:start] + plain + named[end:]

    def _name(self, text: MarkedText, base: str) -> str:
        """Return `text` with the template's control tokens replaced by their names."""
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
            kept = index not in self.control  # else a name, found whatever stands next to it and whatever is normalized
            flags = {"single_word": kept and token.single_word, "normalized": kept and token.normalized}
            tokens.append(AddedToken(text, lstrip=token.lstrip, rstrip=token.rstrip, **flags))
        tokenizer = _copy(self.tokenizer)
        tokenizer.add_tokens(tokens)
        texts = [(index, token.content) for index, token in self._added if index not in self.control]
        self._named[base] = tokenizer, {tokenizer.token_to_id(text) or 0: index for index, text in texts}
        return self._named[base]

    def _normalized(self, text: str) -> str:
        normalizer = self.tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))


def read_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`.

    Raises:
        ValueError: it cannot be read, or is too large.
    """
    try:
        return Tokenizer.from_buffer(read_bytes(file, LARGEST))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # the library raises bare exceptions, and panics, which are none
        what = " ".join(str(error).split()).removeprefix(f"{file} ")
        raise ValueError(f"{file} is no tokenizer that can be used: {what:.200}") from None


def add_named_tokens(tokenizer: Tokenizer, config: Mapping[str, Any]) -> None:
    """Add the control tokens that a `tokenizer_config.json` names and the tokenizer lacks, as transformers does.

    Raises:
        ValueError: a token would get another id than the config says.
    """
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    listed = sorted((int(index), entry) for index, entry in config.get("added_tokens_decoder", {}).items())
    for index, entry in listed:
        text = entry["content"]
        if text in known:
            continue
        flags = {name: bool(entry.get(name, False)) for name in ("lstrip", "rstrip", "single_word", "normalized")}
        add = tokenizer.add_special_tokens if entry.get("special") else tokenizer.add_tokens
        add([AddedToken(text, special=bool(entry.get("special")), **flags)])
        known.add(text)
        if tokenizer.token_to_id(text) != index:
            raise ValueError(
                f"tokenizer_config.json gives the token {text!r} the id {index}, tokenizer.json gives it "
                f"{tokenizer.token_to_id(text)}; save the tokenizer again with save_pretrained"
            )
    lists = [config.get(name) or () for name in ("additional_special_tokens", "extra_special_tokens")]
    more = [_content(entry) for one in lists for entry in (one.values() if isinstance(one, Mapping) else one)]
    named = [*special_tokens(config).values(), *filter(None, more)]
    tokenizer.add_special_tokens([text for text in dict.fromkeys(named) if text not in known])


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokens that a `tokenizer_config.json` names by what they do: `bos_token`, `eos_token`, …"""
    named = {key: _content(entry) for key, entry in config.items() if key.endswith("_token")}
    return {key: text for key, text in named.items() if text is not None}


def _content(entry: Any) -> str | None:
    """Return a token's text from either of its forms in a config; None where it is no token (`add_bos_token`)."""
    text = entry.get("content") if isinstance(entry, Mapping) else entry
    return text if isinstance(text, str) and text else None


def _is_control(bare: Tokenizer, index: int, token: AddedToken) -> bool:
    """Return whether an added token is more than text."""
    if not token.special and (not token.content.strip() or len(token.content) == 1):
        return False
    letter = len(token.content) == 1 and index in bare.encode(token.content, add_special_tokens=False).ids
    return not letter


def _copy(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same model and no added tokens; the model itself is shared."""
    bare = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        bare.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        bare.pre_tokenizer = tokenizer.pre_tokenizer
    return bare


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


def _find(patterns: Sequence[re.Pattern[str]], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Find each pattern where the ones before it found nothing."""
    if not patterns:
        return
    for found in patterns[0].finditer(text, start, end):
        yield from _find(patterns[1:], text, start, found.start())
        yield found
        start = found.end()
    yield from _find(patterns[1:], text, start, end)


def _places(named: str, base: str) -> Iterator[int]:
    at = named.find(base)
    while at >= 0:
        yield at
        at = named.find(base, at + 1)
