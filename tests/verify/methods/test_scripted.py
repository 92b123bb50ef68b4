"""The scripted engine keeps the contract of sessions: keyed draws, forks, bounds."""

import asyncio

import numpy as np
import pytest

from turngym.agents.chat import Chat
from turngym.agents.engine import Sampling
from turngym.agents.source import TINY
from turngym.tests.verify.methods.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def engine():
    return ScriptedEngine(Chat.from_folder(TINY), lambda heard, rng: f"{len(heard)} {rng.integers(10**6)}")


def sample(session, tokens, key=(0, 1, 2, 3, 4), most=512):
    return asyncio.run(session.sample(np.array(tokens, np.int32), Sampling(max_tokens=most), key))


def test_what_is_said_depends_on_the_key_and_on_what_was_heard(engine):
    first, second = engine.session(), engine.session()
    one, other = sample(first, [65, 66]), sample(second, [65, 66])
    assert one.tokens.tolist() == other.tokens.tolist() and one.stop == "end"
    assert one.tokens[-1] in engine.chat.end_ids()
    assert np.array_equal(one.entropy, other.entropy) and np.array_equal(one.logp, other.logp)
    assert first.length == 2 + len(one.tokens)
    assert sample(engine.session(), [65, 66], key=(0, 1, 2, 3, 5)).tokens.tolist() != one.tokens.tolist()


def test_a_fork_has_the_first_tokens_and_goes_on_alone(engine):
    session = engine.session()
    sample(session, [65, 66, 67])
    twin, part = session.fork(), session.fork(2)
    session.close()
    assert (twin.length, part.length) == (session.length, 2)
    sample(part, [68])
    assert np.array_equal(part.tokens[:3], [65, 66, 68]) and twin.length == session.length


def test_a_turn_is_cut_at_its_bound(engine):
    said = sample(engine.session(), [65], most=1)
    assert len(said.tokens) == len(said.logp) == len(said.entropy) == 1 and said.stop == "length"


def test_it_is_left_like_any_engine(engine):
    async def within():
        async with engine as same:
            return same

    assert asyncio.run(within()) is engine
