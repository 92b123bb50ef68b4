"""A vLLM server of our own: started on this machine, watched, started again when it ends, and never left behind.

It listens on loopback only. Its output goes to a log file, whose last lines are in every error. vLLM adapts the output
head of some model types only; of the others, one that computes what Llama does is served as a Llama.
"""

import contextlib
import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import httpx

from ....tools.files import open_to_append
from ....tools.progress import Progress
from ....tools.subprocesses.process import Child
from ...engine import EngineFailure, EngineFault
from ...models.memory import check_fits
from ...policy import ADAPTER, Policy
from .client import TOP

# Adapters come while it runs, and its model is a folder.
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
BASE = "policy"  # the name under which the model without an adapter is served
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # --max-lora-rank takes these alone
# Options that follow from the run's settings.
OURS = {
    "model",
    "served-model-name",
    "host",
    "port",
    "dtype",
    "enable-lora",
    "max-lora-rank",
    "max-loras",
}
OURS |= {"logprobs-mode", "max-logprobs", "max-model-len", "enable-prefix-caching"}
# The CPU build (0.32) ends at a prompt in parts whose request has a seed ("CPU Generator does not use offset").
ON_CPU = ("enable-chunked-prefill=false",)
LAST_LINES = 15
RESTARTS = 20  # how often it is started again, which is logged, before that is a failure
HEAD = "lm_head"
# Types whose class in vLLM 0.32 lists the head among its `embedding_modules`.
HEADED = frozenset({"llama", "qwen3", "qwen3_moe", "granite", "nemotron", "exaone4"})
# Types that are Llama with these settings, where no window slides.
LLAMA = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False}
AS_LLAMA = {"qwen2": {"qkv_bias": True}, "mistral": {"qkv_bias": False}}
_POLL = 0.5  # seconds between two looks at the server


def served_rank(rank: int) -> int:
    """Return the smallest `--max-lora-rank` that carries adapters of this rank; ValueError where there is none."""
    if rank > RANKS[-1]:
        raise ValueError(
            f"the adapter's rank is {rank}; vLLM serves ranks up to {RANKS[-1]}: lower the rank"
        )
    return min(allowed for allowed in RANKS if rank <= allowed)


def flags(options: Sequence[str]) -> list[str]:
    """Return the command-line flags of `name=value` options; `true` and `false` set and unset a flag."""
    found = []
    for option in options:
        name, equals, value = option.partition("=")
        name = name.strip().lstrip("-").replace("_", "-")
        if not equals or not name:
            raise ValueError(
                f"server option {option!r}; write name=value, such as gpu-memory-utilization=0.5"
            )
        if name in OURS:
            raise ValueError(
                f"server option {name!r} follows from the run's own settings; leave it out"
            )
        found += {"true": [f"--{name}"], "false": [f"--no-{name}"]}.get(
            value.lower(), [f"--{name}", value]
        )
    return found


