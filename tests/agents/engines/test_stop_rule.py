"""Where turns are cut: in a stream of tokens, and in the engine itself, which is made to draw what was recorded."""

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import Qwen3Config, Qwen3ForCausalLM

from turngym.agents.engine import Completion, DecodedText, Sampling, StopRule
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch import engine as engine_module
from turngym.agents.policy import load_policy
from turngym.tests.verify.formats.area import completed_at
from turngym.tests.verify.formats.recorded import recorded
from turngym.tools import FORMATS


class Ends:
    """Ends a turn at any of its closers."""

    closers = ("</b>", "!é", "</tool>")

    def complete(self, text: str) -> bool:
        return any(closer in text for closer in self.closers)


@pytest.fixture(scope="module")
def qwen(qwen_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def blanks() -> Tokenizer:
    """A tokenizer whose decoder strips the blank in front, as Llama 2's does, and knows bytes."""
    pieces = [
        "▁a",
        "▁",
        "b",
        "</b>",
        "▁<",
        "/",
        "b>",
        "!",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    strip = decoders.Strip(content=" ", left=1, right=0)
    replace = decoders.Replace("▁", " ")
    tokenizer.decoder = decoders.Sequence(
        [replace, decoders.ByteFallback(), decoders.Fuse(), strip]
    )
    return tokenizer


@pytest.fixture(scope="module")
def pools(
    qwen: Tokenizer, qwen3_folder: Path, blanks: Tokenizer
) -> list[tuple[Tokenizer, list[int]]]:
    """Tokenizers, and tokens of each that make closers, halves of characters and other text."""
    texts = ("</b>", "!é", "</tool>", "the </", "xé", "b>", "🙂", "\ufffd", " e")
    small = Tokenizer.from_file(str(qwen3_folder / "tokenizer.json"))
    halves = [
        blanks.token_to_id(f"<0x{byte:02X}>") for byte in (0xC3, 0xA9, 0xC3, 0xA9, 0x21, 0xF0, 0x9F)
    ]
    byte_level = [
        (one, [id for text in texts for id in one.encode(text).ids]) for one in (qwen, small)
    ]
    return [*byte_level, (blanks, [*range(8), *halves])]


def test_a_turn_is_cut_at_the_token_that_completes_a_closer(pools):
    rng = np.random.default_rng(0)
    for tokenizer, pool in pools:
        rule, found = StopRule(tokenizer), 0
        for _ in range(150):
            tokens, text_of = [], DecodedText()
            while len(tokens) < 40:
                tokens.append(int(rng.choice(pool)))
                text = tokenizer.decode(tokens, skip_special_tokens=False)
                closed = Ends().complete(text)
                assert rule.completes(tokens, Ends(), text_of) == closed
                if closed:
                    found += 1
                    break
        assert found > 10


def test_the_text_of_a_turn_is_that_of_all_its_tokens_whenever_it_is_asked_for(pools):
    rng, compared = np.random.default_rng(1), 0
    for tokenizer, pool in pools:
        for _ in range(100):
            tokens, text_of = [], DecodedText()
            while len(tokens) < 40:
                tokens += rng.choice(pool, rng.integers(1, 5)).tolist()
                text = plain(tokenizer, tokens)
                grown = text_of.extend(tokens, partial(plain, tokenizer))
                # Byte tokens that are no text together are all replaced, even those that were text before.
                if tokenizer is not pools[-1][0] or "\ufffd" not in text:
                    assert grown == text
                    compared += 1
    assert compared > 2500


def plain(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_the_text_of_a_turn_is_not_decoded_again_and_again(qwen):
    seen = 0

    def decode(ids: list[int]) -> str:
        nonlocal seen
        seen += len(ids)
        return qwen.decode(ids, skip_special_tokens=False)

    unit, text_of, tokens = qwen.encode("a, ").ids, DecodedText(), []
    for _ in range(500):
        tokens += unit
        text_of.extend(tokens, decode)
    assert seen < 5 * len(tokens)


def test_a_cut_without_closers_is_refused(engine):
    ends = Ends()
    ends.closers = ()
    with pytest.raises(ValueError, match=r"the cut's closers are \(\); it needs texts"):
        asyncio.run(engine.session().sample(np.array([0], np.int32), Sampling(), (0,), ends))


# --- the engine, made to draw what real models wrote


class Script:
    """Stands in for a keyed generator: its i-th number is the i-th token that `dictate` draws."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def random(self, count: int) -> np.ndarray:
        return np.array(self.tokens[:count], np.float64)


def dictate(logits: torch.Tensor, rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nothing = np.zeros(len(rows), np.float32)
    return np.array([uniform for _, uniform in rows], np.int64), nothing, nothing


@pytest.fixture(scope="module")
def engine(qwen_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchEngine]:
    """An engine of the smallest model that knows Qwen's tokens."""
    folder = tmp_path_factory.mktemp("smallest")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}
    config = Qwen3Config(
        vocab_size=151_680, max_position_embeddings=1024, eos_token_id=151_645, **sizes, **heads
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    for path in qwen_folder.iterdir():
        shutil.copy(path, folder)
    engine = TorchEngine(load_policy(folder), slots=8)
    yield engine
    engine.close()


def dictated(engine: TorchEngine, name: str, turns: list[list[int]]) -> list[Completion]:
    async def main() -> list[Completion]:
        sessions = [engine.session() for _ in turns]
        drawing = [
            session.sample(
                np.array([0], np.int32), Sampling(max_tokens=len(turn)), (i,), FORMATS[name]
            )
            for i, (session, turn) in enumerate(zip(sessions, turns))
        ]
        drawn = await asyncio.gather(*drawing)
        for session in sessions:
            session.close()
        return drawn

    return asyncio.run(main())


@pytest.mark.parametrize("name", FORMATS)
def test_a_turn_ends_with_the_token_that_completes_the_first_call(
    name, engine, qwen, shared_data, monkeypatch
):
    rows = [
        row
        for row in recorded(shared_data / "tool_calls")
        if row.style == name and len(row.text) < 450
    ][-8:]
    turns = [qwen.encode(f"{row.text}; and then").ids for row in rows]
    monkeypatch.setattr(engine_module, "keyed_rng", lambda key: Script(turns[key[0]]))
    monkeypatch.setattr(engine_module, "sample", dictate)
    ends = []
    for row, turn, drawn in zip(rows, turns, dictated(engine, name, turns)):
        size = completed_at(FORMATS[name], turn, qwen)
        assert drawn.tokens.tolist() == turn[:size], row.where
        assert drawn.stop == ("length" if size is None else "closer")
        ends.append(size is not None and size < len(turn))
    assert sum(ends) >= 4
