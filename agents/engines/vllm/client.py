"""One server: the requests that it is sent, the check of its answers, and what is known of it.

A turn is asked of `/v1/completions`: token ids in, token ids and log-probabilities out. Texts are never encoded again.
An answer is checked against its request, and nothing is kept of a wrong one.
"""

import asyncio
import contextlib
import itertools
import json
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....tools.http.client import Connections, normalize_address
from ....tools.http.failures import Fault, HttpFailure, ShapeError
from ....tools.http.json_values import Node, parse, serialize
from ...engine import EngineFailure, EngineFault, Sampling, keyed_rng

TURNS = "/v1/completions"
TOP = 20  # log-probabilities of the likeliest tokens asked for: any server gives so many
MAX_BYTES = 16 * 2**20  # of an answer that is no turn
UNLIMITED = 2**31
FULL = (429, 503)
FAULTS = {
    Fault.CONNECT: EngineFault.CONNECT,
    Fault.TIMEOUT: EngineFault.TIMEOUT,
    Fault.STATUS: EngineFault.STATUS,
}
FILTERED = -9999.0  # how a server writes the log-probability of a token that truncation removed
SLACK = 1e-3  # nats by which float32 may miss a bound
# The model's own end tokens are ignored: those that count are in stop_token_ids.
FIXED = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
}
FIXED |= {"include_stop_str_in_output": True, "skip_special_tokens": False}
FIXED |= {"return_token_ids": True, "return_tokens_as_token_ids": True}


