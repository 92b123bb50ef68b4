"""The engine of a GPU policy on a real server: what it draws is what the learner says, and what its interface says."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from turngym.agents.engine import Completion, Sampling
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.engines.vllm.engine import Fleet
from turngym.agents.engines.vllm.publish import Publisher
from turngym.agents.policy import Policy
from turngym.tests.vllm.turns import TASKS, believed, drawn, prompt


@dataclass
class Nth:
    """Ends a turn where `closer` was said for the nth time."""

    closer: str
    n: int = 1

    @property
    def closers(self) -> tuple[str, ...]:
        return (self.closer,)

    def complete(self, text: str) -> bool:
        return text.count(self.closer) >= self.n


@pytest.fixture(scope="module")
def moved(served_policy: Policy) -> Iterator[Policy]:
    """The served policy with an adapter that says something of its own."""
    generator = torch.Generator().manual_seed(1)
    before = {name: p.detach().clone() for name, p in served_policy.trainable_parameters().items()}
    with torch.no_grad():
        for parameter in served_policy.trainable_parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    served_policy.version += 1
    yield served_policy
    with torch.no_grad():
        for name, parameter in served_policy.trainable_parameters().items():
            parameter.copy_(before[name])
    served_policy.version += 1


@pytest.fixture(scope="module")
def engine(server, moved: Policy, tmp_path_factory: pytest.TempPathFactory) -> VllmEngine:
    fleet = Fleet([server.url])
    return VllmEngine(
        moved,
        fleet,
        Publisher(moved, fleet.servers, tmp_path_factory.mktemp("served") / "adapters"),
    )


@pytest.fixture
def run(engine: VllmEngine) -> Callable[[Callable[[VllmEngine], Awaitable[Any]]], Any]:
    def run(work: Callable[[VllmEngine], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            if engine.version is None:
                await engine.sync()
            return await work(engine)

        return asyncio.run(main())

    return run


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.7), Sampling(2.0), Sampling(0.7, 0.9), Sampling(1.0, top_k=5)],
)
def test_the_log_probabilities_are_those_of_the_learner_and_the_entropy_is_near(
    run, moved, sampling
):
    turns = run(
        lambda engine: drawn(
            engine, moved, Sampling(sampling.temperature, sampling.top_p, sampling.top_k, 40)
        )
    )
    off, apart = [], []
    for i, turn in enumerate(turns):
        logits = believed(moved, prompt(moved, TASKS[i % 4]), turn)
        tokens = torch.from_numpy(turn.tokens).long()
        logp = (logits / sampling.temperature).log_softmax(-1)
        at = logp.gather(1, tokens[:, None])[:, 0].numpy()
        if sampling.top_p == 1 and not sampling.top_k:
            off.extend(np.abs(at - turn.logp))
            apart.extend(
                np.abs(
                    torch.distributions.Categorical(logits=logits).entropy().numpy() - turn.entropy
                )
            )
        else:
            assert (turn.logp >= at - 1e-3).all()  # what truncation removes goes to the others
    assert turns[0].estimate and max(off, default=0) < 1e-3
    assert np.mean(apart or [0]) < 0.1


def test_the_same_key_draws_the_same_turn(run, moved):
    async def twice(engine: VllmEngine) -> list[list[Completion]]:
        return [await drawn(engine, moved, Sampling(max_tokens=40)) for _ in range(2)]

    one, other = run(twice)
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, other, strict=True))
    assert len({tuple(turn.tokens) for turn in one}) > 1


@pytest.mark.parametrize("cut", [Nth("</tool_call>"), Nth("e"), Nth("e", 3), Nth('"', 5)])
def test_a_turn_ends_with_the_first_token_that_completes_the_call(run, moved, cut):
    turns = run(lambda engine: drawn(engine, moved, Sampling(2.0, max_tokens=60), cut, 16))
    stops = [turn.stop for turn in turns]
    assert "closer" in stops
    for turn in turns:
        texts = [
            moved.tokenizer.decode(turn.tokens[:n].tolist(), skip_special_tokens=False)
            for n in range(1, len(turn.tokens) + 1)
        ]
        # An end token ends a turn before its cut is asked.
        first = next((n for n, text in enumerate(texts) if cut.complete(text)), None)
        assert (turn.stop == "closer") == (
            first == len(texts) - 1 and turn.tokens[-1] not in moved.end_ids
        )
        assert first is None or first == len(texts) - 1
        assert (turn.stop == "end") == (int(turn.tokens[-1]) in moved.end_ids)
        assert not set(turn.tokens[:-1].tolist()) & moved.end_ids
        if turn.stop == "length":
            assert len(turn.tokens) == 60


def test_greedy_turns_are_those_of_the_embedded_engine(run, moved):
    async def embedded() -> list[Completion]:
        with closing(TorchEngine(moved)) as engine:
            return await drawn(engine, moved, Sampling(0.0, max_tokens=30), Nth("</tool_call>"), 4)

    served = run(
        lambda engine: drawn(engine, moved, Sampling(0.0, max_tokens=30), Nth("</tool_call>"), 4)
    )
    for a, b in zip(served, asyncio.run(embedded()), strict=True):
        assert (a.tokens.tolist(), a.stop, a.logp.tolist()) == (
            b.tokens.tolist(),
            b.stop,
            b.logp.tolist(),
        )


def test_a_conversation_goes_on_and_its_branches_with_it(run, moved):
    async def branches(engine: VllmEngine) -> list[Completion]:
        session = engine.session()
        first = await session.sample(prompt(moved, TASKS[0]), Sampling(max_tokens=20), (0, 0))
        given = np.array([1, 2, 3], np.int32)
        twin = session.fork()
        one, other = [
            await s.sample(given, Sampling(max_tokens=20), (0, 1)) for s in (session, twin)
        ]
        assert (
            session.length
            == twin.length
            == len(prompt(moved, TASKS[0])) + len(first.tokens) + 3 + len(one.tokens)
        )
        return [one, other]

    one, other = run(branches)
    assert one.tokens.tolist() == other.tokens.tolist()


def test_more_prompts_at_once_than_a_server_takes_in_one_step(run, moved):
    async def crowd(engine: VllmEngine) -> list[Completion]:
        given = [np.full(engine.max_context // 2, 5 + i, np.int32) for i in range(12)]
        return list(
            await asyncio.gather(
                *(
                    engine.session().sample(tokens, Sampling(max_tokens=4), (1, i))
                    for i, tokens in enumerate(given)
                )
            )
        )

    assert all(len(turn.tokens) for turn in run(crowd))


def test_a_full_context_ends_a_turn(run, moved):
    async def filled(engine: VllmEngine) -> tuple[Completion, Completion]:
        session, given = engine.session(), np.full(engine.max_context - 1, 5, np.int32)
        one = await session.sample(given, Sampling(), (0,))
        return one, await session.sample(np.array([1], np.int32), Sampling(), (1,))

    one, none = run(filled)
    assert len(one.tokens) == 1 and one.stop in ("context", "end")
    assert (len(none.tokens), none.stop) == (0, "context")
