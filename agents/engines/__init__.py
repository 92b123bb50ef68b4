"""Engines behind the interface of `agents.engine`, and the choice of one.

torch: the embedded engine, which runs the model in this process
vllm: the engine whose turns vLLM servers draw
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..cli.settings import EngineChoice
    from ..policy import Policy
    from .torch import TorchEngine
    from .vllm import VllmEngine

log = logging.getLogger(__name__)


@contextmanager
def open_engine(
    choice: "EngineChoice",
    policy: "Policy",
    folder: Path,
    deadline: float = 600.0,
    threads: int | None = None,
) -> "Iterator[TorchEngine | VllmEngine]":
    """Have an engine that draws from `policy`, and end with it what was started for it.

    folder: Where a server finds adapters, and writes its log.
    threads: CPU threads that draw in this process; None for as many as pay, at most OMP_NUM_THREADS if that is set.
    deadline: Seconds in which a server must have drawn a turn or be back, if it went away.

    Raises ValueError where a server does not fit the policy; EngineFailure where a server cannot be had.
    """
    with ExitStack() as stack:
        engine: "TorchEngine | VllmEngine"
        if choice.engine == "torch":
            from .torch import TorchEngine

            engine = TorchEngine(policy, threads=threads)
            if threads is None:
                named = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
                engine.measure_threads(int(named) if named.isdigit() else os.cpu_count() or 1)
                log.info("%d threads draw", engine.threads)
            if engine.forward != "own":
                log.warning(
                    "rollouts are slower than with the usual architectures: %s", engine.forward
                )
        else:
            from .vllm.engine import Fleet, VllmEngine
            from .vllm.publish import Publisher
            from .vllm.server import VllmServer

            if choice.own_server:
                own = VllmServer(policy, log=folder / "server.log", options=choice.server_option)
                server = stack.enter_context(own)
                fleet = Fleet([server.url], deadline=deadline, ended=lambda: server.failure)
            else:
                fleet = Fleet(choice.server, deadline=deadline)
            publisher = Publisher(policy, fleet.servers, folder / "adapters")
            if not choice.own_server:
                publisher.check()
            engine = VllmEngine(policy, fleet, publisher)
        stack.callback(engine.close)
        yield engine
