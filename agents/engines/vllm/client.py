"""One server: the requests that it is sent, and what is known of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....tools.http.connections import Connections, split_url
from ....tools.http.core import Fault, HttpFailure
from ....tools.http.payload import Node, ShapeError, parse, serialize
from ...engine import EngineFailure, EngineFault
from .completion import CompletionRequest, Drawn, read_completion

T = TypeVar("T")
Answer = Sequence[Mapping[int, float]]  # log-probabilities of the likeliest tokens behind each prompt, by id

TOP = 20  # log-probabilities asked for behind each prompt of a probe: any server gives so many
MAX_BYTES = 16 * 2**20  # of an answer that is no turn
FULL = (429, 503)
FAULTS = {Fault.CONNECT: EngineFault.CONNECT, Fault.TIMEOUT: EngineFault.TIMEOUT, Fault.STATUS: EngineFault.STATUS}


class PerLoop(Generic[T]):
    """A value for the running event loop, made by an asynchronous generator that ends with the loop."""

    def __init__(self, make: Callable[[], AsyncGenerator[T]]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self) -> T:
        """Return the value, made anew on another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._generator = loop, self._make()
            self._value = await anext(self._generator)
        return self._value

    async def aclose(self) -> None:
        """End the generator, if it belongs to this event loop; other loops close theirs themselves."""
        if self._loop is asyncio.get_running_loop():
            self._loop = None
            await self._generator.aclose()


