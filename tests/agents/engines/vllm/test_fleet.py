import asyncio
from collections import Counter
from typing import Any

import pytest

from turngym.agents.engine import EngineFailure, EngineFault
from turngym.agents.engines.vllm import engine as module
from turngym.agents.engines.vllm.client import Replica
from turngym.agents.engines.vllm.engine import SPILL, Fleet, choose
from turngym.tests.support.faults import RESET, FaultServer, Kept, Request, head

OK = Kept([head("200 OK", "Content-Length: 2") + b"ok"])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.001)
    monkeypatch.setattr(module, "POLL", 0.001)


def soon(seconds: float = 30.0) -> float:
    return asyncio.get_running_loop().time() + seconds


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_each_tree_has_a_home_and_homes_are_spread():
    servers = [Replica(f"http://h{i}") for i in range(4)]
    homes = [str(i).encode() for i in range(400)]
    at = [choose(servers, home).url for home in homes]
    assert at == [choose(servers[::-1], home).url for home in homes]
    assert min(Counter(at).values()) > 60
    left = servers[:3]  # where one goes, only what was there moves
    assert all(choose(left, home).url == url for home, url in zip(homes, at) if url != "http://h3")


def test_a_server_that_is_far_ahead_is_spared():
    servers = [Replica(f"http://h{i}") for i in range(2)]
    home = next(home for home in map(bytes, range(1, 9)) if choose(servers, home) is servers[0])
    servers[0].flying = SPILL
    assert choose(servers, home) is servers[0]
    servers[0].flying += 1
    assert choose(servers, home) is servers[1]
    servers[1].flying = 1
    assert choose(servers, home) is servers[0]


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://a", "http://", "http://a:b@c", "http://a?x=1", "http://a:99999"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match=r"URL|address"):
        Fleet([url])


def test_servers_are_named_once_each():
    for urls in ([], ["http://a", "http://a"]):
        with pytest.raises(ValueError, match="name at least 1 server, and each once"):
            Fleet(urls)
    assert [server.url for server in Fleet(["http://a:1/v1", "http://b/"]).servers] == [
        "http://a:1",
        "http://b",
    ]


async def asked(fleet: Fleet, home: bytes = b"", ends: float | None = None) -> bytes:
    return await fleet.run(
        home, lambda server: server.ask("POST", "/v1/completions", b"{}"), ends or soon()
    )


def test_connections_are_kept_over_requests_and_left_with_their_loop():
    with FaultServer(lambda request: OK) as server:
        fleet = Fleet([server.url])

        async def many() -> None:
            for _ in range(3):
                assert await asyncio.gather(*(asked(fleet) for _ in range(4))) == [b"ok"] * 4
            assert len(fleet.servers[0]._connections._idle) == 4

        run(many())  # a connection left open would be a ResourceWarning, an error here
        run(many())
    assert len(server.requests) == 24


def test_a_kept_connection_that_was_closed_meanwhile_is_no_fault():
    def answer(request: Request) -> Any:
        return [RESET] if request.number in (1, 3) else OK

    with FaultServer(answer) as server:
        fleet = Fleet([server.url])
        fleet.tries = 1

        async def work() -> None:
            for _ in range(3):
                assert await asked(fleet) == b"ok"
            assert fleet.servers[0].up

        run(work())
    assert len(server.requests) == 5


def test_a_place_is_held_for_each_request():
    fleet, now, most = Fleet(["http://a", "http://b"]), 0, 0
    fleet.in_flight = 3

    async def one() -> None:
        nonlocal now, most
        async with fleet.place():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now -= 1

    async def work() -> None:
        await asyncio.gather(*(one() for _ in range(50)))

    run(work())
    assert (now, most) == (0, 6)


def test_a_server_that_is_down_is_passed_over_until_it_was_let_in_again():
    admitted: list[str] = []
    well = False

    def sick(request: Request) -> Any:
        return OK if well else [RESET]

    async def work(first: str, second: str) -> None:
        nonlocal well
        fleet = Fleet([first, second])

        async def admit(server: Replica) -> None:
            admitted.append(server.url)

        fleet.admit = admit
        homes = [str(i).encode() for i in range(20)]
        assert [await asked(fleet, home) for home in homes] == [b"ok"] * 20
        one, other = fleet.servers
        assert not one.up and other.up and not admitted and one.why
        well = True
        while not one.up:
            await asyncio.sleep(0.001)
        assert admitted == [first]
        before = len(down.requests)
        assert [await asked(fleet, home) for home in homes] == [b"ok"] * 20
        assert len(down.requests) > before

    with FaultServer(sick) as down, FaultServer(lambda request: OK) as fit:
        run(work(down.url, fit.url))


