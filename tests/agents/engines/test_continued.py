"""A turn that goes on behind tokens in the prompt ends exactly where it would have ended if it had been drawn whole."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from turngym.agents.engine import Completion, Continued, Cut, DecodedText, Sampling, StopRule
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch import engine as engine_module
from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.policy import load_policy
from turngym.agents.trajectory import NO_TOKENS
from turngym.tests.agents.engines.vllm.served import END, made_policy, run
from turngym.tests.support.model_server import MadeUp, ModelServer
from turngym.tools import FORMATS

CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(\'é 🙂 </\')"}}</tool_call>'
TEXTS = (
    f"I compute.\n{CALL} and then",
    f"<think>a </tool_call> is not yet one</think>{CALL}{CALL}",
    f"</tool_call>{CALL}.",
    "no call: </tool_cal",
)


class Quoted:
    """Ends a turn behind a closer whose first and last characters are of several bytes."""

    closers = ("é>🙂",)

    def complete(self, text: str) -> bool:
        return self.closers[0] in text


@pytest.fixture(scope="module")
def small(qwen3_folder) -> Tokenizer:
    """A byte-level tokenizer in which `</tool_call>` is eleven tokens, and an emoji four."""
    tokenizer = Tokenizer.from_file(str(qwen3_folder / "tokenizer.json"))
    assert len(tokenizer.encode("</tool_call>").ids) == 11 and len(tokenizer.encode("🙂").ids) == 4
    return tokenizer


def plain(tokenizer: Tokenizer, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def whole(rule: StopRule, tokens: list[int], cut: Cut) -> int | None:
    """After how many tokens a turn ends that is drawn as a whole."""
    text = DecodedText()
    return next(
        (n for n in range(1, len(tokens) + 1) if rule.completes(tokens[:n], cut, text)), None
    )


@pytest.mark.parametrize("known", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_turn_that_is_begun_anywhere_ends_where_the_whole_turn_ends(small, text, known):
    rule, tokens, cut = StopRule(small), small.encode(text).ids, FORMATS["hermes"]
    ends = whole(rule, tokens, cut)
    assert ends == next(
        (n for n in range(len(tokens)) if cut.complete(plain(small, tokens[:n]))), None
    )
    for begun in range(1, len(tokens) if ends is None else ends):
        given = tuple(tokens[:begun]) if known else ()
        continued = Continued(cut, plain(small, tokens[:begun]), given)
        assert whole(rule, tokens[begun:], continued) == (None if ends is None else ends - begun)


def test_a_closer_may_be_parted_within_a_character(small):
    rule, tokens, cut = StopRule(small), small.encode("say é>🙂 now").ids, Quoted()
    ends = whole(rule, tokens, cut)
    assert ends == len(small.encode("say é>🙂").ids)
    for begun in range(1, ends):
        continued = Continued(cut, plain(small, tokens[:begun]), tuple(tokens[:begun]))
        assert whole(rule, tokens[begun:], continued) == ends - begun


def test_words_that_the_template_opened_stand_in_front_of_what_is_continued(small):
    """A call inside a thought that the template opened is none; behind it one is."""
    rule, tokens = StopRule(small), small.encode(f"{CALL}\n</think>\n\n{CALL} and").ids
    opened = Continued(FORMATS["hermes"], "<think>\n")
    ends = whole(rule, tokens, opened)
    assert ends == len(tokens) - len(small.encode(" and").ids)
    for begun in range(1, ends):
        continued = Continued(opened, plain(small, tokens[:begun]), tuple(tokens[:begun]))
        assert whole(rule, tokens[begun:], continued) == ends - begun


def test_a_call_that_was_given_whole_ends_the_turn_with_the_first_token_that_is_drawn(small):
    rule, tokens = StopRule(small), small.encode(CALL).ids
    for given in ((), tuple(tokens)):
        assert whole(rule, small.encode("xyz").ids, Continued(FORMATS["hermes"], CALL, given)) == 1


def test_it_is_known_how_much_of_a_closer_is_missing(small):
    rule, cut = StopRule(small), FORMATS["hermes"]
    for text, missing in (
        ("", 0),
        ("a", 0),
        ("a<", 11),
        ("</tool_call", 1),
        (CALL, 0),
        (f"{CALL}</", 10),
    ):
        assert rule.unfinished(small.encode(text).ids, cut) == missing
        assert rule.unfinished([], Continued(cut, text)) == missing


# --- engines


class Script:
    """Stands in for a keyed generator: its i-th number is the i-th token that `dictate` draws."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def random(self, count: int) -> np.ndarray:
        return np.array((self.tokens + [0] * count)[:count], np.float64)


