"""A server shaped like vLLM's on the loopback, with a small made-up model in it, that answers rightly or wrongly.

Every way of `FAULTS` is one that a client must survive: what it draws is right, or a typed failure.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turngym.agents.engine import EngineFault, keyed_rng
from turngym.tests.support.faults import (
    RESET,
    Answer,
    FaultServer,
    Kept,
    Request,
    bomb,
    drip,
    forever,
    head,
    whole,
)

Json = dict[str, Any]
FILTERED = -9999.0
SERVED = "policy"  # the model's name


class MadeUp:
    """A language model whose next token depends on the last two, and on nothing else; it answers as vLLM does."""

    def __init__(
        self, vocabulary: int, decode: Callable[[list[int]], str], context: int = 512
    ) -> None:
        self.vocabulary, self.decode, self.context = vocabulary, decode, context
        self.raw = False  # as a server that was started without processed log-probabilities

    def logits(self, tokens: list[int]) -> NDArray[np.float64]:
        """What comes behind `tokens`: float64 [vocabulary]."""
        return 2.0 * keyed_rng((3, *tokens[-2:])).standard_normal(self.vocabulary)

    def logp(
        self, tokens: list[int], temperature: float, top_p: float, top_k: int
    ) -> NDArray[np.float64]:
        """The log-probabilities that the next token is drawn by; -inf where truncation removes one."""
        logits = self.logits(tokens) / (temperature or 1.0)
        order = np.argsort(-logits, kind="stable")
        p = np.exp(_normal(logits))[order]
        keep = np.cumsum(p) - p < top_p
        keep[top_k or self.vocabulary :] = False
        logits[order[~keep]] = -np.inf
        return _normal(logits)

    def complete(self, asked: Json) -> Json:
        """Answer a request to `/v1/completions`."""
        prompt, temperature = asked["prompt"], asked["temperature"]
        tokens, shown, reason, why = list[int](), [], "length", None
        for u in keyed_rng((asked["seed"],)).random(int(asked["max_tokens"])):
            logp = self.logp(prompt + tokens, temperature, asked["top_p"], asked["top_k"])
            cumulated = np.cumsum(np.exp(logp))
            drawn = int(
                logp.argmax()
                if temperature == 0
                else np.searchsorted(cumulated, u * cumulated[-1], "right")
            )
            tokens.append(drawn)
            shown.append(
                self._shown(
                    _normal(self.logits(prompt + tokens[:-1])) if self.raw else logp, drawn, asked
                )
            )
            text = self.decode(tokens)
            if drawn in asked["stop_token_ids"]:
                reason, why = "stop", drawn
            elif said := [stop for stop in asked["stop"] if stop in text]:
                reason, why = "stop", said[0]
            if reason == "stop":
                break
        names = [f"token_id:{token}" for token in tokens]
        logprobs = {
            "tokens": names,
            "token_logprobs": [top[name] for name, top in zip(names, shown)],
            "top_logprobs": shown,
            "text_offset": [0] * len(names),
        }
        choice = {
            "index": 0,
            "text": self.decode(tokens),
            "logprobs": logprobs,
            "token_ids": tokens,
        }
        choice |= {"prompt_token_ids": prompt, "finish_reason": reason, "stop_reason": why}
        return {"id": f"cmpl-{asked['request_id']}", "model": asked["model"], "choices": [choice]}

    def _shown(self, logp: NDArray[np.float64], drawn: int, asked: Json) -> dict[str, float]:
        likeliest = np.argsort(-logp, kind="stable")[: asked["logprobs"]].tolist()
        return {
            f"token_id:{token}": max(float(logp[token]), FILTERED) for token in [drawn, *likeliest]
        }


@dataclass
class ModelServer:
    """Answers as vLLM does, or in the way of `FAULTS` that `plan` names for a request; "" is the right way.

    `asked` are the requests to `/v1/completions` so far. `served` are the names it knows; None: any.
    """

    model: MadeUp
    plan: Callable[[int, Json], str] = lambda number, asked: ""
    asked: list[Json] = field(default_factory=list)
    served: set[str] | None = None
    well: bool = True

    @contextmanager
    def run(self) -> Iterator[str]:
        """Be reachable at the URL."""
        with FaultServer(self.answer) as server:
            yield server.url

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        if not self.well:
            return [RESET]
        if request.target == "/health":
            return kept(b"")
        if request.target == "/v1/models":
            return kept(_json({"data": [{"id": SERVED, "max_model_len": self.model.context}]}))
        if request.target != "/v1/completions":
            return kept(b"{}", "404 Not Found")
        asked = json.loads(request.body)
        self.asked.append(asked)
        if self.served is not None and asked["model"] not in self.served:
            return kept(
                _json({"error": {"message": "The model does not exist", "code": 404}}),
                "404 Not Found",
            )
        way = self.plan(len(self.asked) - 1, asked)
        right = self.model.complete(asked)
        return FAULTS[way].answer(right) if way else kept(_json(right))


@dataclass(frozen=True)
class Way:
    """A way to err: what it makes of a right answer, the fault a client must see, and whether another try may help."""

    answer: Callable[[Json], Answer]
    fault: EngineFault
    passing: bool = False


def kept(body: bytes, status: str = "200 OK", *fields: str) -> Answer:
    """Return an answer behind which the connection stays open."""
    return Kept(whole(body, status, *fields))


def _normal(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    normal: NDArray[np.float64] = logits - np.logaddexp.reduce(logits)
    return normal


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _changed(change: Callable[[Json], object], fault: EngineFault = EngineFault.MISMATCH) -> Way:
    """A way that changes a right answer's only choice."""

    def answer(right: Json) -> Answer:
        wrong = deepcopy(right)
        change(wrong["choices"][0])
        return kept(_json(wrong))

    return Way(answer, fault)


