import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turngym.agents.engine import Completion, Sampling, keyed_rng
from turngym.agents.engines.torch import TorchEngine, scheduler
from turngym.agents.engines.torch import engine as module
from turngym.agents.engines.torch.decoder import Decoder
from turngym.agents.policy import Policy
from turngym.tests.support.policies import loaded


@pytest.fixture(scope="module")
def qwen3(qwen3_folder: Path) -> Policy:
    return loaded(qwen3_folder)


@pytest.fixture(params=["qwen3", pytest.param("qwen2", marks=pytest.mark.slow)], scope="module")
def policy(request: pytest.FixtureRequest, qwen3: Policy, qwen2_folder: Path) -> Policy:
    return qwen3 if request.param == "qwen3" else loaded(qwen2_folder)


def ids(n: int, *key: int) -> np.ndarray:
    return keyed_rng((n, *key)).integers(0, 256, size=n).astype(np.int32)


def run(policy: Policy, work: Callable[[TorchEngine], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        with closing(TorchEngine(policy, **options)) as engine:
            return await asyncio.wait_for(work(engine), 60)

    return asyncio.run(main())


@dataclass
class Ends:
    """Ends a turn at any of its closers."""

    closers: tuple[str, ...]

    def complete(self, text: str) -> bool:
        return any(closer in text for closer in self.closers)


@dataclass
class Dialogue:
    """Every token of one conversation, and its completions with the position each began at."""

    tokens: list[int]
    turns: list[tuple[int, Completion, float]]


async def converse(engine: TorchEngine, i: int, wait: np.random.Generator) -> list[Dialogue]:
    """Two or three turns with observations between; every third conversation forks after its first turn."""
    rng = keyed_rng((7, i))
    sampling = [
        Sampling(),
        Sampling(0.7, max_tokens=30),
        Sampling(1.3, top_p=0.9),
        Sampling(top_k=5),
        Sampling(0),
    ][i % 5]
    sampling = Sampling(
        sampling.temperature, sampling.top_p, sampling.top_k, int(rng.integers(1, 24))
    )
    first = engine.session()
    paths, sessions = [Dialogue([], [])], [first]
    for turn in range(2 + i % 2):
        for branch, (path, session) in enumerate(zip(paths, sessions)):
            given = ids(int(rng.integers(1, 110 if turn == 0 else 50)), i, turn, branch)
            for _ in range(wait.integers(0, 4)):  # a tool takes its time
                await asyncio.sleep(0)
            drawn = await session.sample(given, sampling, (0, 0, i, branch, turn))
            path.tokens.extend(given.tolist())
            path.turns.append((len(path.tokens), drawn, sampling.temperature))
            path.tokens.extend(drawn.tokens.tolist())
            assert session.length == len(path.tokens)
        if turn == 0 and i % 3 == 0:
            paths.append(Dialogue(list(paths[0].tokens), list(paths[0].turns)))
            sessions.append(first.fork())
    for session in sessions:
        session.close()
    return paths


def conversations(
    policy: Policy, order: list[int], in_flight: int, **options: Any
) -> dict[int, list[Dialogue]]:
    async def work(engine: TorchEngine) -> dict[int, list[Dialogue]]:
        gate, wait = asyncio.Semaphore(in_flight), np.random.default_rng(in_flight)

        async def one(i: int) -> tuple[int, list[Dialogue]]:
            async with gate:
                return i, await converse(engine, i, wait)

        return dict(await asyncio.gather(*(one(i) for i in order)))

    return run(policy, work, **options)


@pytest.fixture(scope="module")
def alone(policy: Policy) -> dict[int, list[Dialogue]]:
    return conversations(policy, list(range(10)), in_flight=1)


@pytest.mark.parametrize(
    "slots", [*(pytest.param(slots, marks=pytest.mark.slow) for slots in (64, 5)), 24]
)
def test_one_rollout_in_flight_and_many_give_the_same_bits(policy, alone, slots):
    x, weight = (
        torch.randn(512, 64, generator=torch.Generator().manual_seed(0)),
        policy.base.lm_head.weight,
    )
    if not all(
        torch.equal((x[:rows] @ weight.T)[:8], x[:8] @ weight.T) for rows in (16, 32, 64, 512)
    ):
        pytest.skip("matrix products depend on the row count on this machine")
    assert TorchEngine(policy).mode == "exact"
    order = np.random.default_rng(slots).permutation(24).tolist()
    many = conversations(policy, order, in_flight=24, slots=slots, prefill_tokens=256)
    for i, paths in alone.items():
        for one, other in zip(paths, many[i], strict=True):
            assert one.tokens == other.tokens
            for (_, a, _), (_, b, _) in zip(one.turns, other.turns, strict=True):
                assert a.logp.tobytes() == b.logp.tobytes()
                assert a.entropy.tobytes() == b.entropy.tobytes()
                assert a.stop == b.stop


@pytest.mark.parametrize("batch", [1, 7])
def test_recomputed_logp_and_entropy_equal_the_sampled_over_padding_batch_and_turns(
    policy, alone, batch
):
    paths = [path for i in sorted(alone) if i % 5 in (0, 1) for path in alone[i]]
    for begin in range(0, len(paths), batch):
        part = paths[begin : begin + batch]
        widest = max(len(path.tokens) for path in part) + 3
        tokens, mask = (
            torch.zeros(len(part), widest, dtype=torch.long),
            torch.zeros(len(part), widest, dtype=torch.long),
        )
        for row, path in enumerate(part):
            tokens[row, : len(path.tokens)] = torch.tensor(path.tokens)
            mask[row, : len(path.tokens)] = 1
        with torch.no_grad():
            logits = policy.model(input_ids=tokens, attention_mask=mask).logits
        for row, path in enumerate(part):
            for start, drawn, temperature in path.turns:
                n = len(drawn.tokens)
                at = logits[row, start - 1 : start - 1 + n]
                logp = (at / temperature).log_softmax(-1)[
                    torch.arange(n), torch.from_numpy(drawn.tokens).long()
                ]
                np.testing.assert_allclose(drawn.logp, logp.numpy(), rtol=0, atol=3e-5)
                entropy = torch.distributions.Categorical(logits=at).entropy()
                np.testing.assert_allclose(drawn.entropy, entropy.numpy(), rtol=0, atol=3e-5)


def test_tokens_are_the_inverse_cdf_at_the_keys_uniforms(policy):
    given, key = ids(20, 3), (5, 4, 3, 2, 1)
    drawn = run(
        policy, lambda engine: engine.session().sample(given, Sampling(0.8, max_tokens=40), key)
    )
    tokens = given.tolist()
    for uniform, token in zip(keyed_rng(key).random(40), drawn.tokens):
        with torch.no_grad():
            logits = (
                policy.model(input_ids=torch.tensor([tokens])).logits[0, -1].double().numpy() / 0.8
            )
        cdf = np.cumsum(np.exp(logits - logits.max()))
        assert token == np.searchsorted(cdf, (1 - uniform) * cdf[-1])
        tokens.append(int(token))


def test_a_turn_stops_at_its_end_token_closer_length_or_context(qwen3):
    async def work(engine: TorchEngine) -> None:
        given, key = ids(10), (0, 0, 0, 0, 0)
        full = await engine.session().sample(given, Sampling(max_tokens=12), key)
        assert (full.stop, len(full.tokens), full.version) == ("length", 12, 0)
        assert full.tokens.dtype == np.int32
        assert full.logp.dtype == full.entropy.dtype == np.float32

        closer = qwen3.tokenizer.decode(full.tokens[3:5].tolist(), skip_special_tokens=False)
        cut = await engine.session().sample(
            given, Sampling(max_tokens=12), key, Ends(("never", closer))
        )
        assert (cut.stop, cut.tokens.tolist()) == (
            "closer",
            full.tokens[: len(cut.tokens)].tolist(),
        )
        assert closer in qwen3.tokenizer.decode(cut.tokens.tolist(), skip_special_tokens=False)
        assert closer not in qwen3.tokenizer.decode(
            cut.tokens[:-1].tolist(), skip_special_tokens=False
        )

        ends, qwen3.end_ids = qwen3.end_ids, frozenset({int(full.tokens[6])})
        ended = await engine.session().sample(given, Sampling(max_tokens=12), key)
        qwen3.end_ids = ends
        assert (ended.stop, ended.tokens.tolist()) == (
            "end",
            full.tokens[: len(ended.tokens)].tolist(),
        )

    run(qwen3, work)


def test_a_full_context_ends_the_turn_and_refuses_what_does_not_fit(qwen3, monkeypatch):
    async def work(engine: TorchEngine) -> None:
        qwen3_ends, qwen3.end_ids = qwen3.end_ids, frozenset()
        session = engine.session()
        drawn = await session.sample(ids(40), Sampling(), (1,))
        assert (drawn.stop, len(drawn.tokens), session.length) == ("context", 10, 50)
        for given in (ids(1), ids(0)):
            refused = await session.sample(given, Sampling(), (2,))
            assert (refused.stop, len(refused.tokens), session.length) == ("context", 0, 50)
        other = engine.session()
        assert (await other.sample(ids(50), Sampling(), (3,))).stop == "context"
        assert other.length == 0
        assert len((await other.sample(ids(49), Sampling(), (3,))).tokens) == 1
        qwen3.end_ids = qwen3_ends

    monkeypatch.setattr(qwen3, "max_context", 50)
    run(qwen3, work)


def test_pieces_of_a_long_chunk_give_the_same_numbers(qwen3, monkeypatch):
    def drawn() -> Completion:
        return run(
            qwen3, lambda engine: engine.session().sample(ids(200), Sampling(max_tokens=5), (0,))
        )

    whole = drawn()
    monkeypatch.setattr(scheduler, "LONGEST_CHUNK", 48)
    pieces = drawn()
    assert whole.tokens.tolist() == pieces.tokens.tolist()
    np.testing.assert_allclose(whole.logp, pieces.logp, rtol=0, atol=1e-5)


def test_a_slow_tool_does_not_stall_the_others(qwen3):
    async def work(engine: TorchEngine) -> None:
        answer, short = asyncio.Event(), Sampling(max_tokens=3)

        async def slow() -> Completion:
            session = engine.session()
            await session.sample(ids(9), short, (1,))
            await answer.wait()
            return await session.sample(ids(5), short, (2,))

        waiting = asyncio.create_task(slow())
        for i in range(6):
            await engine.session().sample(ids(12), short, (3, i))
        assert not waiting.done()
        answer.set()
        assert len((await waiting).tokens) > 0

    run(qwen3, work)


def test_more_open_sessions_than_slots_neither_block_nor_change_anything(qwen3):
    async def work(engine: TorchEngine) -> list[list[int]]:
        root, short = engine.session(), Sampling(max_tokens=6)
        await root.sample(ids(30), short, (0,))
        twins = [root.fork() for _ in range(4)]
        drawn = await asyncio.gather(
            *(twin.sample(ids(3, i), short, (1, i)) for i, twin in enumerate(twins))
        )
        deeper = [
            twin.fork() for twin in twins
        ]  # the parents stay open and hold what slots there are
        drawn += await asyncio.gather(
            *(twin.sample(ids(2), short, (2, i)) for i, twin in enumerate(deeper))
        )
        drawn.append(await root.sample(ids(4), short, (3,)))
        return [completion.tokens.tolist() for completion in drawn]

    assert run(qwen3, work, slots=2) == run(qwen3, work, slots=64)


def test_a_fork_is_independent_of_its_parent(qwen3):
    async def work(engine: TorchEngine) -> None:
        short = Sampling(max_tokens=5)
        parent = engine.session()
        await parent.sample(ids(20), short, (0,))
        one, two = parent.fork(), parent.fork()
        length = parent.length
        parent.close()
        other = engine.session()  # takes the parent's place before the copies are made
        a, _, b = await asyncio.gather(
            one.sample(ids(3), short, (9,)),
            other.sample(ids(60), short, (1,)),
            two.sample(ids(3), short, (9,)),
        )
        assert a.tokens.tolist() == b.tokens.tolist()
        assert one.length == two.length == length + 3 + len(a.tokens)

    run(qwen3, work)


@pytest.mark.parametrize("closed", [False, True])
def test_a_fork_of_the_first_tokens_draws_what_a_session_that_has_no_more_draws(qwen3, closed):
    """Behind a turn, inside of one and behind its first chunk, to the bit; what came later leaves no trace."""

    async def work(engine: TorchEngine) -> None:
        short = Sampling(max_tokens=6)
        parent = engine.session()
        first = await parent.sample(ids(40), short, (0,))
        behind = parent.length
        alone = parent.fork()
        await parent.sample(ids(50), short, (1,))
        if closed:
            parent.close()
        want = await alone.sample(ids(9), short, (2,))
        twin = parent.fork(behind)
        assert twin.length == behind == 40 + len(first.tokens)
        got = await twin.sample(ids(9), short, (2,))
        assert (
            got.tokens.tolist() == want.tokens.tolist()
            and got.logp.tobytes() == want.logp.tobytes()
        )
        inside = parent.fork(
            40 + 2
        )  # goes on behind the turn's second token as the turn itself did
        rest = await inside.sample(ids(0), Sampling(0, max_tokens=3), (3,))
        fresh = engine.session()
        again = await fresh.sample(
            np.concatenate((ids(40), first.tokens[:2])), Sampling(0, max_tokens=3), (3,)
        )
        assert rest.tokens.tolist() == again.tokens.tolist()
        np.testing.assert_allclose(rest.entropy, again.entropy, atol=1e-5)
        empty = parent.fork(0)
        assert empty.length == 0 and (await empty.sample(ids(5), short, (4,))).tokens.size

    run(qwen3, work)


@pytest.mark.parametrize("length", [-1, 20, 999])
def test_a_fork_that_cannot_begin_there_is_refused(qwen3, length):
    async def work(engine: TorchEngine) -> None:
        session = engine.session()
        await session.sample(ids(40), Sampling(max_tokens=2), (0,))
        with pytest.raises(
            ValueError,
            match=f"length is {length}; a fork of this session of 4[12] tokens cannot begin",
        ):
            session.fork(length)

    run(qwen3, work)


def test_an_engine_serves_one_event_loop_after_another(qwen3):
    engine = TorchEngine(qwen3)
    drawn = [
        asyncio.run(engine.session().sample(ids(8), Sampling(max_tokens=4), (0,))) for _ in range(2)
    ]
    engine.close()
    assert drawn[0].tokens.tolist() == drawn[1].tokens.tolist()


@pytest.mark.parametrize("large", [0, module.LARGE], ids=["large", "small"])
def test_a_large_cache_is_given_back_with_the_last_session(qwen3, monkeypatch, large):
    monkeypatch.setattr(module, "LARGE", large)

    async def work(engine: TorchEngine) -> None:
        long, short, again = (engine.session() for _ in range(3))
        await long.sample(ids(500), Sampling(max_tokens=4), (0,))
        drawn, held = (
            await short.sample(ids(8), Sampling(max_tokens=4), (0,)),
            engine._runner.nbytes,
        )
        long.close()
        assert engine._runner.nbytes == held > 0  # the short one is still there
        short.close()
        assert engine._runner.nbytes == (held if large else 0)
        assert (
            await again.sample(ids(8), Sampling(max_tokens=4), (0,))
        ).logp.tobytes() == drawn.logp.tobytes()

    run(qwen3, work)


def test_a_session_is_refused_where_it_cannot_go_on(qwen3):
    async def work(engine: TorchEngine) -> None:
        session, short = engine.session(), Sampling(max_tokens=2)
        with pytest.raises(ValueError, match="begin with at least 1 token"):
            await session.sample(ids(0), short, (0,))
        for bad in (300, -1):
            with pytest.raises(ValueError, match=rf"id {bad}; the policy's ids lie in 0\.\.299"):
                await session.sample(np.array([5, bad], np.int32), short, (0,))
        with pytest.raises(ValueError, match="it needs texts, and none that is empty"):
            await session.sample(ids(3), short, (0,), Ends(("",)))
        drawing = asyncio.create_task(session.sample(ids(3), short, (0,)))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="drawing"):
            session.fork()
        with pytest.raises(RuntimeError, match="drawing a turn"):
            await session.sample(ids(3), short, (0,))
        await drawing
        qwen3.version += 1
        with pytest.raises(RuntimeError, match="began with weights 0 and the policy is at 1"):
            await session.sample(ids(3), short, (0,))
        assert (await engine.session().sample(ids(3), short, (0,))).version == 1
        qwen3.version = 0
        session.close()
        with pytest.raises(RuntimeError, match="closed"):
            await session.sample(ids(3), short, (0,))

    run(qwen3, work)


def test_a_cancelled_or_closed_turn_frees_its_slot(qwen3):
    async def work(engine: TorchEngine) -> None:
        one, two = engine.session(), engine.session()
        tasks = [
            asyncio.create_task(session.sample(ids(9), Sampling(max_tokens=400), (0,)))
            for session in (one, two)
        ]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        two.close()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        with pytest.raises(RuntimeError, match="closed while it drew"):
            await tasks[1]
        assert one.closed
        assert (
            len((await engine.session().sample(ids(4), Sampling(max_tokens=3), (0,))).tokens) == 3
        )

    run(qwen3, work, slots=2)


def test_broken_weights_stop_the_turn_and_leave_nothing_behind(qwen3):
    weight = next(iter(qwen3.trainable_parameters().values()))
    kept = weight.detach().clone()

    async def work(engine: TorchEngine) -> None:
        short = Sampling(max_tokens=4)
        before = await engine.session().sample(ids(9), short, (0,))
        with torch.no_grad():
            weight.fill_(torch.nan)
        with pytest.raises(FloatingPointError, match="not finite after 50 tokens"):
            await engine.session().sample(ids(50), short, (0,))
        with torch.no_grad():
            weight.copy_(kept)
        after = await engine.session().sample(ids(9), short, (0,))
        assert before.logp.tobytes() == after.logp.tobytes()

    run(qwen3, work, slots=2)


def test_generation_switches_dropout_off_and_puts_the_modes_back(qwen3):
    def drawn() -> Completion:
        return run(
            qwen3, lambda engine: engine.session().sample(ids(9), Sampling(max_tokens=4), (0,))
        )

    quiet = drawn()
    part = qwen3.base.model.layers[0]
    part.train()
    part.self_attn.attention_dropout = 0.5
    assert drawn().logp.tobytes() == quiet.logp.tobytes()
    assert part.training
    assert not qwen3.base.training
    part.self_attn.attention_dropout = 0.0
    part.eval()


def test_no_gradient_is_kept_and_training_goes_on_after_generation(qwen3):
    run(qwen3, lambda engine: engine.session().sample(ids(9), Sampling(max_tokens=4), (0,)))
    qwen3.model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in qwen3.trainable_parameters().values())
    qwen3.model.zero_grad()