def dictate(logits: Any, rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nothing = np.zeros(len(rows), np.float32)
    return np.array([uniform for _, uniform in rows], np.int64), nothing, nothing


@pytest.mark.parametrize(
    "size", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2, 4, 8)), 3]
)
def test_a_turn_drawn_in_chunks_ends_where_the_whole_turn_ends(
    qwen3_folder, small, size, monkeypatch
):
    tokens, cut = small.encode(TEXTS[0]).ids, FORMATS["hermes"]
    monkeypatch.setattr(engine_module, "keyed_rng", lambda key: Script(tokens[key[0] :]))
    monkeypatch.setattr(engine_module, "sample", dictate)
    ends = whole(StopRule(small), tokens, cut)
    assert ends is not None

    async def chunks(engine: TorchEngine, begun: int) -> list[Completion]:
        """Draw `begun` tokens, then the rest in chunks, each in a fork of the session before it."""
        session, found, drawn = engine.session(), list[Completion](), list[int]()
        given = np.array([5], np.int32)
        while not found or found[-1].stop == "length":
            most = size if found else begun
            now = Continued(cut, plain(small, drawn), tuple(drawn)) if drawn else cut
            found.append(await session.sample(given, Sampling(max_tokens=most), (len(drawn),), now))
            drawn += found[-1].tokens.tolist()
            twin = session.fork()
            session.close()
            session, given = twin, NO_TOKENS
            assert len(drawn) <= ends
        session.close()
        return found

    async def work() -> list[list[Completion]]:
        with closing(TorchEngine(load_policy(qwen3_folder), slots=8)) as engine:
            return list(
                await asyncio.gather(*(chunks(engine, begun) for begun in range(ends - 13, ends)))
            )

    for found in asyncio.run(work()):
        assert [part.stop for part in found] == ["length"] * (len(found) - 1) + ["closer"]
        assert np.concatenate([part.tokens for part in found]).tolist() == tokens[:ends]


class Spelled(MadeUp):
    """A model that says the tokens of one text behind a first token."""

    def __init__(self, said: list[int], decode: Callable[[list[int]], str]) -> None:
        super().__init__(made_policy().vocabulary, decode)
        self.said = said

    def logits(self, tokens: list[int]) -> NDArray[np.float64]:
        found = np.linspace(0.0, 1.0, self.vocabulary)
        found[[*self.said, END][min(len(tokens) - 1, len(self.said))]] = 20.0
        return found


class Tag:
    closers = ("</th>",)

    def complete(self, text: str) -> bool:
        return "<th>" in text and text.endswith("</th>")


def test_a_server_that_was_given_the_beginning_of_a_closer_ends_where_the_whole_turn_ends():
    """It looks for stop texts only in what it draws itself."""
    policy = made_policy()
    tokenizer = policy.tokenizer
    ids = [
        tokenizer.token_to_id(piece) for piece in ("a", "<", "th", ">", "in", "</", *"th>bbbbbbbb")
    ]
    ends, text = 9, "a<th>in</th>"
    assert plain(tokenizer, ids[:ends]) == text
    model = Spelled(ids, lambda ids: plain(tokenizer, ids))
    server = ModelServer(model)

    async def work(engine: VllmEngine) -> None:
        for begun in range(1, ends):
            given = np.array([0, *ids[:begun]], np.int32)
            cut = Continued(Tag(), plain(tokenizer, ids[:begun]), tuple(ids[:begun]))
            turn = await engine.session().sample(given, Sampling(0.0, max_tokens=30), (begun,), cut)
            assert (turn.tokens.tolist(), turn.stop) == (ids[begun:ends], "closer")
        most = [asked["max_tokens"] for asked in server.asked if len(asked["prompt"]) == 7]
        assert most == [3, 3]  # behind "</", given or drawn, no more is asked for than is missing

    run(server, work)
