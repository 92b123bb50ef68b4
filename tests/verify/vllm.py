"""`turngym verify vllm`: servers that err in every way, and turns that are drawn from them right or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from turngym.tests.verify.rows import Row, Tally

if TYPE_CHECKING:
    from turngym.agents.engine import Completion, EngineFailure
    from turngym.agents.engines.vllm.client import Replica
    from turngym.agents.policy import Policy
    from turngym.tests.support.model_server import ModelServer

    Drawn = Completion | EngineFailure

WAIT = 2.0  # seconds of deadline where a server does not end its answer
LONG = 3600.0
TOKENS = 8  # of a turn
BASE = 600  # a request's number is written in two tokens below it


@dataclass(frozen=True)
class Vllm:
    """The engine `vllm`: answers of servers that break off, stall, lie or do not fit, amid right ones."""

    requests: int = 10_000
    """Turns to draw, half of them from answers that err."""
    in_flight: int = 64
    """Requests at a time."""
    seed: int = 0
    """Keys what is drawn."""

    def rows(self) -> Iterator[Row]:
        """Yield rows for faults that stay, turns amid them, faults that pass, and answers that do not end."""
        from turngym.agents.engine import EngineFault
        from turngym.agents.models.resolve import TINY
        from turngym.agents.policy import load_policy
        from turngym.tests.support.model_server import FAULTS

        policy = load_policy(TINY)
        slow = [name for name, way in FAULTS.items() if way.fault is EngineFault.TIMEOUT]
        quick = [name for name in FAULTS if name not in slow]
        stuck = max(self.requests // 20, len(slow))
        ways = _ways(self.requests - stuck, quick)
        right = self._draw(policy, range(len(ways)), lambda number, asked: "", LONG)
        drawn = self._draw(
            policy, range(len(ways)), lambda number, asked: ways[_number(asked)], LONG
        )
        yield _typed(f"{len(quick)} kinds of faults are typed failures", ways, drawn)
        good = [i for i, way in enumerate(ways) if not way]
        yield _same("turns amid them are what they are without them", good, drawn, right)
        passing = _ways(self.requests // 10, [name for name, way in FAULTS.items() if way.passing])
        again = self._draw(policy, range(len(passing)), _once(passing), LONG)
        yield _same("a fault that passes leaves no mark", range(len(passing)), again, right)
        stalled = [slow[i % len(slow)] for i in range(stuck)]
        late = self._draw(policy, range(stuck), lambda number, asked: stalled[_number(asked)], WAIT)
        yield _typed(
            f"{len(slow)} kinds of answers that do not end are typed failures", stalled, late
        )

    def _draw(
        self,
        policy: Policy,
        numbers: Sequence[int],
        plan: Callable[[int, dict[str, Any]], str],
        deadline: float,
    ) -> list[Drawn]:
        """Draw a turn for each number, from a server that errs as `plan` says."""
        from turngym.tests.support.model_server import MadeUp, ModelServer

        model = MadeUp(policy.vocabulary, policy.tokenizer.decode)
        server = ModelServer(
            model,
            lambda number, asked: plan(number, asked) if asked["max_tokens"] == TOKENS else "",
        )
        return asyncio.run(self._turns(policy, server, numbers, deadline))

    async def _turns(
        self, policy: Policy, server: ModelServer, numbers: Sequence[int], deadline: float
    ) -> list[Drawn]:
        from turngym.agents.engine import EngineFailure, Sampling
        from turngym.agents.engines.vllm import VllmEngine
        from turngym.agents.engines.vllm.engine import Fleet

        async def one(engine: VllmEngine, number: int) -> Drawn:
            given = np.array(divmod(number, BASE), np.int32)
            try:
                return await engine.session().sample(
                    given, Sampling(max_tokens=TOKENS), (self.seed, number)
                )
            except EngineFailure as failure:
                return failure

        with server.run() as url:
            fleet = Fleet([url], deadline)
            fleet.in_flight, fleet.tries = self.in_flight, 3
            with closing(
                VllmEngine(policy, fleet, cast("Any", _Known(fleet.servers)), top=5)
            ) as engine:
                await engine.sync()
                return list(await asyncio.gather(*(one(engine, number) for number in numbers)))


@dataclass
class _Known:
    """Says that servers have the policy's weights."""

    servers: list[Replica]

    async def publish(self) -> None:
        for server in self.servers:
            server.model = "served"

    async def restore(self, server: Replica) -> None:
        server.model = "served"


def _ways(n: int, names: Sequence[str]) -> list[str]:
    """A way for each of `n` requests: every second is right, the others take turns."""
    return ["" if i % 2 else names[i // 2 % len(names)] for i in range(n)]


def _number(asked: dict[str, Any]) -> int:
    high, low = asked["prompt"]
    return int(high) * BASE + int(low)


def _once(ways: Sequence[str]) -> Callable[[int, dict[str, Any]], str]:
    """A plan in which only the first try of a request errs."""
    seen: set[int] = set()

    def plan(number: int, asked: dict[str, Any]) -> str:
        first = _number(asked) not in seen
        seen.add(_number(asked))
        return ways[_number(asked)] if first else ""

    return plan


def _typed(what: str, ways: Sequence[str], drawn: Sequence[Drawn]) -> Row:
    """Count the requests that erred and ended as a failure of the right kind."""
    from turngym.agents.engine import EngineFailure
    from turngym.tests.support.model_server import FAULTS

    tally, kinds = Tally(what), Counter[str]()
    for way, turn in zip(ways, drawn, strict=True):
        if not way:
            continue
        if not isinstance(turn, EngineFailure):
            tally.add(way, "a turn was drawn from it")
            continue
        kinds[str(turn.fault)] += 1
        tally.add(way, turn.fault is not FAULTS[way].fault and f"{turn.fault}: {turn}")
    return tally.row(", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))


def _same(what: str, numbers: Sequence[int], drawn: Sequence[Drawn], right: Sequence[Drawn]) -> Row:
    """Count the turns that are those of a server without faults, to the bit."""
    from turngym.agents.engine import EngineFailure

    tally = Tally(what)
    for i in numbers:
        one, other = drawn[i], right[i]
        if isinstance(one, EngineFailure) or isinstance(other, EngineFailure):
            tally.add(str(i), str(one))
            continue
        same = one.stop == other.stop and all(
            getattr(one, name).tobytes() == getattr(other, name).tobytes()
            for name in ("tokens", "logp", "entropy")
        )
        tally.add(str(i), not same and "it differs")
    return tally.row()