@dataclass(frozen=True)
class CompletionRequest:
    """Up to `most` tokens behind `prompt`, fewer where one of `ends` comes or, in their text, one of `stops`.

    `key` alone decides what is drawn. The `top` most likely tokens are shown at each. Ids from `vocabulary` on are none
    of the policy's.
    """

    prompt: list[int]
    most: int
    key: tuple[int, ...]
    sampling: Sampling
    ends: frozenset[int]
    vocabulary: int
    stops: tuple[str, ...] = ()
    top: int = TOP

    @property
    def seed(self) -> int:
        return int(keyed_rng(self.key).integers(2**63))

    def body(self, model: str, name: str) -> bytes:
        """Return the request under a name; it sets whatever a server has defaults for."""
        sampling = (
            self.sampling if self.sampling.temperature else Sampling(0.0)
        )  # greedy turns are not truncated
        asked = {
            "model": model,
            "prompt": self.prompt,
            "request_id": name,
            "max_tokens": self.most,
            "seed": self.seed,
        }
        asked |= {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
        asked |= {
            "logprobs": self.top,
            "stop": list(self.stops),
            "stop_token_ids": sorted(self.ends),
        }
        return serialize(asked | FIXED)


class Drawn(NamedTuple):
    """What was drawn: tokens [n], logp float64 [n], nats, and `top` float64 [n, at most top + 1], those shown at each.

    Both are at the sampler's temperature (at 1 where it is greedy) and truncation; -inf where it leaves nothing.
    `stopped` is the text that ended it, if one did; `likeliest` what is shown at the last, by token.
    """

    tokens: list[int]
    logp: NDArray[np.float64]
    top: NDArray[np.float64]
    stopped: str | None
    likeliest: dict[int, float]


class Replica:
    """A server at `url`; `deadline` bounds each answer that is no turn (seconds).

    model: the name under which it serves the policy's weights; "" where it is not known to have them. up: whether turns
    may be drawn there; why: else, what is wrong. inspected: whether it was seen to be fit since it was last down.
    flying: requests that are there now.
    """

    def __init__(self, url: str, deadline: float = 300.0) -> None:
        self.url, self.deadline = normalize_address(url).removesuffix("/v1"), deadline
        self.model, self.why = "", ""
        self.up, self.inspected, self.flying = True, False, 0
        self._tries = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None  # that of `_connections`

    async def send(
        self, method: str, path: str, content: bytes = b"", max_bytes: int = MAX_BYTES
    ) -> bytes:
        """Send a request once and return the body of a good answer; raises `HttpFailure`."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._connecting = loop, self._connect()
            self._connections = await anext(self._connecting)
        self.flying += 1
        try:
            return await self._connections.send(method, self.url + path, content, max_bytes)
        finally:
            self.flying -= 1

    async def ask(
        self, method: str, path: str, content: bytes = b"", max_bytes: int = MAX_BYTES
    ) -> bytes:
        """Return the body of a good answer within `deadline` seconds, else raise `EngineFailure`.

        A server that breaks the connection, or does not know the weights of a turn (404), is down from then on.
        """
        try:
            async with asyncio.timeout(self.deadline):
                return await self.send(method, path, content, max_bytes)
        except TimeoutError:
            raise self.failure(
                EngineFault.TIMEOUT, f"no answer to {path} in {self.deadline:g} s"
            ) from None
        except HttpFailure as failure:
            if lost := failure.fault is Fault.CONNECT or (failure.status == 404 and path == TURNS):
                self.set_down(failure.what)
            full = failure.status in FULL
            fault = EngineFault.FULL if full else FAULTS.get(failure.fault, EngineFault.MALFORMED)
            what = f"{path}: {failure.what}{'; have fewer in flight (in_flight)' if full else ''}"
            raise self.failure(fault, what, 0.0 if lost else failure.wait) from None

    async def draw(self, request: CompletionRequest, model: str = "") -> Drawn:
        """Draw a turn with the policy's weights, or those of the name `model`; else raise `EngineFailure`."""
        model, name = model or self.model, f"turngym-{request.seed:016x}-{next(self._tries)}"
        # A generous bound: texts, ids and numbers of each token in full.
        max_bytes = (
            2**16 + 16 * len(request.prompt) + request.most * (1024 + 96 * (request.top + 2))
        )
        answer = await self.ask("POST", TURNS, request.body(model, name), max_bytes)
        try:
            return read_completion(answer, request, model, name)
        except EngineFailure as failure:
            raise self.failure(failure.fault, str(failure), failure.wait) from None

    async def base_model(self) -> tuple[str, int]:
        """Return the name of the model without adapters, and the most tokens of a conversation."""
        answer = await self.ask("GET", "/v1/models")
        try:
            for card in Node(parse(answer))["data"].array():
                if card.object().get("parent") is None:
                    limited = card.value.get("max_model_len") is not None
                    return card["id"].string(), card["max_model_len"].integer(
                        1, UNLIMITED
                    ) if limited else UNLIMITED
            raise ShapeError("it names no model")
        except ShapeError as error:
            raise self.failure(EngineFault.MALFORMED, f"/v1/models: {error}") from None

    async def load(self, name: str, folder: Path) -> None:
        """Load an adapter, unless one of this name is loaded; STATUS where the server does not take it."""
        body = serialize({"lora_name": name, "lora_path": str(folder.resolve())})
        try:
            await self.ask("POST", "/v1/load_lora_adapter", body)
        except EngineFailure as failure:
            if "already been loaded" not in str(failure):
                raise

    async def unload(self, name: str) -> None:
        """Unload an adapter, if the server has it and can be reached; it drops the least used by itself if it must."""
        with contextlib.suppress(EngineFailure):
            await self.ask("POST", "/v1/unload_lora_adapter", serialize({"lora_name": name}))

    def set_down(self, why: str) -> None:
        """Have nothing drawn there until it has been admitted again."""
        self.up, self.inspected, self.why = False, False, why

    def failure(self, fault: EngineFault, message: str, wait: float | None = None) -> EngineFailure:
        return EngineFailure(fault, f"{self.url}: {message}", wait)

    async def _connect(self) -> AsyncGenerator[Connections]:
        """Yield connections; a loop closes them when it ends, as it does all generators."""
        # On a network within a machine or a cluster compression takes longer than it saves.
        headers = {"Accept-Encoding": "identity"}
        connections = Connections(secure=self.url.startswith("https:"), headers=headers, most=2**20)
        try:
            yield connections
        finally:
            await connections.aclose()


def read_completion(answer: bytes, request: CompletionRequest, model: str, sent: str) -> Drawn:
    """Check an answer; raises EngineFailure: what was not asked for, or STATUS where the server aborted it."""
    try:
        root = Node(
            json.loads(answer.decode())
        )  # NaN and infinity are let through, to be named as what they are
        if (named := root["model"].string()) != model:
            raise EngineFailure(
                EngineFault.VERSION, f"model {named[:80]!r} answered, and {model!r} was asked"
            )
        choices, name = root["choices"].array(), root["id"].string()
        _match(len(choices) == 1, f"it holds {len(choices)} choices, and 1 was asked for")
        _match(name == f"cmpl-{sent}", f"it is the answer to {name[:80]!r}, and {sent!r} was sent")
        choice, vocabulary = choices[0], request.vocabulary
        index = choice["index"].integer(-(2**31), 2**31)
        _match(index == 0, f"it holds choice {index}, and 1 was asked for")
        _match(choice["prompt_token_ids"].value == request.prompt, "it answers another prompt")
        if choice["finish_reason"].value == "abort":
            raise EngineFailure(EngineFault.STATUS, "the server aborted the request", 0.0)
        tokens = [token.integer(-(2**63), 2**63) for token in choice["token_ids"].array()]
        n, most = len(tokens), request.most
        _match(0 < n <= most, f"it holds {n} tokens, and 1 to {most} were asked for")
        outside = [token for token in tokens if not 0 <= token < vocabulary]
        _match(
            not outside,
            f"token {outside[:1]} lies outside the policy's vocabulary, 0..{vocabulary - 1}",
        )
        stopped = _end(choice, tokens, request)
        logp, top = _numbers(choice["logprobs"], tokens, min(request.top, vocabulary))
        shown = choice["logprobs"]["top_logprobs"].value[-1]
        likeliest = {
            int(token.removeprefix("token_id:")): number for token, number in shown.items()
        }
        _match(min(likeliest) >= 0, "it shows the log-probability of a token below 0")
        return Drawn(tokens, logp, top, stopped, likeliest)
    except ShapeError as error:
        raise EngineFailure(EngineFault.MALFORMED, str(error)) from None
    except (ValueError, RecursionError) as error:
        what = f"it cannot be read: {str(error)[:200]} in {answer[:60]!r}"
        raise EngineFailure(EngineFault.MALFORMED, what) from None


def _end(choice: Node, tokens: list[int], request: CompletionRequest) -> str | None:
    early = [token for token in tokens[:-1] if token in request.ends]
    _match(not early, f"tokens follow on token {early[:1]}, which ends a turn")
    reason, why = choice["finish_reason"].value, choice["stop_reason"].value
    if reason not in ("stop", "length"):
        raise choice["finish_reason"].error("'stop' or 'length'")
    if reason == "length":
        full = len(tokens) == request.most and tokens[-1] not in request.ends
        _match(
            full,
            f"it ends for length with {len(tokens)} of {request.most} tokens, the last {tokens[-1]}",
        )
    elif why not in request.stops:
        _match(
            type(why) is int and why == tokens[-1] and why in request.ends,
            f"its stop_reason is {str(why)[:80]!r}",
        )
    return str(why) if reason == "stop" and why in request.stops else None


def _numbers(
    node: Node, tokens: list[int], least: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    names, logps, tops = (
        node["tokens"].array(),
        node["token_logprobs"].array(),
        node["top_logprobs"].array(),
    )
    lengths = (len(names), len(logps), len(tops))
    _match(
        set(lengths) == {len(tokens)},
        f"it holds {len(tokens)} tokens with {lengths} names, log-probs, likeliest",
    )
    rows = []
    for token, name, logp, top in zip(tokens, names, logps, tops):
        _match(
            name.value == f"token_id:{token}",
            f"the log-prob of {str(name.value)[:60]!r} is that of token {token}",
        )
        likely = top.object()
        _match(name.value in likely, f"{top.path} lacks the token itself, {token}")
        _match(
            least <= len(likely) <= least + 1,
            f"{top.path} holds {len(likely)} tokens, and {least} were asked for",
        )
        rows.append(
            [logp.value, likely[name.value], *likely.values()]
            + [-math.inf] * (least + 1 - len(likely))
        )
    try:
        if not {float, int}.issuperset(kind for row in rows for kind in map(type, row)):
            raise OverflowError
        numbers = np.array(rows, np.float64)
    except OverflowError:
        raise EngineFailure(
            EngineFault.NUMBERS, "it holds a log-probability that is no number"
        ) from None
    drawn, twin, shown = (
        numbers[:, 0],
        numbers[:, 1],
        np.where(numbers[:, 2:] <= FILTERED, -np.inf, numbers[:, 2:]),
    )
    with np.errstate(over="ignore"):
        mass = np.exp(shown).sum(1)  # NaN or infinite where a number is
    good = np.isfinite(drawn) & (drawn > FILTERED) & (drawn <= SLACK) & (mass <= 1 + SLACK)
    if not good.all():
        at = int(np.argmin(good))
        what = f"log-prob {at} is {drawn[at]}, and the likeliest have the mass {mass[at]:.6g}"
        raise EngineFailure(EngineFault.NUMBERS, f"{what}; these are no log-probabilities")
    _match(
        bool((drawn == twin).all()), "the log-prob of a token differs from that among the likeliest"
    )
    return np.minimum(drawn, 0.0), shown


def _match(good: bool, what: str) -> None:
    if not good:
        raise EngineFailure(EngineFault.MISMATCH, what)