def test_a_server_that_is_started_again_is_waited_for_and_given_its_weights():
    """It does not know the weights, then is away, then not well, then needs two goes to be let in."""
    steps = iter(["404", "away", "unwell", "well"])
    state, tried = next(steps), 0

    def answer(request: Request) -> Any:
        nonlocal state
        if request.target == "/health":
            state = next(steps, "well")
        if state == "away":
            return [RESET]
        status = {"404": "404 Not Found", "unwell": "503 Service Unavailable"}.get(state, "200 OK")
        return Kept([head(status, "Content-Length: 2") + b"ok"])

    async def work(url: str) -> None:
        fleet = Fleet([url])

        async def admit(server: Replica) -> None:
            nonlocal tried
            tried += 1
            if tried == 1:
                raise EngineFailure(EngineFault.VERSION, "it has other weights")

        fleet.admit = admit
        assert await asyncio.gather(*(asked(fleet) for _ in range(5))) == [b"ok"] * 5
        assert tried == 2

    with FaultServer(answer) as server:
        run(work(server.url))


def test_a_server_that_breaks_the_last_try_is_waited_for_by_the_next_turn():
    with FaultServer(lambda request: [RESET] if request.number == 0 else OK) as server:
        fleet = Fleet([server.url])
        fleet.tries = 1

        async def work() -> None:
            with pytest.raises(EngineFailure) as failure:
                await asked(fleet)
            assert failure.value.fault is EngineFault.CONNECT
            assert await asked(fleet) == b"ok"

        run(work())


def test_what_ended_for_good_is_not_waited_for():
    failure = EngineFailure(EngineFault.DOWN, "it ended 20 times")
    ended: list[EngineFailure] = []
    fleet = Fleet(["http://127.0.0.1:9"], ended=lambda: ended[0] if ended else None)

    async def work() -> None:
        waiting = [asyncio.ensure_future(asked(fleet)) for _ in range(3)]
        while fleet.servers[0].up:
            await asyncio.sleep(0.001)
        ended.append(failure)
        for one in waiting:
            with pytest.raises(EngineFailure, match="20 times"):
                await one

    run(work())


def test_time_that_is_over_says_what_was_wrong():
    async def work() -> None:
        fleet = Fleet(["http://127.0.0.1:9"])
        fleet.servers[0].set_down("it was switched off")
        for _ in range(2):
            with pytest.raises(
                EngineFailure, match=r"127.0.0.1:9 is down: it was switched off"
            ) as failure:
                await asked(fleet, ends=soon(0.05))
            assert failure.value.fault is EngineFault.TIMEOUT

    run(work())


def test_tries_are_counted_and_pauses_grow(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.1)
    pauses, slept = [], asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await slept(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    waits = iter([0.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0])

    async def attempt(server: Replica) -> bytes:
        raise EngineFailure(EngineFault.FULL, "http://a: it is full", next(waits))

    monkeypatch.setattr(Fleet, "tries", 7)
    with pytest.raises(EngineFailure, match=r"http://a: it is full") as failure:
        run(Fleet(["http://a"]).run(b"", attempt, 2.0**40))
    assert failure.value.fault is EngineFault.FULL
    assert pauses == pytest.approx([0.1, 0.2, 1.5, 0.8, 1.6, 2.0])


def test_what_no_try_can_help_is_not_tried_again():
    tried = 0

    async def attempt(server: Replica) -> bytes:
        nonlocal tried
        tried += 1
        raise EngineFailure(EngineFault.STATUS, "it says no")

    with pytest.raises(EngineFailure, match="says no") as failure:
        run(Fleet(["http://a"]).run(b"", attempt, 2.0**40))
    assert failure.value.fault is EngineFault.STATUS and tried == 1


def test_a_server_that_was_down_is_looked_at_on_the_next_loop_too():
    async def first() -> None:
        fleet.servers[0].set_down("gone")
        fleet._watch()

    with FaultServer(lambda request: OK) as server:
        fleet = Fleet([server.url])
        run(first())
        assert not fleet.servers[0].up
        assert run(asked(fleet, ends=2.0**40)) == b"ok"