class Endpoint:
    """A server at `url`; `deadline` bounds each answer that is no turn (seconds).

    model: the name under which it serves the policy's weights; "" where it is not known to have them. up: whether turns
    may be drawn there. why: what was wrong when it went down. inspected: whether it was seen to be fit since it was
    last down. flying: requests that are there now.
    """

    def __init__(self, url: str, deadline: float = 300.0) -> None:
        self.url, self.deadline = _base(url), deadline
        self.model, self.why = "", ""
        self.up, self.inspected, self.flying = True, False, 0
        self._connections = PerLoop(self._connect)

    async def send(self, method: str, path: str, content: bytes = b"", max_bytes: int = MAX_BYTES) -> bytes:
        """Send a request once and return the body of a good answer.

        Raises:
            HttpFailure: there is none.
        """
        connections = await self._connections.get()
        request = connections.request(method, self.url + path, content)
        self.flying += 1
        try:
            return await connections.send(request, max_bytes)
        finally:
            self.flying -= 1

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request that is no turn, and return the body of a good answer.

        Raises:
            EngineFailure: CONNECT, TIMEOUT, FULL, STATUS or MALFORMED.
        """
        try:
            async with asyncio.timeout(self.deadline):
                return await self.send(method, path, b"" if body is None else serialize(body))
        except TimeoutError:
            raise self.failure(EngineFault.TIMEOUT, f"no answer to {path} in {self.deadline:g} s") from None
        except HttpFailure as failure:
            raise self.failure(_fault(failure), f"{path}: {failure.what}") from None

    async def complete(self, content: bytes, max_bytes: int) -> bytes:
        """Send a request for a turn once and return the body of a good answer.

        A server that breaks the connection, or does not know the weights (404), is down from then on.

        Raises:
            EngineFailure: as `ask`, but for TIMEOUT; its `wait` says whether another try may help.
        """
        try:
            return await self.send("POST", "/v1/completions", content, max_bytes)
        except HttpFailure as failure:
            if lost := failure.fault is Fault.CONNECT or failure.status == 404:
                self.set_down(failure.what)
            fix = "; have fewer in flight (in_flight)" if failure.status in FULL else ""
            wait = 0.0 if lost else failure.wait
            raise self.failure(_fault(failure), f"{failure.what}{fix}", wait) from None

    async def draw(self, request: CompletionRequest, vocabulary: int) -> Drawn:
        """Draw a turn with the policy's weights.

        Raises:
            EngineFailure: as `complete`, or the answer does not belong to the request.
        """
        model = self.model
        answer = await self.complete(request.body(model), request.max_bytes)
        try:
            return read_completion(answer, request, model, vocabulary)
        except EngineFailure as failure:
            raise self.failure(failure.fault, str(failure), failure.wait) from None

    async def models(self) -> list[dict[str, Any]]:
        """Return the models and adapters that it has."""
        answer = await self.ask("GET", "/v1/models")
        try:
            return [card.object() for card in Node(parse(answer))["data"].array()]
        except ShapeError as error:
            raise self.failure(EngineFault.MALFORMED, f"/v1/models: {error}") from None

    async def base_model(self) -> str:
        """Return the name of the model that it has without adapters."""
        names = [card.get("id") for card in await self.models() if card.get("parent") is None]
        if not names or not isinstance(names[0], str):
            raise self.failure(EngineFault.MALFORMED, "/v1/models names no model")
        return names[0]

    async def load(self, name: str, folder: Path) -> None:
        """Load an adapter, unless one of this name is loaded.

        Raises:
            EngineFailure: STATUS where the server does not take it, with its reason; else as `ask`.
        """
        body = {"lora_name": name, "lora_path": str(folder.resolve())}
        try:
            await self.ask("POST", "/v1/load_lora_adapter", body)
        except EngineFailure as failure:
            if "already been loaded" not in str(failure):
                raise

    async def unload(self, name: str) -> None:
        """Unload an adapter, if the server has it and can be reached; it drops the least used by itself if it must."""
        with contextlib.suppress(EngineFailure):
            await self.ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def answer(self, name: str, prompts: Sequence[NDArray[np.int32]]) -> Answer:
        """Draw a token behind each prompt with the model `name`, and return what it takes for the likeliest.

        These are computed as those of turns are, the prefix cache included. The prompts' own tokens are not asked for:
        with an adapted head vLLM fails on them unless alone in a batch.

        Raises:
            EngineFailure: as `ask`; MALFORMED where the answer does not belong to the prompts.
        """
        question = {"model": name, "prompt": [prompt.tolist() for prompt in prompts], "max_tokens": 1}
        settings = {"temperature": 1.0, "seed": 0, "logprobs": TOP, "return_tokens_as_token_ids": True}
        answer = await self.ask("POST", "/v1/completions", {**question, **settings})
        try:
            choices = {c["index"].integer(0, len(prompts) - 1): c for c in Node(parse(answer))["choices"].array()}
            return [_likeliest(choices[i]) for i in range(len(prompts))]
        except (ShapeError, KeyError, IndexError) as error:
            raise self.failure(EngineFault.MALFORMED, f"the answer to a probe: {error!r}") from None

    def set_down(self, why: str) -> None:
        """Have nothing drawn there until it has been admitted again."""
        self.up, self.inspected, self.why = False, False, why

    def failure(self, fault: EngineFault, message: str, wait: float | None = None) -> EngineFailure:
        """Return a failure that names the server."""
        return EngineFailure(fault, f"{self.url}: {message}", wait)

    async def aclose(self) -> None:
        """Close the connections; it can be used again."""
        await self._connections.aclose()

    async def _connect(self) -> AsyncGenerator[Connections]:
        # Answers are not compressed: on a network within a machine or a cluster that takes longer than it saves.
        headers = {"Accept-Encoding": "identity"}
        connections = Connections(secure=self.url.startswith("https:"), headers=headers, most=2**20)
        self.flying = 0
        try:
            yield connections
        finally:
            await connections.aclose()


def _fault(failure: HttpFailure) -> EngineFault:
    return EngineFault.FULL if failure.status in FULL else FAULTS.get(failure.fault, EngineFault.MALFORMED)


def _likeliest(choice: Node) -> dict[int, float]:
    top, numbers = choice["logprobs"]["top_logprobs"].array()[0], {}
    for name in top.object():
        token = name.removeprefix("token_id:")
        if token == name or not token.isdecimal():
            raise top.error("names such as token_id:7")
        numbers[int(token)] = top[name].number()
    if not numbers:
        raise top.error("log-probabilities")
    return numbers


def _base(url: str) -> str:
    base, secret = split_url(url)
    if secret:
        raise ValueError(f"the address of the server {base} has a user; it looks like http://127.0.0.1:8000")
    return base.removesuffix("/v1")
