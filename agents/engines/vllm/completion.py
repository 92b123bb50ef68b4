"""A request to `/v1/completions` of a vLLM server and its answer: token ids in, token ids and log-probabilities out.

Texts are never encoded again. An answer is checked against its request, and nothing is kept of a wrong one.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....tools.http.payload import Node, ShapeError, serialize
from ...engine import EngineFailure, EngineFault, Sampling

FILTERED = -9999.0  # how a server writes the log-probability of a token that truncation removed
SLACK = 1e-3  # nats by which float32 may miss a bound
NOISE = 1e-6  # a missing mass below this is rounding


@dataclass(frozen=True)
class CompletionRequest:
    """Up to `most` tokens behind `prompt`, fewer where one of `ends` comes or, in their text, one of `stops`.

    The `top` most likely tokens are shown at each. The same `seed` draws the same again; `name` is the request's own.
    """

    name: str
    prompt: list[int]
    most: int
    seed: int
    sampling: Sampling
    ends: frozenset[int]
    stops: tuple[str, ...] = ()
    top: int = 20

    @property
    def max_bytes(self) -> int:
        """A generous bound of the answer: texts, ids and numbers of each token in full."""
        return 2**16 + 16 * len(self.prompt) + self.most * (1024 + 96 * (self.top + 2))

    def body(self, model: str) -> bytes:
        """Return the request; it sets whatever a server has defaults for."""
        greedy = self.sampling.temperature == 0
        return serialize(
            {
                "model": model,
                "prompt": self.prompt,
                "request_id": self.name,
                "max_tokens": self.most,
                "seed": self.seed,
                "temperature": self.sampling.temperature,
                "top_p": 1.0 if greedy else self.sampling.top_p,
                "top_k": 0 if greedy else self.sampling.top_k,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "logprobs": self.top,
                "stop": list(self.stops),
                "stop_token_ids": sorted(self.ends),
                "ignore_eos": True,  # the model's own end tokens: those that count are in stop_token_ids
                "include_stop_str_in_output": True,
                "skip_special_tokens": False,
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
            }
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn: tokens [n], logp float64 [n], nats, and `top` float64 [n, at most top + 1], those shown at each.

    Both are at the sampler's temperature (at 1 where it is greedy) and truncation; -inf where it leaves nothing.
    `stopped` is the text that ended it, if one did.
    """

    tokens: list[int]
    logp: NDArray[np.float64]
    top: NDArray[np.float64]
    stopped: str | None


def read_completion(answer: bytes, request: CompletionRequest, model: str, vocabulary: int) -> Drawn:
    """Check an answer and return what it holds.

    Raises:
        EngineFailure: MALFORMED, MISMATCH, NUMBERS or VERSION: the answer is not what was asked for; STATUS: the
            server aborted the request, which may be sent again.
    """
    try:
        root = Node(_parse(answer))
        if (named := root["model"].string()) != model:
            raise EngineFailure(EngineFault.VERSION, f"model {named[:80]!r} answered, and {model!r} was asked")
        choices = root["choices"].array()
        _match(len(choices) == 1, f"it holds {len(choices)} choices, and 1 was asked for")
        return _choice(choices[0], root["id"].string(), request, vocabulary)
    except ShapeError as error:
        raise EngineFailure(EngineFault.MALFORMED, str(error)) from None


def entropies(
    top: NDArray[np.float64], temperature: float, vocabulary: int, top_k: int = 0, bounds: bool = False
) -> NDArray[np.float64]:
    """Estimate entropies [n], nats, at temperature 1 from log-probabilities `top` [n, k] at `temperature`.

    The mass that `top` lacks lies on tokens not shown. On as few as can hold it, each as likely as the least shown, it
    has the least entropy, on all of them the most; its tokens are taken to be the geometric mean of the two in number,
    which at temperature 1 is the mean of the two entropies. `bounds` returns these two, [2, n], instead.
    """
    temperature = temperature or 1.0
    shown = np.isfinite(top)
    missing = 1.0 - np.exp(top).sum(1)
    missing = np.where(missing < NOISE, 0.0, missing)
    with np.errstate(divide="ignore"):
        mass = np.log(missing)
    all_of_them = np.log(np.maximum((top_k or vocabulary) - shown.sum(1), 1))
    few = np.clip(mass - np.where(shown, top, np.inf).min(1), 0.0, all_of_them)
    spread = np.stack([few, all_of_them]) if bounds else (few + all_of_them)[None] / 2  # log of a number of tokens
    hidden = temperature * (mass - spread)  # log-weight of each of them at temperature 1
    weight = np.where(shown, temperature * np.where(shown, top, 0.0), -np.inf)
    total = np.logaddexp(np.logaddexp.reduce(weight, 1), spread + hidden)[..., None]
    logp = np.concatenate([np.broadcast_to(weight, (len(spread), *top.shape)), hidden[..., None]], -1) - total
    count = np.concatenate([np.ones_like(logp[..., :-1]), np.exp(spread)[..., None]], -1)
    entropy: NDArray[np.float64] = -(count * np.exp(logp) * np.where(np.isfinite(logp), logp, 0.0)).sum(-1)
    return entropy if bounds else entropy[0]


