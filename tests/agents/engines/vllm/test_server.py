"""A server of our own: its life, with a stand-in for vLLM's interpreter, and model folders as it can carry them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import EngineFailure, EngineFault
from turngym.agents.engines.vllm import server as module
from turngym.agents.engines.vllm.server import BASE, VllmServer, flags, head_options, served_rank
from turngym.agents.models.resolve import TINY
from turngym.agents.policy import Policy, load_policy
from turngym.tools.progress import current_work

HEAD = LoraOptions(rank=4)

STAND_IN = """#!{python} -S
import http.server, json, os, subprocess, sys, threading, time
args = sys.argv[1:]
print("arguments", json.dumps(args), "adapters", os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING"), flush=True)
if "--refuse" in args:
    print("ValueError: no such model", flush=True)
    sys.exit(3)
engine = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
print("engine", engine.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    left = 2
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Handler.left -= 1
        data = json.dumps(body).encode()
        self.send_response(200 if Handler.left < 0 and "--never" not in args else 500)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(args[args.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy(TINY, lora=LoraOptions(rank=20))


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_POLL", 0.02)
    file = tmp_path / "python"
    file.write_text(STAND_IN.format(python=sys.executable))
    file.chmod(0o755)
    return file


def until(true: Callable[[], bool]) -> None:
    while not true():  # the test's own timeout ends a wait in vain
        time.sleep(0.01)


def engines(log: Path) -> list[int]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("engine ")]


def runs(pid: int) -> bool:
    try:
        return (
            f"{pid} (" in Path(f"/proc/{pid}/stat").read_text()
            and ") Z" not in Path(f"/proc/{pid}/stat").read_text()
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_starts_tells_what_it_waits_for_and_ends_with_its_children(
    tiny: Policy, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, waits = tmp_path / "run" / "server.log", []
    unready = module._unready
    monkeypatch.setattr(
        module,
        "_unready",
        lambda client: waits.extend(work.text for work in current_work()) or unready(client),
    )
    with VllmServer(
        tiny,
        log=log,
        options=("swap-space=0", "enforce_eager=true"),
        python=python,
    ) as server:
        assert server.alive and server.starts == 1 and server.failure is None
        assert server.url.startswith("http://127.0.0.1:")
        (engine,) = engines(log)
        assert runs(engine)
        said = log.read_text()
    for words in (
        ["--host", "127.0.0.1"],
        ["--max-lora-rank", "32"],
        ["--max-model-len", str(tiny.max_context)],
        ["--served-model-name", BASE],
        ["--logprobs-mode", "processed_logprobs"],
        ["--swap-space", "0"],
        ["--enforce-eager"],
    ):
        assert ", ".join(f'"{word}"' for word in words) in said
    assert "adapters True" in said
    assert any("it answers 500" in text and str(log) in text for text in waits)
    until(lambda: not runs(engine))
    assert not server.alive


def test_a_server_that_ends_is_started_again_at_the_same_url_and_not_forever(
    tiny: Policy,
    python: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(module, "RESTARTS", 2)
    log = tmp_path / "server.log"
    with VllmServer(tiny, log=log, python=python) as server:
        url = server.url
        for starts in (2, 3):
            engine = engines(log)[-1]
            os.killpg(server.pid, signal.SIGKILL)
            until(lambda n=starts: server.starts == n and len(engines(log)) == n)
            until(lambda pid=engine: not runs(pid))
            assert server.url == url
            assert f"starting it again ({starts - 1} of 2)" in caplog.messages[-1]
        os.killpg(server.pid, signal.SIGKILL)
        until(lambda: server.failure is not None)
        assert server.failure is not None and server.failure.fault is EngineFault.DOWN
        assert "ended 3 times" in str(server.failure) and "engine" in str(server.failure)
    until(lambda: not any(runs(engine) for engine in engines(log)))


def test_one_that_ends_while_it_starts_says_why(tiny: Policy, python: Path, tmp_path: Path) -> None:
    server = VllmServer(tiny, log=tmp_path / "server.log", python=python, options=("refuse=true",))
    with pytest.raises(
        EngineFailure, match=r"(?s)ended while it started.*no such model.*exit code 3"
    ) as caught:
        server.__enter__()
    assert caught.value.fault is EngineFault.DOWN and not server.alive


def test_one_that_never_draws_is_ended(tiny: Policy, python: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = VllmServer(tiny, log=log, python=python, options=("never=true",), start=0.5)
    with pytest.raises(EngineFailure, match=r"drew no token in 0\.5 s") as caught:
        server.__enter__()
    assert caught.value.fault is EngineFault.TIMEOUT
    until(lambda: not any(runs(engine) for engine in engines(log)))


@pytest.mark.slow
def test_no_server_outlives_a_killed_parent(python: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    script = (
        "import sys, pathlib, time\nfrom turngym.agents.engines.vllm.server import VllmServer\n"
        "from turngym.agents.policy import load_policy\nfrom turngym.agents.models.resolve import TINY\n"
        f"log, python = pathlib.Path({str(log)!r}), pathlib.Path({str(python)!r})\n"
        "server = VllmServer(load_policy(TINY), log=log, python=python)\n"
        "server.__enter__()\n"
        "print('up', flush=True)\ntime.sleep(1000)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=env, text=True
    )
    assert parent.stdout is not None
    with contextlib.closing(parent.stdout):
        assert parent.stdout.readline() == "up\n"
        (engine,) = engines(log)
        assert runs(engine)
        parent.kill()
        parent.wait()
    until(lambda: not runs(engine))


def test_ranks_and_options() -> None:
    assert [served_rank(rank) for rank in (1, 2, 8, 9, 64, 257, 512)] == [1, 8, 8, 16, 64, 320, 512]
    with pytest.raises(ValueError, match="rank is 513; vLLM serves ranks up to 512"):
        served_rank(513)
    assert flags(["gpu_memory_utilization=0.5", "--enforce-eager=True", "async-scheduling=false"]) == [
        "--gpu-memory-utilization", "0.5", "--enforce-eager", "--no-async-scheduling",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="write name=value"):
        flags(["enforce-eager"])
    with pytest.raises(ValueError, match="'max-model-len' follows from the run's own settings"):
        flags(["max_model_len=5"])


def learned(policy: Policy, seed: int = 0) -> Policy:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable_parameters().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return policy


def test_what_can_be_served_as_it_is_needs_no_options(
    qwen3_folder: Path, qwen2_folder: Path
) -> None:
    for policy in (
        load_policy(qwen3_folder, lora=HEAD),
        load_policy(qwen2_folder, lora=LoraOptions(rank=4, targets=("q_proj", "down_proj"))),
        load_policy(qwen2_folder),
    ):
        assert head_options(policy) == ()


@torch.no_grad()
def test_a_qwen2_with_an_adapted_head_is_the_same_llama(qwen2_folder: Path) -> None:
    """`transformers` has a bias on the output projection where Llama has one on the queries: it is 0."""
    policy = learned(load_policy(qwen2_folder, lora=HEAD))
    name, value = flags(head_options(policy))
    changes = json.loads(value)
    assert (name, changes["architectures"]) == ("--hf-overrides", ["LlamaForCausalLM"])
    assert changes["qkv_bias"] and not changes["attention_bias"]
    config = {**policy.base.config.to_dict(), **changes, "model_type": "llama"}

    from transformers import LlamaConfig, LlamaForCausalLM

    llama = LlamaForCausalLM(LlamaConfig(**{**config, "attention_bias": True}))
    report = llama.load_state_dict(load_file(qwen2_folder / "model.safetensors"), strict=False)
    assert not report.unexpected_keys
    assert all(
        key == "lm_head.weight" or key.endswith("o_proj.bias") for key in report.missing_keys
    )
    for layer in llama.model.layers:
        layer.self_attn.o_proj.bias.zero_()
    llama.tie_weights()
    ids = torch.arange(30)[None]
    with policy.reference():
        torch.testing.assert_close(llama(ids).logits, policy.model(ids).logits, atol=2e-5, rtol=0)


def test_a_head_that_cannot_be_carried_is_refused_with_numbers(
    qwen2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_policy(qwen2_folder, lora=HEAD)
    config = policy.base.config.to_dict()
    monkeypatch.setattr(policy.base.config, "to_dict", lambda: {**config, "model_type": "gemma9"})
    with pytest.raises(
        ValueError,
        match=r"293 x 64, rank 4.*its type is 'gemma9'.*without the head: --targets down_proj",
    ):
        head_options(policy)
    slides = {**config, "use_sliding_window": True, "sliding_window": 128}
    monkeypatch.setattr(policy.base.config, "to_dict", lambda: slides)
    with pytest.raises(ValueError, match="slides over 128 tokens"):
        head_options(policy)