class VllmServer:
    """A vLLM process with a policy's model, at a URL that stays the same when it is started again.

    As a context manager it starts, waits until it has drawn a token, and ends with all that it started. Where it does
    not start it raises `EngineFailure`: DOWN, its process ended; TIMEOUT, it drew nothing in time.

    policy: Whose model, with place for its adapters.
    log: File that gets what the server says; made with its folder.
    options: More settings of vLLM as `name=value`.
    python: Interpreter with vLLM; None: this one.
    start: Seconds until the first token must have come.

    Raises ValueError where its model does not fit into memory, vLLM cannot carry the adapter, or an option is wrong.
    """

    def __init__(
        self,
        policy: Policy,
        log: Path,
        options: Sequence[str] = (),
        python: Path | None = None,
        start: float = 900.0,
    ) -> None:
        dtype, context = str(policy.base.dtype).removeprefix("torch."), policy.max_context
        check_fits(policy.folder, dtype, str(policy.device), context=context)
        options = (
            *head_options(policy),
            *(ON_CPU if policy.device.type == "cpu" else ()),
            *options,
        )
        self.log, self.starts, self.pid = log, 0, 0  # pid is also the number of the process group
        self.failure: EngineFailure | None = None
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = [str(python or sys.executable), "-m", "vllm.entrypoints.openai.api_server"]
        self.command += [
            "--model",
            str(policy.folder),
            "--served-model-name",
            BASE,
            "--host",
            "127.0.0.1",
        ]
        self.command += ["--port", str(port), "--dtype", dtype, "--max-model-len", str(context)]
        self.command += [
            "--enable-prefix-caching",
            "--logprobs-mode",
            "processed_logprobs",
            "--max-logprobs",
            str(TOP),
        ]
        if policy.lora is not None:  # the new adapter and the one before it are there at once
            self.command += [
                "--enable-lora",
                "--max-loras",
                "2",
                "--max-lora-rank",
                str(served_rank(policy.lora.rank)),
            ]
        self.command += ["--disable-uvicorn-access-log", *flags(options)]
        self._seconds = start
        self._child: Child | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="turngym-", ignore_cleanup_errors=True)
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="turngym-vllm", daemon=True)

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        open_to_append(self.log).close()  # refuses a link or a pipe in its place
        try:
            self._launch()
            self._wait()
            self._watcher.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._child is not None:
            self._child.close()
        self._scratch.cleanup()

    def _launch(self) -> None:
        modules = "contextlib, os, signal, socket, subprocess, sys, threading"
        guard = f"import {modules}\n{inspect.getsource(_guard)}\n_guard(*sys.argv[1:])"
        command = [sys.executable, "-I", "-c", guard, str(self.log.resolve()), *self.command]
        self._child = Child(
            command, env={**os.environ, **ENVIRONMENT, "TMPDIR": self._scratch.name}
        )
        self.starts, self.pid = self.starts + 1, self._child.pid

    def _wait(self) -> None:
        client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)
        with client, Progress("waiting for the vLLM server") as work:
            while reason := _unready(client):
                if not self.alive:
                    raise self._failure(EngineFault.DOWN, "the vLLM server ended while it started")
                if work.seconds > self._seconds:
                    what = f"the vLLM server drew no token in {self._seconds:g} s ({reason})"
                    raise self._failure(EngineFault.TIMEOUT, what)
                work.text = f"{reason}; log: {self.log}"
                time.sleep(_POLL)

    def _watch(self) -> None:
        while not self._closing.wait(_POLL):
            if self.alive or self._child is None:
                continue
            if self.starts > RESTARTS:
                what = f"the vLLM server ended {self.starts} times; it is not started again"
                self.failure = self._failure(EngineFault.DOWN, what)
                return
            what = "the vLLM server ended; starting it again"
            logging.getLogger(__name__).info(f"{what} ({self.starts} of {RESTARTS})")
            self._child.close()
            self._launch()

    def _failure(self, fault: EngineFault, what: str) -> EngineFailure:
        lines = ["(it wrote nothing)"]
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 8192, 0))
            lines = file.read().decode(errors="replace").splitlines()
        text = "\n".join(line[:300] for line in lines[-LAST_LINES:])
        return EngineFailure(fault, f"{what}; the last lines of {self.log}:\n{text}")


def _guard(log: str, *rest: str) -> None:
    """Run a command, and end it with all that it started when the process that asked for it goes away.

    An interpreter of its own runs this, which imports nothing of the package. The command shares its process group, so
    one signal ends them all; the other end of the socket, the last argument, closes however its holder dies.
    """
    *command, number = rest
    holder = socket.socket(fileno=int(number))
    holder.set_inheritable(False)
    file = open(log, "ab")  # noqa: PTH123, SIM115
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def end_with_holder() -> None:
        with contextlib.suppress(OSError):
            holder.recv(1)
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(2.0)  # seconds in which it may end by itself
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_holder, daemon=True).start()
    file.write(f"the server's process ended with exit code {server.wait()}\n".encode())
    file.flush()
    os.killpg(0, signal.SIGKILL)


def _unready(client: httpx.Client) -> str:
    """Return why the server cannot draw yet; "" when it drew a token."""
    try:
        answer = client.post(
            "/v1/completions", json={"model": BASE, "prompt": [0], "max_tokens": 1}
        )
    except httpx.ConnectError:
        return "it loads the model"
    except httpx.HTTPError as error:
        return f"it answers no request yet ({type(error).__name__})"
    return "" if answer.is_success else f"it answers {answer.status_code}: {answer.text[:200]}"


def head_options(policy: Policy) -> tuple[str, ...]:
    """Return the options with which vLLM carries the adapter of the policy's output head; ValueError if it cannot."""
    config = policy.base.config.to_dict()
    kind = str(config["model_type"])
    if policy.lora is None or kind in HEADED:
        return ()
    targets = set(policy.model.peft_config[ADAPTER].target_modules)
    if HEAD not in targets:
        return ()
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if kind not in AS_LLAMA or window is not None:
        others = " ".join(sorted(targets - {HEAD})) or "q_proj v_proj"
        why = (
            f"its attention slides over {window} tokens"
            if kind in AS_LLAMA
            else f"its type is {kind!r}"
        )
        size = f"{policy.vocabulary} x {config['hidden_size']}, rank {policy.lora.rank}"
        what = f"vLLM cannot carry the adapter of the output head ({size}) of this model ({why})"
        raise ValueError(
            f"{policy.folder}: {what}; name targets without the head: --targets {others}"
        )
    return (f"hf-overrides={json.dumps(LLAMA | AS_LLAMA[kind])}",)
