"""Which engine draws: the embedded one, or servers of vLLM, one of our own where none is named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..settings import EngineChoice

if TYPE_CHECKING:
    from ..policy import Policy
    from .server import VllmServer
    from .torch import TorchEngine
    from .vllm import VllmEngine

log = logging.getLogger(__name__)


@contextmanager
def open_engine(
    choice: EngineChoice,
    policy: Policy,
    folder: Path,
    report: Callable[[str], None] = log.info,
    deadline: float = 600.0,
) -> Iterator[TorchEngine | VllmEngine]:
    """Have an engine that draws from `policy`, and end with it what was started for it.

    Args:
        choice: Which engine.
        policy: The policy.
        folder: Where a server finds adapters, and writes its log.
        report: Called with what is being waited for, and what a server did that it should not.
        deadline: Seconds in which a server must have drawn a turn or be back, if it went away.

    Raises:
        ValueError: a server does not fit the policy.
        EngineFailure: a server cannot be had.
    """
    if choice.engine == "torch":
        from .torch import TorchEngine

        engine = TorchEngine(policy)
        try:
            yield engine
        finally:
            engine.close()
        return
    with ExitStack() as stack:
        opened = _serving(choice, policy, folder, report, deadline, stack)
        stack.callback(opened.close)
        yield opened


def _serving(
    choice: EngineChoice,
    policy: Policy,
    folder: Path,
    report: Callable[[str], None],
    deadline: float,
    stack: ExitStack,
) -> VllmEngine:
    """Return an engine that draws from the servers named, or from one that ends with `stack`."""
    from ._servers import ServerPool
    from ._sync import Publisher
    from .checks import check_server
    from .vllm import VllmEngine

    if choice.own_server:
        server = stack.enter_context(_own_server(choice, policy, folder, report))
        pool = ServerPool([server.url], ended=lambda: server.failure)
    else:
        for url in choice.server:
            check_server(url, policy)
        pool = ServerPool(choice.server)
    adapters = folder / "adapters"
    publisher = Publisher(policy, [server.url for server in pool.servers], adapters, deadline=deadline, log=report)
    return VllmEngine(policy, pool, adapters=adapters, deadline=deadline, publisher=publisher)


def _own_server(choice: EngineChoice, policy: Policy, folder: Path, report: Callable[[str], None]) -> VllmServer:
    from .checks import check_memory
    from .servable import servable
    from .server import ON_CPU, VllmServer

    dtype = str(policy.base.dtype).removeprefix("torch.")
    rank = policy.lora.rank if policy.lora else 0
    check_memory(policy.folder, dtype, max_context=policy.max_context, rank=rank, device=str(policy.device))
    return VllmServer(
        servable(policy, folder / "served"),
        log=folder / "server.log",
        rank=rank or None,
        dtype=dtype,
        max_context=policy.max_context,
        options=(*(ON_CPU if policy.device.type == "cpu" else ()), *choice.server_option),
        report=report,
    )