def _other(change: Callable[[Json], Any], fault: EngineFault) -> Way:
    """A way that answers with what `change` makes of the right answer."""
    return Way(lambda right: kept(_json(change(deepcopy(right)))), fault)


def _logp(value: object, fault: EngineFault = EngineFault.NUMBERS) -> Way:
    """A way in which the last token has `value` for its log-probability."""

    def change(choice: Json) -> None:
        logprobs = choice["logprobs"]
        logprobs["token_logprobs"][-1] = logprobs["top_logprobs"][-1][logprobs["tokens"][-1]] = (
            value
        )

    return _changed(change, fault)


def _status(status: str, fault: EngineFault, passing: bool = True) -> Way:
    return Way(lambda right: kept(b'{"error": {"message": "no"}}', status), fault, passing)


def _raw(answer: Callable[[bytes], Answer], fault: EngineFault, passing: bool = False) -> Way:
    return Way(lambda right: answer(_json(right)), fault, passing)


def _cut(choice: Json, n: int) -> None:
    """Keep `n` tokens with all that belongs to them."""
    for place, name in [(choice, "token_ids"), *((choice["logprobs"], name) for name in _COLUMNS)]:
        place[name] = (place[name] * (n // max(len(place[name]), 1) + 1))[:n]


def _behind(choice: Json) -> None:
    """Let a token follow where the answer has to end, as if it had not."""
    _cut(choice, len(choice["token_ids"]) + 1)
    choice["finish_reason"], choice["stop_reason"] = "stop", choice["token_ids"][-1]


def _short(choice: Json) -> None:
    _cut(choice, 1)
    choice["finish_reason"] = "length"


_COLUMNS = ("tokens", "token_logprobs", "top_logprobs")
_CHUNKED = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
_SLOW = head("200 OK", "Content-Length: 10000")


def _half(body: bytes, *end: None) -> Answer:
    return [head("200 OK", f"Content-Length: {len(body)}") + body[: len(body) // 2], *end]


_MALFORMED, _MISMATCH, _NUMBERS = EngineFault.MALFORMED, EngineFault.MISMATCH, EngineFault.NUMBERS
FAULTS: dict[str, Way] = {
    "500": _status("500 Internal Server Error", EngineFault.STATUS),
    "502": _status("502 Bad Gateway", EngineFault.STATUS),
    "429": _status("429 Too Many Requests", EngineFault.FULL),
    "503": _status("503 Service Unavailable", EngineFault.FULL),
    "400": _status("400 Bad Request", EngineFault.STATUS, False),
    "404": _status("404 Not Found", EngineFault.STATUS),
    "redirect": Way(
        lambda right: [head("307 Moved", "Location: /", "Content-Length: 0")], EngineFault.STATUS
    ),
    "abort": Way(
        _changed(lambda c: c.update(finish_reason="abort")).answer, EngineFault.STATUS, True
    ),
    "reset": _raw(lambda body: [RESET], EngineFault.CONNECT, True),
    "reset in body": _raw(lambda body: _half(body, RESET), EngineFault.CONNECT, True),
    "closed": _raw(lambda body: [], EngineFault.CONNECT, True),
    "half body": _raw(_half, EngineFault.CONNECT, True),
    "half chunk": _raw(
        lambda body: [_CHUNKED + b"1000\r\n" + body[:100]], EngineFault.CONNECT, True
    ),
    "garbage": _raw(lambda body: [b"\0\xff" * 100], EngineFault.CONNECT, True),
    "slow head": _raw(lambda body: drip(b"HTTP/1.1 200 OK\r\nX-More: ", b"x"), EngineFault.TIMEOUT),
    "slow body": _raw(lambda body: drip(_SLOW, b" "), EngineFault.TIMEOUT),
    "silent": _raw(lambda body: [60.0], EngineFault.TIMEOUT),
    "huge": _raw(lambda body: [head("200 OK", f"Content-Length: {10**10}"), body], _MALFORMED),
    "endless": _raw(
        lambda body: forever(_CHUNKED, b"1000\r\n" + b" " * 4096 + b"\r\n"), _MALFORMED
    ),
    "gzip bomb": _raw(lambda body: bomb("gzip", 2**28), _MALFORMED),
    "gzip cut": _raw(
        lambda body: kept(gzip.compress(body)[:-9], "200 OK", "Content-Encoding: gzip"), _MALFORMED
    ),
    "brotli": _raw(lambda body: kept(body, "200 OK", "Content-Encoding: br"), _MALFORMED),
    "no json": _raw(lambda body: kept(b"<html>OK</html>"), _MALFORMED),
    "cut json": _raw(lambda body: kept(body[: len(body) // 2]), _MALFORMED),
    "deep json": _raw(lambda body: kept(b"[" * 100_000), _MALFORMED),
    "no utf-8": _raw(lambda body: kept(body.replace(b"cmpl", b"\xff")), _MALFORMED),
    "nothing": _raw(lambda body: kept(b""), _MALFORMED),
    "a list": _other(lambda right: [right], _MALFORMED),
    "an error": _other(lambda right: {"error": {"message": "no"}}, _MALFORMED),
    "no model": _other(lambda right: right.pop("model") and right, _MALFORMED),
    "no choices": _other(lambda right: right.pop("choices") and right, _MALFORMED),
    "no ids": _changed(lambda c: c.pop("token_ids"), _MALFORMED),
    "no log-probs": _changed(lambda c: c.update(logprobs=None), _MALFORMED),
    "no likeliest": _changed(lambda c: c["logprobs"].pop("top_logprobs"), _MALFORMED),
    "no reason": _changed(lambda c: c.pop("finish_reason"), _MALFORMED),
    "wrong reason": _changed(lambda c: c.update(finish_reason="content_filter"), _MALFORMED),
    "text ids": _changed(
        lambda c: c.update(token_ids=[str(i) for i in c["token_ids"]]), _MALFORMED
    ),
    "other model": _other(lambda right: right | {"model": "another"}, EngineFault.VERSION),
    "older version": _other(
        lambda right: right | {"model": right["model"] + "-v0"}, EngineFault.VERSION
    ),
    "choice 1": _changed(lambda c: c.update(index=1)),
    "two choices": _other(lambda right: right | {"choices": right["choices"] * 2}, _MISMATCH),
    "no choice": _other(lambda right: right | {"choices": []}, _MISMATCH),
    "other answer": _other(lambda right: right | {"id": "cmpl-another"}, _MISMATCH),
    "other prompt": _changed(lambda c: c["prompt_token_ids"].append(0)),
    "empty": _changed(lambda c: _cut(c, 0)),
    "too long": _changed(lambda c: _cut(c, 100)),
    "behind the end": _changed(_behind),
    "too short": _changed(_short),
    "no stop": _changed(lambda c: c.update(finish_reason="stop", stop_reason=None)),
    "other stop": _changed(lambda c: c.update(finish_reason="stop", stop_reason="\n\n\n")),
    "fewer log-probs": _changed(lambda c: c["logprobs"]["token_logprobs"].pop()),
    "more log-probs": _changed(lambda c: c["logprobs"]["token_logprobs"].append(-1.0)),
    "fewer likeliest": _changed(lambda c: c["logprobs"]["top_logprobs"].pop()),
    "fewer ids": _changed(lambda c: c["token_ids"].pop(0)),
    "shifted ids": _changed(lambda c: c.update(token_ids=[token ^ 1 for token in c["token_ids"]])),
    "id outside": _changed(lambda c: c["token_ids"].__setitem__(0, 10**6)),
    "negative id": _changed(lambda c: c["token_ids"].__setitem__(0, -1)),
    "other log-probs": _changed(
        lambda c: c["logprobs"]["token_logprobs"].__setitem__(0, -0.123456)
    ),
    "few likeliest": _changed(lambda c: c["logprobs"]["top_logprobs"].__setitem__(0, {})),
    "NaN": _logp(float("nan")),
    "infinite": _logp(float("-inf")),
    "positive": _logp(0.5),
    "filtered": _logp(FILTERED),
    "null": _logp(None),
    "text": _logp("-1.0"),
    "a truth": _logp(True),
    "beyond bounds": _logp(10**400),
    "no probabilities": _changed(
        lambda c: c["logprobs"]["top_logprobs"][0].update(
            dict.fromkeys(c["logprobs"]["top_logprobs"][0], -0.1)
        ),
        _NUMBERS,
    ),
}