def test_the_probe_names_a_model_whose_rows_depend_on_the_batch(qwen3, monkeypatch):
    decode = Decoder.decode
    monkeypatch.setattr(
        Decoder, "decode", lambda self, slots, *rest: decode(self, slots, *rest) + 1e-6 * len(slots)
    )
    engine = TorchEngine(qwen3)
    assert engine.mode == "batch-dependent"
    assert "differ by up to" in engine.mode_reason
    engine.close()


def test_worker_threads_are_the_engines_own(qwen3):
    before = torch.get_num_threads()
    engine = TorchEngine(qwen3, threads=before + 1)
    assert torch.get_num_threads() == before
    assert engine._worker.submit(torch.get_num_threads).result() == before + 1
    engine.close()


def test_a_closed_engine_draws_no_more(qwen3):
    async def work() -> None:
        engine = TorchEngine(qwen3)
        drawing = asyncio.create_task(
            engine.session().sample(ids(9), Sampling(max_tokens=400), (0,))
        )
        await asyncio.sleep(0.01)
        engine.close()
        with pytest.raises(RuntimeError, match="the engine was closed"):
            await drawing
        with pytest.raises(RuntimeError, match="the engine is closed"):
            await engine.session().sample(ids(9), Sampling(), (0,))

    asyncio.run(work())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"prefill_tokens": 0}, "prefill_tokens is 0"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_an_engine_option_out_of_range_is_refused(qwen3, options, message):
    with pytest.raises(ValueError, match=message):
        TorchEngine(qwen3, **options)