def _choice(choice: Node, name: str, request: CompletionRequest, vocabulary: int) -> Drawn:
    _match(name == f"cmpl-{request.name}", f"it is the answer to {name[:80]!r}, and {request.name!r} was sent")
    index = choice["index"].integer(-(2**31), 2**31)
    _match(index == 0, f"it holds choice {index}, and 1 was asked for")
    _match(choice["prompt_token_ids"].value == request.prompt, "it answers another prompt")
    if choice["finish_reason"].value == "abort":
        raise EngineFailure(EngineFault.STATUS, "the server aborted the request", 0.0)
    tokens = [token.integer(-(2**63), 2**63) for token in choice["token_ids"].array()]
    _match(0 < len(tokens) <= request.most, f"it holds {len(tokens)} tokens, and 1 to {request.most} were asked for")
    outside = [token for token in tokens if not 0 <= token < vocabulary]
    _match(not outside, f"token {outside[:1]} lies outside the policy's vocabulary, 0..{vocabulary - 1}")
    stopped = _end(choice, tokens, request)
    logp, top = _numbers(choice["logprobs"], tokens, min(request.top, vocabulary))
    return Drawn(tokens, logp, top, stopped)


def _end(choice: Node, tokens: list[int], request: CompletionRequest) -> str | None:
    """Check that it ended where it had to, and return the text at which it did."""
    early = [token for token in tokens[:-1] if token in request.ends]
    _match(not early, f"tokens follow on token {early[:1]}, which ends a turn")
    reason, why = choice["finish_reason"].value, choice["stop_reason"].value
    if reason == "length":
        full = len(tokens) == request.most and tokens[-1] not in request.ends
        _match(full, f"it ends for length with {len(tokens)} of {request.most} tokens, the last {tokens[-1]}")
        return None
    if reason != "stop":
        raise choice["finish_reason"].error("'stop' or 'length'")
    if why in request.stops:
        return str(why)
    _match(type(why) is int and why == tokens[-1] and why in request.ends, f"its stop_reason is {str(why)[:80]!r}")
    return None


def _numbers(node: Node, tokens: list[int], least: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log-probabilities of `tokens`, and of the likeliest at each."""
    names, logps, tops = node["tokens"].array(), node["token_logprobs"].array(), node["top_logprobs"].array()
    lengths = (len(names), len(logps), len(tops))
    _match(set(lengths) == {len(tokens)}, f"it holds {len(tokens)} tokens with {lengths} names, log-probs, likeliest")
    rows = []
    for token, name, logp, top in zip(tokens, names, logps, tops):
        _match(name.value == f"token_id:{token}", f"the log-prob of {str(name.value)[:60]!r} is that of token {token}")
        shown = top.object()
        _match(name.value in shown, f"{top.path} lacks the token itself, {token}")
        _match(least <= len(shown) <= least + 1, f"{top.path} holds {len(shown)} tokens, and {least} were asked for")
        rows.append([logp.value, shown[name.value], *shown.values()] + [-math.inf] * (least + 1 - len(shown)))
    return _checked(rows)


def _checked(rows: list[list[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split rows of a token's log-probability, the same among the likeliest, and all the likeliest."""
    if not {float, int}.issuperset(kind for row in rows for kind in map(type, row)):
        raise EngineFailure(EngineFault.NUMBERS, "it holds a log-probability that is no number")
    try:
        numbers = np.array(rows, np.float64)
    except OverflowError:
        raise EngineFailure(EngineFault.NUMBERS, "it holds a log-probability beyond all bounds") from None
    logp, twin, top = numbers[:, 0], numbers[:, 1], np.where(numbers[:, 2:] <= FILTERED, -np.inf, numbers[:, 2:])
    with np.errstate(over="ignore"):
        mass = np.exp(top).sum(1)  # NaN or infinite where a number is
    good = np.isfinite(logp) & (logp > FILTERED) & (logp <= SLACK) & (mass <= 1 + SLACK)
    if not good.all():
        at = int(np.argmin(good))
        what = f"log-prob {at} is {logp[at]}, and the likeliest have the mass {mass[at]:.6g}"
        raise EngineFailure(EngineFault.NUMBERS, f"{what}; these are no log-probabilities")
    _match(bool((logp == twin).all()), "the log-prob of a token differs from that among the likeliest")
    return np.minimum(logp, 0.0), top


def _match(good: bool, what: str) -> None:
    if not good:
        raise EngineFailure(EngineFault.MISMATCH, what)


def _parse(data: bytes) -> Any:
    """Read a JSON text. NaN and infinity are let through, since they shall be named as what they are."""
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"it is not JSON: {str(error)[:200]} in {data[:60]!r}") from None
