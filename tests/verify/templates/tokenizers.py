"""Tokenizers to test a chat with: those of real models, and odd ones, each with a template of its own tokens."""

from __future__ import annotations

import base64
import gzip
import json
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from turngym.agents.chat.chat import add_named_tokens
from turngym.agents.models.resolve import TINY

_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
_QWEN_PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
)
_CHATML = ("<|im_start|>", "<|im_end|>")
_PRINTED = [chr(code) for code in range(0x21, 0x7F)]


@dataclass(frozen=True)
class Case:
    """A tokenizer, the tokens that begin and end a turn, and whether it is lossless: gives back any text in NFC."""

    name: str
    tokenizer: Tokenizer
    start: str
    end: str
    lossless: bool = True

    @property
    def template(self) -> str:
        """A chat template in the manner of ChatML that shows tools."""
        start, end = json.dumps(self.start), json.dumps(self.end)
        return (
            f"{{% if tools %}}{{{{ {start} + 'tools\\n' }}}}{{% for tool in tools %}}{{{{ tool | tojson }}}}\n"
            f"{{% endfor %}}{{{{ {end} + '\\n' }}}}{{% endif %}}"
            f"{{% for m in messages %}}{{{{ {start} + m.role + '\\n' + m.content + {end} + '\\n' }}}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{{{{ {start} + 'assistant\\n' }}}}{{% endif %}}"
        )


def shipped(folder: Path) -> Iterator[Case]:
    """Yield the tokenizers of the data folder, and that of the tiny policy."""
    yield Case("qwen", qwen(folder / "qwen.tiktoken.gz"), *_CHATML)
    titan = Tokenizer.from_file(str(folder / "torchtitan_tokenizer.json"))
    add_named_tokens(
        titan, json.loads((folder / "torchtitan_tokenizer_config.json").read_text("utf-8"))
    )
    yield Case("torchtitan", titan, *_CHATML, lossless=False)
    tune = Tokenizer.from_file(str(folder / "torchtune_tiny_bpe_tokenizer.json"))
    yield Case("torchtune", tune, *_CHATML, lossless=False)
    yield Case("tiny", Tokenizer.from_file(str(TINY / "tokenizer.json")), *_CHATML)


def qwen(ranks: Path) -> Tokenizer:
    """Return the tokenizer of Qwen2.5 and Qwen3 made from its BPE ranks (tiktoken format, gzip)."""
    with gzip.open(ranks) as lines:
        order = {
            base64.b64decode(text): int(rank) for text, rank in (line.split() for line in lines)
        }
    letters = _letters()
    spelled = {token: "".join(letters[byte] for byte in token) for token in order}
    halves = [
        (token, _halves(order, token, rank)) for token, rank in order.items() if len(token) > 1
    ]
    merges = [(spelled[left], spelled[right]) for _, (left, right) in halves]
    tokenizer = Tokenizer(
        models.BPE(vocab={spelled[token]: rank for token, rank in order.items()}, merges=merges)
    )
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_QWEN_WORDS), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_QWEN_SPECIAL.split())
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in _QWEN_PLAIN.split()])
    return tokenizer


def _halves(order: dict[bytes, int], token: bytes, rank: int) -> tuple[bytes, bytes]:
    """Return the two older tokens that join last into `token`."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        _, i = min((order.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0], parts[1]


def _letters() -> dict[int, str]:
    """Return the letter by which byte-level BPE writes each byte."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {
        byte: chr(0x100 + i) for i, byte in enumerate(others)
    }


def letters(*tokens: str | AddedToken) -> Tokenizer:
    """Return a byte-level tokenizer without merges, one token a byte, with these added tokens."""
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [token if isinstance(token, AddedToken) else AddedToken(token) for token in tokens]
    )
    return tokenizer


def odd() -> Iterator[Case]:
    """Yield tokenizers that make it hard to keep text from spelling control tokens."""
    header = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(252)]
    yield Case("llama-256", letters(*header, *reserved), "<|start_header_id|>", "<|eot_id|>")
    yield Case(
        "overlaps", letters("<a>", "a>", "<a><a>", "<<a>", "<|e|>", "<|e|><", "<|e"), "<a>", "<|e|>"
    )
    yield Case(
        "straddles",
        letters("<s>", "<e>", "t<e>", "user\n<", "\nx", "x<e>\n", "{", '"}'),
        "<s>",
        "<e>",
    )
    folding = letters(
        AddedToken("<|Start|>", normalized=True),
        "<|end|>",
        AddedToken("<|call|>", normalized=False),
    )
    folding.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    yield Case("folding", folding, "<|Start|>", "<|end|>", lossless=False)
    flags = [
        AddedToken("<s>", rstrip=True),
        AddedToken("<e>", lstrip=True),
        AddedToken("stop", single_word=True),
    ]
    yield Case("flags", letters(*flags), "<s>", "<e>", lossless=False)
    yield Case("word-piece", _word_piece(), "[Turn]", "[SEP]", lossless=False)
    yield Case("words", _words(), "<s>", "<e>", lossless=False)
    yield Case("unigram", _unigram(), "<s>", "</s>", lossless=False)
    yield Case("byte-fallback", _byte_fallback(), "<s>", "</s>", lossless=False)
    yield Case("whole-words", _whole_words(), "<|s|>", "<|e|>")


def _word_piece() -> Tokenizer:
    """As BERT: lower case, accents and private characters dropped; one control token is sought in folded text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*_PRINTED, *(f"##{char}" for char in _PRINTED), "turn", "sep", "cls", "user", "tool"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*special, *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(
        [AddedToken("[Turn]", normalized=True), AddedToken("[/turn]", normalized=True)]
    )
    return tokenizer


def _words() -> Tokenizer:
    """Whole words, control tokens among them, behind a normalizer that folds letters together."""
    special = ["<unk>", "<s>", "<e>", "kg"]
    words = ["user", "tool", "assistant", "system", "x", "k", "g", "<", ">", "s", "e"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*special, *words])}, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    return tokenizer


def _unigram() -> Tokenizer:
    """As T5: pieces with scores, the control tokens among them, and a mark in front of the first word."""
    special = ["<unk>", "<s>", "</s>", "<|call|>"]
    pieces = [*((token, 0.0) for token in special), ("▁", -3.0), ("▁user", -2.0)]
    pieces += [(char, -5.0) for char in [*_PRINTED, "\n", "é"]]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(special)
    return tokenizer


def _byte_fallback() -> Tokenizer:
    """As Llama 2: a mark in front of every piece, bytes for strange characters, a token put in front by itself."""
    special = ["<unk>", "<s>", "</s>"]
    pieces = [
        *special,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *string.ascii_letters,
        *"<>/|_",
    ]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "<s", "</", "</s"])}
    merges = [("<", "s"), ("<", "/"), ("</", "s")]
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken("[INST]", normalized=True)])
    return tokenizer


def _whole_words() -> Tokenizer:
    """Bytes, but a word that stands in the vocabulary is never taken apart, and control tokens stand there."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|s|>", "<|e|>", "<|call|>"]
    vocabulary = {piece: i for i, piece in enumerate([*alphabet, *special])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    words = pre_tokenizers.Split(Regex(r"\s+|[^\s]+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return tokenizer


def names(tokenizer: Tokenizer) -> Sequence[str]:
    """Return the texts of all added tokens."""
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]
