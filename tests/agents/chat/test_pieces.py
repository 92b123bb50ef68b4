"""The pieces of a text, laid side by side, are the text; second source: the tokenizer's own decoder."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from turngym.agents.chat.chat import pieces, vocabulary

TEXT = "héllo  wörld\n\t漢字 🙂 <|im_end|>x"


def byte_level() -> Tokenizer:
    found = Tokenizer(
        models.BPE(
            vocab={c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]
        )
    )
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens(["<|im_end|>"])
    return found


def fallback() -> Tokenizer:
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helowrd"]
    merges: list[tuple[str, str]] = []
    model = models.BPE(
        vocab={w: i for i, w in enumerate(words)},
        merges=merges,
        byte_fallback=True,
        unk_token="<unk>",
    )
    found = Tokenizer(model)
    found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    found.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    found.add_special_tokens(["<|im_end|>"])
    return found


@pytest.mark.parametrize("make", [byte_level, fallback])
def test_the_pieces_of_a_text_are_the_text(make):
    tokenizer = make()
    ids = tokenizer.encode(TEXT).ids
    known = pieces(tokenizer)
    assert (
        b"".join(known[index] for index in ids).decode()
        == tokenizer.decode(ids, skip_special_tokens=False)
        == TEXT
    )
    again = [text.encode("utf-8", "surrogateescape") for text in json.loads(vocabulary(tokenizer))]
    assert again == known and b"\xf0" in known  # a byte that is no text alone
