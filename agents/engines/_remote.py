"""What a vLLM server is asked beside turns: its models, to load and unload adapters, and the log-probs of a probe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from ...tools.http.connections import exchange
from ...tools.http.core import Fault, HttpFailure
from ...tools.http.payload import Node, ShapeError, parse, serialize
from ..engine import EngineFailure, EngineFault
from ._probe import TOP, Answer

MOST_BYTES = 16 * 2**20
_LOADED = "already been loaded"


@dataclass(frozen=True)
class Line:
    """To one server; each answer may take `deadline` seconds. It holds no connection between requests."""

    url: str
    deadline: float

    async def send(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the body of a good answer.

        Raises:
            EngineFailure: CONNECT, TIMEOUT, FULL, STATUS or MALFORMED.
        """
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        content = None if body is None else serialize(body)
        request = httpx.Request(method, self.url.rstrip("/") + path, headers=headers, content=content)
        secure = self.url.startswith("https:")  # else the certificates would be read for nothing, which takes long
        try:
            async with (
                asyncio.timeout(self.deadline),
                httpx.AsyncHTTPTransport(verify=secure, trust_env=False) as transport,
            ):
                return await exchange(transport, request, MOST_BYTES)
        except TimeoutError:
            raise self.failure(EngineFault.TIMEOUT, f"no answer to {path} in {self.deadline:g} s") from None
        except HttpFailure as trouble:
            kinds = {Fault.CONNECT: EngineFault.CONNECT, Fault.MALFORMED: EngineFault.MALFORMED}
            fault = EngineFault.FULL if trouble.status in (429, 503) else kinds.get(trouble.fault, EngineFault.STATUS)
            raise self.failure(fault, f"{path}: {trouble.what}") from None

    async def read(self, method: str, path: str, body: Any = None) -> Node:
        """Return the JSON of a good answer."""
        answer = await self.send(method, path, body)
        try:
            return Node(parse(answer))
        except ShapeError as error:
            raise self.failure(EngineFault.MALFORMED, f"{path}: {error}") from None

    def failure(self, fault: EngineFault, what: str) -> EngineFailure:
        """What to raise, with the server's name."""
        return EngineFailure(fault, f"{self.url}: {what}")


async def base_name(line: Line) -> str:
    """Return the name of the model that the server has without adapters."""
    models = await line.read("GET", "/v1/models")
    try:
        names = [card["id"].string() for card in models["data"].array() if card.object().get("parent") is None]
    except ShapeError as error:
        raise line.failure(EngineFault.MALFORMED, f"/v1/models: {error}") from None
    if not names:
        raise line.failure(EngineFault.MALFORMED, "/v1/models names no model")
    return names[0]


async def load(line: Line, name: str, folder: Path) -> None:
    """Load an adapter, unless one of this name is loaded.

    Raises:
        EngineFailure: STATUS where the server does not take it, with its reason; else as `Line.send`.
    """
    try:
        await line.send("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
    except EngineFailure as failure:
        if _LOADED not in str(failure):
            raise


async def unload(line: Line, name: str) -> None:
    """Unload an adapter, if the server has it and can be reached; it drops the least used by itself where it must."""
    with contextlib.suppress(EngineFailure):
        await line.send("POST", "/v1/unload_lora_adapter", {"lora_name": name})


async def ask(line: Line, name: str, prompts: Sequence[NDArray[np.int32]]) -> Answer:
    """Ask the model `name` for the log-probabilities of the likeliest tokens behind each prompt.

    Those of the prompts' own tokens are not asked for: with an adapted head vLLM fails on them unless alone in a batch.

    Raises:
        EngineFailure: as `Line.send`; MALFORMED where the answer does not belong to the prompts.
    """
    question = {"model": name, "prompt": [prompt.tolist() for prompt in prompts], "max_tokens": 1, "temperature": 1.0}
    settings = {"seed": 0, "logprobs": TOP, "return_tokens_as_token_ids": True}
    answer = await line.read("POST", "/v1/completions", {**question, **settings})
    try:
        choices = {choice["index"].integer(0, len(prompts) - 1): choice for choice in answer["choices"].array()}
        return Answer(tuple(_top(choices[i]) for i in range(len(prompts))))
    except (ShapeError, KeyError, IndexError) as error:
        raise line.failure(EngineFault.MALFORMED, f"the probe's answer: {error!r}") from None


def _top(choice: Node) -> dict[int, float]:
    shown = choice["logprobs"]["top_logprobs"].array()[0]
    return {_id(token, shown): shown[token].number() for token in shown.object()}


def _id(token: str, shown: Node) -> int:
    number = token.removeprefix("token_id:")
    if number == token or not number.isdecimal():
        raise shown.error("names such as token_id:7")
    return int(number)
