"""Publishing weights to servers that really compute log-probabilities from the files that they are told to load."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engine import EngineFailure, EngineFault
from turngym.agents.engines.vllm import publish
from turngym.agents.engines.vllm.client import Replica
from turngym.agents.engines.vllm.publish import POINTS, Publisher, prompts
from turngym.agents.policy import Policy, load_policy
from turngym.tests.support.adapter_damage import DAMAGE, damage

LORA = LoraOptions(rank=4, alpha=8.0)


class Server:
    """A server of one model: LoRA adapters by name, each with its own prefix cache, and what can be wrong with it."""

    def __init__(self, folder: Path, lora: LoraOptions = LORA, limit: int = 8) -> None:
        self.lora, self.limit = lora, limit
        self.policy = load_policy(folder, lora=lora)
        self.adapters: dict[str, dict[str, torch.Tensor]] = {}
        self.loads: list[str] = []
        self.cache: dict[object, torch.Tensor] = {}
        self.cached_by_prompt_alone = False
        self.answers_as: str | None = None
        self.frozen = False
        self.broken = self.ending = 0
        self.lock = threading.Lock()
        self.forwards: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
        asked = prompts(self.policy)
        self.wholes = [asked[POINTS - 1].tolist(), asked[-1].tolist()]

    def load(self, name: str, path: Path) -> tuple[int, object]:
        if name in self.adapters:
            return 400, {
                "error": {"message": f"The lora adapter '{name}' has already been loaded."}
            }
        settings = json.loads((path / "adapter_config.json").read_text())
        if settings["r"] > self.limit:
            return 500, {
                "error": {
                    "message": f"LoRA rank {settings['r']} is greater than max_lora_rank {self.limit}."
                }
            }
        try:
            found = load_file_as_learned(path)
        except Exception as error:
            return 500, {"error": {"message": str(error)}}
        scale = settings["lora_alpha"] / settings["r"] / (self.lora.alpha / self.lora.rank)
        self.adapters[name] = {key: t * scale if "lora_B" in key else t for key, t in found.items()}
        self.loads.append(name)
        return 200, "Success"

    def unload(self, name: str) -> tuple[int, object]:
        return (
            (200, "Success")
            if self.adapters.pop(name, None) is not None
            else (404, {"error": "not found"})
        )

    @torch.no_grad()
    def complete(self, body: dict) -> tuple[int, object]:
        model, asked = body["model"], body["prompt"]
        if self.broken:
            self.broken -= 1
            return 503, {"error": "busy"}
        if self.ending:
            return 500, {"error": {"message": "EngineCore encountered an issue."}}
        if model not in ("policy", *self.adapters):
            return 404, {"error": {"message": f"The model `{model}` does not exist."}}
        if max(asked) >= self.policy.vocabulary:
            return 400, {"error": {"message": f"Token id {max(asked)} is out of vocabulary"}}
        top = self._top(model, asked)
        name = next(iter(top))
        logprobs = {"tokens": [name], "token_logprobs": [top[name]], "top_logprobs": [top]}
        choice = {
            "index": 0,
            "logprobs": logprobs,
            "prompt_token_ids": asked,
            "finish_reason": "length",
        }
        choice |= {"token_ids": [int(name.removeprefix("token_id:"))], "stop_reason": None}
        return 200, {"id": f"cmpl-{body['request_id']}", "model": model, "choices": [choice]}

    def _top(self, model: str, prompt: list[int]) -> dict[str, float]:
        key = (None if self.cached_by_prompt_alone else (model, self.answers_as), tuple(prompt))
        logp = self.cache.get(key)
        if logp is None:
            logp = self.cache[key] = self._forward(self.answers_as or model, prompt)[
                len(prompt) - 1
            ]
        return {f"token_id:{i}": float(v) for v, i in zip(*logp.topk(20), strict=True)}

    def _forward(self, model: str, prompt: list[int]) -> torch.Tensor:
        """One pass for all that are prefixes of one another: row i does not see what is behind it."""
        whole = next((one for one in self.wholes if one[: len(prompt)] == prompt), prompt)
        if (model, tuple(whole)) not in self.forwards:
            self.forwards[model, tuple(whole)] = self._run(model, whole)
        return self.forwards[model, tuple(whole)]

    def _run(self, model: str, prompt: list[int]) -> torch.Tensor:
        adapter = self.adapters.get(model, {})
        for name, parameter in self.policy.trainable_parameters().items():
            value = adapter.get(name.replace(".default.", "."))
            parameter.zero_() if value is None else parameter.copy_(value)
        return self.policy.model(input_ids=torch.tensor([prompt])).logits[0].log_softmax(-1)


def load_file_as_learned(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path / "adapter_model.safetensors")


def serve(server: Server) -> tuple[ThreadingHTTPServer, str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health" and server.ending:
                server.ending -= 1
                return self._answer(503, {})
            cards = [
                {"id": "policy", "parent": None},
                *({"id": n, "parent": "policy"} for n in server.adapters),
            ]
            self._answer(200, {"data": cards})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with server.lock:
                if self.path == "/v1/load_lora_adapter":
                    self._answer(*server.load(body["lora_name"], Path(body["lora_path"])))
                elif self.path == "/v1/unload_lora_adapter":
                    self._answer(*server.unload(body["lora_name"]))
                else:
                    self._answer(*server.complete(body))

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return http, f"http://127.0.0.1:{http.server_address[1]}"


def move(policy: Policy, std: float, seed: int) -> None:
    """An update of the size of one that was learned."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable_parameters().items():
            if "lora_B" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * std)
    policy.version += 1


