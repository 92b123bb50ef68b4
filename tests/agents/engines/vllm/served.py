"""A policy, a publisher and a server that are quick to have."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from tokenizers import Tokenizer, decoders, models

from turngym.agents.engines.vllm import VllmEngine
from turngym.agents.engines.vllm.client import Replica
from turngym.agents.engines.vllm.engine import Fleet
from turngym.tests.support.model_server import MadeUp, ModelServer

LETTERS = "abcdefghijklmnopqrstuvwxyz<>/\n ü"
END = 40  # of 41 ids: the letters, some pairs, and what ends a turn
PAIRS = ("</", "a>", "th", "he", "in", "an", "er", "on")


def made_policy() -> Any:
    """What the engine asks of a policy."""
    words = {text: i for i, text in enumerate([*LETTERS, *PAIRS, "<end>"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a"))
    tokenizer.decoder = decoders.Fuse()
    return SimpleNamespace(
        tokenizer=tokenizer,
        vocabulary=len(words),
        max_context=200,
        end_ids=frozenset({END}),
        version=3,
    )


def made_up(context: int = 200) -> MadeUp:
    """The model of `made_policy`."""
    policy = made_policy()
    return MadeUp(
        policy.vocabulary,
        lambda ids: policy.tokenizer.decode(ids, skip_special_tokens=False),
        context,
    )


@dataclass
class Published:
    """Says that servers have the policy's weights."""

    policy: Any
    away: set[str] = field(default_factory=set)
    restored: list[str] = field(default_factory=list)
    servers: list[Replica] = field(default_factory=list)

    async def publish(self) -> None:
        for server in self.servers:
            server.model = "" if server.url in self.away else f"v{self.policy.version}"

    async def restore(self, server: Replica) -> None:
        self.restored.append(server.url)
        server.model = f"v{self.policy.version}"


@dataclass
class Ends:
    """Ends a turn where one of its closers was said for the nth time."""

    closers: tuple[str, ...]
    n: int = 1

    def complete(self, text: str) -> bool:
        return sum(text.count(closer) for closer in self.closers) >= self.n


def engine(
    policy: Any, urls: list[str], publisher: Published | None = None, **options: Any
) -> VllmEngine:
    """An engine on servers that were made up."""
    fleet = Fleet(
        urls, **{name: options.pop(name) for name in ("ended", "deadline") if name in options}
    )
    for name in ("in_flight", "tries"):
        setattr(fleet, name, options.pop(name, getattr(fleet, name)))
    publisher = publisher or Published(policy)
    publisher.servers = fleet.servers
    return VllmEngine(policy, fleet, cast("Any", publisher), **options)


def run(server: ModelServer, work: Callable[[VllmEngine], Awaitable[Any]], **options: Any) -> Any:
    """What `work` returns, given an engine on `server`."""

    async def main() -> Any:
        with server.run() as url, closing(engine(made_policy(), [url], **options)) as opened:
            await opened.sync()
            return await asyncio.wait_for(work(opened), 60)

    return asyncio.run(main())