def test_equal_prompts_are_fed_once_and_give_the_bits_of_a_prompt_alone(qwen3, monkeypatch):
    prompt, sampling = ids(70, 3), Sampling(max_tokens=6)

    def drawn(count: int) -> tuple[list[Completion], list[int]]:
        fed: list[int] = []

        async def work(engine: TorchEngine) -> list[Completion]:
            prefill = engine._runner.prefill
            monkeypatch.setattr(
                engine._runner,
                "prefill",
                lambda slots, *rest: fed.append(len(slots)) or prefill(slots, *rest),
            )
            sessions = [engine.session() for _ in range(count)]
            return list(
                await asyncio.gather(
                    *(s.sample(prompt, sampling, (0, i)) for i, s in enumerate(sessions))
                )
            )

        return run(qwen3, work), fed

    (single, fed_single), (many, fed_many) = drawn(1), drawn(8)
    assert fed_single == fed_many == [1]
    assert many[0].tokens.tolist() == single[0].tokens.tolist()
    assert many[0].logp.tobytes() == single[0].logp.tobytes()
    assert len({completion.tokens.tobytes() for completion in many}) > 1


def test_idle_conversations_are_not_decoded_and_those_above_them_keep_their_bits(qwen3):
    async def work(engine: TorchEngine) -> bytes:
        rows: list[int] = []
        decode = engine._runner.decode
        engine._runner.decode = lambda slots, *rest: rows.append(len(slots)) or decode(slots, *rest)  # type: ignore[method-assign]
        sessions = [engine.session() for _ in range(12)]
        await asyncio.gather(
            *(s.sample(ids(20, i), Sampling(max_tokens=2), (0, i)) for i, s in enumerate(sessions))
        )
        rows.clear()  # all are idle; the two highest draw on
        drawn = await asyncio.gather(
            *(s.sample(ids(5), Sampling(max_tokens=8), (1,)) for s in sessions[-2:])
        )
        assert len(rows) > 3 and set(rows) == {engine._runner.rows}
        return drawn[0].logp.tobytes()

    async def alone(engine: TorchEngine) -> bytes:
        session = engine.session()
        await session.sample(ids(20, 10), Sampling(max_tokens=2), (0, 10))
        return (await session.sample(ids(5), Sampling(max_tokens=8), (1,))).logp.tobytes()

    assert run(qwen3, alone) == run(qwen3, work)