@pytest.fixture
def policy(qwen3_folder: Path) -> Policy:
    policy = load_policy(qwen3_folder, lora=LORA)
    move(policy, 0.1, 0)
    return policy


@pytest.fixture
def server(qwen3_folder: Path) -> Server:
    return Server(qwen3_folder)


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    http, address = serve(server)
    yield address
    http.shutdown()
    http.server_close()


def publisher(policy: Policy, folder: Path, *urls: str, deadline: float = 20.0) -> Publisher:
    return Publisher(policy, [Replica(url, deadline) for url in urls], folder / "adapters")


def models(made: Publisher) -> list[str]:
    """What each server is known to have."""
    return [server.model for server in made.servers]


def published(made: Publisher) -> str:
    """The name by which requests reach the published weights."""
    assert made.present is not None
    return made.present.name


def check_server(url: str, policy: Policy, folder: Path) -> None:
    publisher(policy, folder, url).check()


@pytest.fixture
def found(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Holds what publishers find that is not plainly right."""
    caplog.set_level("INFO", "turngym.agents.engines.vllm")
    return caplog


def test_updates_are_told_right_and_old_ones_go(
    policy: Policy, url: str, server: Server, tmp_path: Path, found: pytest.LogCaptureFixture
) -> None:
    made = publisher(policy, tmp_path, url)
    names = []
    for step in range(5):
        asyncio.run(made.publish())
        assert made.version == policy.version and models(made) == [published(made)]
        names.append(published(made))
        move(policy, 0.001 * (1 + step), step)
    assert len(set(names)) == 5 and not found.messages
    assert list(server.adapters) == names[-2:]
    assert sorted(f.name for f in (tmp_path / "adapters").glob("v*")) == ["v4.4", "v5.5"]


@pytest.fixture(scope="module")
def another_run(qwen3_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    other = load_policy(qwen3_folder, lora=LORA, seed=9)
    move(other, 0.1, 5)
    other.save_adapter(tmp_path_factory.mktemp("other") / "adapter")
    return tmp_path_factory.getbasetemp() / "other0" / "adapter"


@pytest.mark.slow
def test_every_damage_is_detected_before_anything_is_drawn(
    policy: Policy,
    url: str,
    server: Server,
    another_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    name, version, old = published(made), made.version, tmp_path / "adapters" / "v1.1"
    move(policy, 0.01, 1)
    seen, load = {}, Replica.load
    for kind in DAMAGE:

        async def wrong(to: Replica, name: str, folder: Path, kind: str = kind) -> None:
            await load(to, name, damage(kind, folder, old, another_run, tmp_path / "damaged"))

        monkeypatch.setattr(Replica, "load", wrong)
        with pytest.raises(EngineFailure) as caught:
            asyncio.run(made.publish())
        seen[kind] = caught.value.fault
        assert (published(made), made.version, models(made)) == (name, version, [""])
        assert list(server.adapters) == [name] and list((tmp_path / "adapters").glob("v*")) == [old]
    assert len(seen) == len(DAMAGE) >= 25
    files = {"half-written", "hole at the end", "empty file"}
    assert {kind for kind, fault in seen.items() if fault is EngineFault.STATUS} <= files
    assert all(fault is EngineFault.VERSION for kind, fault in seen.items() if kind not in files)


def test_the_failure_names_what_the_server_answers_like(
    policy: Policy, url: str, server: Server, tmp_path: Path
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    before = published(made)
    server.answers_as = before  # it takes the new adapter and goes on with the one before
    move(policy, 0.01, 1)
    with pytest.raises(EngineFailure, match=f"nearest to adapter {before}"):
        asyncio.run(made.publish())
    server.answers_as = "policy"
    with pytest.raises(EngineFailure, match="nearest to no adapter"):
        asyncio.run(made.publish())
    server.answers_as = None
    asyncio.run(made.publish())
    assert made.version == 2 and published(made) != before


def test_a_prefix_cache_that_ignores_the_adapter_is_seen(
    policy: Policy, url: str, server: Server, tmp_path: Path
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    server.cached_by_prompt_alone = True
    server.cache = {(None, key[1]): value for key, value in server.cache.items()}
    move(policy, 0.01, 1)
    with pytest.raises(EngineFailure) as caught:
        asyncio.run(made.publish())
    assert caught.value.fault is EngineFault.VERSION


def test_weights_that_hardly_moved_are_called_indistinguishable(
    policy: Policy, url: str, tmp_path: Path, found: pytest.LogCaptureFixture
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    before = published(made)
    move(policy, 1e-9, 1)
    asyncio.run(made.publish())
    assert len(found.messages) == 1 and before in found.messages[0]


def test_unchanged_weights_are_probed_and_not_loaded_again(
    policy: Policy, url: str, server: Server, tmp_path: Path
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    loads, name = len(server.loads), published(made)
    asyncio.run(made.publish())
    assert (len(server.loads), published(made)) == (loads, name)
    server.answers_as = "policy"
    with pytest.raises(EngineFailure, match="no adapter"):
        asyncio.run(made.publish())
    server.answers_as = None
    move(policy, 0.01, 1)
    policy.version -= 1  # weights that changed without a new version get a new name all the same
    asyncio.run(made.publish())
    assert published(made) != name and made.version == 1


@pytest.mark.slow
def test_a_server_that_starts_again_is_restored(
    policy: Policy, url: str, server: Server, tmp_path: Path
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    server.adapters.clear()
    server.cache.clear()

    async def several() -> None:
        await asyncio.gather(*(made.restore(made.servers[0]) for _ in range(5)))

    loads = len(server.loads)
    asyncio.run(several())
    assert list(server.adapters) == [published(made)] and len(server.loads) == loads + 1
    asyncio.run(made.restore(made.servers[0]))
    assert models(made) == [published(made)]


def test_a_server_restored_while_weights_are_published_has_the_new_ones(
    policy: Policy, url: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    old, draw = published(made), Replica.draw

    async def both() -> None:
        begun, published = asyncio.Event(), asyncio.Event()

        async def slow(to: Replica, request: Any, name: str) -> Any:
            shown = await draw(to, request, name)
            if name == old and not begun.is_set():
                begun.set()
                await published.wait()
            return shown

        monkeypatch.setattr(Replica, "draw", slow)
        restoring = asyncio.create_task(made.restore(made.servers[0]))
        await begun.wait()
        move(policy, 0.01, 1)
        await made.publish()
        published.set()
        await restoring

    asyncio.run(both())
    assert models(made) == [published(made)] != [old]


@pytest.mark.slow
def test_one_of_two_servers(
    policy: Policy, qwen3_folder: Path, url: str, server: Server, tmp_path: Path
) -> None:
    second = Server(qwen3_folder)
    http, other = serve(second)
    made = publisher(policy, tmp_path, url, other)
    asyncio.run(made.publish())
    assert models(made) == [published(made), published(made)]
    second.answers_as, name = published(made), published(made)
    move(policy, 0.01, 1)
    with pytest.raises(EngineFailure, match=other):
        asyncio.run(made.publish())
    assert published(made) == name
    http.shutdown()
    http.server_close()
    asyncio.run(made.publish())
    assert models(made) == [published(made), ""] and made.version == 2
    with pytest.raises(EngineFailure) as caught:
        asyncio.run(made.restore(made.servers[1]))
    assert caught.value.fault is EngineFault.CONNECT


def test_a_server_that_is_away_is_waited_for_until_the_deadline(
    policy: Policy, url: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PAUSE", 0.01)
    server.broken = 5
    made = publisher(policy, tmp_path, url)
    asyncio.run(made.publish())
    server.broken = 10**6
    late = publisher(policy, tmp_path / "late", url, deadline=0.05)
    with pytest.raises(EngineFailure) as caught:
        asyncio.run(late.publish())
    assert caught.value.fault in (EngineFault.FULL, EngineFault.TIMEOUT)
    assert late.present is None
    with pytest.raises(RuntimeError, match="nothing was published"):
        asyncio.run(late.restore(late.servers[0]))


def test_a_server_that_is_ending_is_waited_for(
    policy: Policy, url: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PAUSE", 0.01)
    made = publisher(policy, tmp_path, url)
    for step in range(2):
        server.ending = 3
        asyncio.run(made.publish())
        assert not server.ending and made.version == policy.version
        move(policy, 0.01, step)


def test_a_policy_without_an_adapter_is_probed_alone(
    qwen3_folder: Path, url: str, server: Server, tmp_path: Path, found: pytest.LogCaptureFixture
) -> None:
    plain = load_policy(qwen3_folder)
    made = publisher(plain, tmp_path, url)
    asyncio.run(made.publish())
    assert not found.messages and models(made) == ["policy"] and not server.loads


def test_check_takes_what_fits(policy: Policy, url: str, server: Server, tmp_path: Path) -> None:
    check_server(url, policy, tmp_path)
    assert not server.adapters
    check_server(url, load_policy(policy.folder), tmp_path)


def test_check_refuses_with_numbers(
    policy: Policy, url: str, server: Server, qwen2_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:1: "):
        check_server("http://127.0.0.1:1", policy, tmp_path)
    with pytest.raises(ValueError, match="LoRA rank 16 is greater than max_lora_rank 8"):
        check_server(url, load_policy(policy.folder, lora=LoraOptions(rank=16)), tmp_path)
    with pytest.raises(
        ValueError,
        match=r"outside the policy's vocabulary|its model knows token id 29\d, and .* has 293 ids",
    ):
        check_server(url, load_policy(qwen2_folder), tmp_path)
    with torch.no_grad():
        server.policy.base.get_input_embeddings().weight[7] += 0.3
    server.forwards.clear()
    with pytest.raises(ValueError, match=r"its model is not .* differ by up to"):
        check_server(url, policy, tmp_path)