def test_a_step_of_few_rows_waits_for_more_and_for_less_time_where_none_come():
    now = 0.0
    seated, gathering = scheduler.Scheduler(8, 64), scheduler.Gathering(lambda: now)
    seated.slots[:] = [scheduler.Sequence() for _ in range(8)]

    def waits(running: int) -> float:
        """How long it waits before a decode, which takes 4 seconds."""
        nonlocal now
        waited = 0.0
        while pause := gathering.pause(running, seated):
            now += min(pause, 3.0)  # it is asked again before the time is over
            waited += min(pause, 3.0)
        with gathering.decoding():
            now += 4.0
        return waited

    assert waits(2) == 0  # nothing is known of a decode
    assert [waits(2) for _ in range(4)] == [8, 4, 2, 1]
    assert waits(4) == 0  # half of them draw
    seated.begun += 1
    assert waits(2) == 8


def test_a_prefill_feeds_chunks_of_several_shapes_up_to_its_most_tokens():
    room = scheduler.Scheduler(8, 128)
    sequences = [scheduler.Sequence() for _ in range(6)]
    for i, (sequence, length) in enumerate(zip(sequences, (30, 70, 20, 30, 300, 20))):
        sequence.append(ids(length, i if i != 3 else 0))  # the fourth has the first one's tokens
        sequence.slot, room.slots[i] = i, sequence
    assert room.next_chunks(sequences) == [sequences[0], sequences[1]]  # of 32 and 96 tokens
    for sequence in sequences[:2]:
        sequence.cached = len(sequence.tokens) - 1
    assert room.next_chunks(sequences) == [sequences[2], sequences[5]]
    assert room.copies == [(0, [3], 29)] and sequences[3].cached == 29
    for sequence in (sequences[2], sequences[5]):
        sequence.cached = len(sequence.tokens) - 1
    assert room.next_chunks(sequences) == [sequences[4]]  # alone it may be longer
