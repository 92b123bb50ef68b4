import json
import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turngym.agents.engine import EngineFailure, EngineFault, Sampling, keyed_rng
from turngym.agents.engines.vllm.client import CompletionRequest, read_completion
from turngym.agents.engines.vllm.engine import entropies
from turngym.tests.agents.engines.vllm.served import END, made_up
from turngym.tests.support.faults import Kept
from turngym.tests.support.model_server import FAULTS

MODEL = made_up()
ASK = CompletionRequest(
    [1, 2, 3], 12, (7,), Sampling(), frozenset({END}), MODEL.vocabulary, ("th", "e"), 5
)


def answer(ask: CompletionRequest = ASK) -> dict[str, Any]:
    return MODEL.complete(json.loads(ask.body("v1", "name")))


def taken(whole: Any, ask: CompletionRequest = ASK) -> Any:
    return read_completion(json.dumps(whole).encode(), ask, "v1", "name")


def ended(reason: str) -> tuple[CompletionRequest, dict[str, Any]]:
    """An answer that ends for length, at an end token, at a text."""
    for seed in range(500):
        ask = replace(ASK, key=(seed,), stops=("th",))
        whole = answer(ask)
        choice = whole["choices"][0]
        if {"length": None, "end": END, "text": "th"}[reason] == choice["stop_reason"] and len(
            choice["token_ids"]
        ) > 3:
            return ask, whole
    raise AssertionError(reason)


def test_a_request_says_whatever_a_server_could_add():
    body = json.loads(replace(ASK, sampling=Sampling(0.7, 0.9, 4)).body("v1", "name"))
    assert (body["model"], body["prompt"], body["max_tokens"]) == ("v1", [1, 2, 3], 12)
    assert body["seed"] == keyed_rng((7,)).integers(2**63)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.7, 0.9, 4, 0.0)
    assert (
        body["repetition_penalty"] == 1.0
        and body["presence_penalty"] == body["frequency_penalty"] == 0.0
    )
    assert body["stop"] == ["th", "e"] and body["stop_token_ids"] == [END] and body["ignore_eos"]
    assert body["include_stop_str_in_output"] and not body["skip_special_tokens"]
    assert body["return_token_ids"] and body["return_tokens_as_token_ids"] and body["logprobs"] == 5
    greedy = json.loads(replace(ASK, sampling=Sampling(0.0, 0.9, 4)).body("v1", "name"))
    assert (greedy["temperature"], greedy["top_p"], greedy["top_k"]) == (0.0, 1.0, 0)


@pytest.mark.parametrize("reason", ["length", "end", "text"])
def test_a_right_answer_is_taken_as_it_is(reason):
    ask, whole = ended(reason)
    drawn, choice = taken(whole, ask), whole["choices"][0]
    assert (
        drawn.tokens == choice["token_ids"]
        and drawn.logp.tolist() == choice["logprobs"]["token_logprobs"]
    )
    assert drawn.stopped == ("th" if reason == "text" else None)
    for row, shown in zip(drawn.top, choice["logprobs"]["top_logprobs"], strict=True):
        assert [number for number in row if number > -math.inf] == list(shown.values())


def test_what_truncation_removed_has_no_probability():
    ask = replace(ASK, sampling=Sampling(top_k=2))
    drawn = taken(answer(ask), ask)
    assert (np.isfinite(drawn.top).sum(1) == 2).all() and np.allclose(np.exp(drawn.top).sum(1), 1)


@pytest.mark.parametrize(
    "name", [name for name, way in FAULTS.items() if way.fault is not EngineFault.TIMEOUT]
)
def test_what_errs_is_a_typed_failure(name):
    way = FAULTS[name]
    for reason in ("length", "end", "text"):
        ask, whole = ended(reason)
        made = way.answer(whole)
        if (
            not isinstance(made, Kept)
            or b"HTTP/1.1 200" not in made[0]
            or b"Content-Encoding" in made[0]
            or name == "other stop"
        ):
            return  # nothing of it comes so far, or the words that were drawn are needed
        with pytest.raises(EngineFailure) as failure:
            read_completion(made[0].partition(b"\r\n\r\n")[2], ask, "v1", "name")
        assert failure.value.fault is way.fault, failure.value
        assert failure.value.wait == (0 if name == "abort" else None)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    parts = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else []
    )
    return [leaf for key, part in parts for leaf in leaves(part, (*path, key))] or [path]


def test_no_change_of_a_value_that_counts_is_overlooked():
    ask, whole = ended("end")
    unused = ("text", "text_offset")
    seen = 0
    for path in leaves(whole):
        at = whole
        for key in path[:-1]:
            at = at[key]
        drawn = (
            "top_logprobs" not in path
            or path[-1] == f"token_id:{whole['choices'][0]['token_ids'][path[4]]}"
        )
        if any(part in unused for part in path) or not drawn:
            continue
        for other in (None, 0.25, -0.25, 5, "x", [], {}, True, -1):
            if other == at[path[-1]]:
                continue
            wrong = deepcopy(whole)
            place = wrong
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = other
            if path[-1] == "index" and other in (0, False):
                continue
            with pytest.raises(EngineFailure):
                taken(wrong, ask)
            seen += 1
    assert seen > 200


def random_logp(rng: np.random.Generator, n: int, vocabulary: int) -> np.ndarray:
    logits = rng.standard_normal((n, vocabulary)) * rng.uniform(0.1, 6, (n, 1))
    return logits - np.logaddexp.reduce(logits, 1)[:, None]


def exact(logp: np.ndarray) -> np.ndarray:
    return -(np.exp(logp) * logp).sum(1)


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_the_entropy_is_exact_where_every_token_is_shown(temperature):
    logits = random_logp(np.random.default_rng(0), 50, 30)
    tempered = logits / (temperature or 1.0)
    tempered -= np.logaddexp.reduce(tempered, 1)[:, None]
    np.testing.assert_allclose(
        entropies(tempered, temperature, 30), exact(logits), rtol=0, atol=1e-5
    )


def bounds(top: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most entropy of a distribution over `tokens` of which `top` is shown."""
    missing, seen = 1 - np.exp(top).sum(1), exact(top)
    low, high = np.maximum(missing / np.exp(top.min(1)), 1), tokens - top.shape[1]
    return seen - missing * np.log(missing / low), seen - missing * np.log(missing / high)


def test_the_entropy_is_the_mean_of_its_bounds_at_temperature_1():
    logp = random_logp(np.random.default_rng(1), 200, 400)
    top = -np.sort(-logp, 1)[:, :20]
    low, high = bounds(top, 400)
    assert (
        (low <= exact(logp) + 1e-9).all()
        and (exact(logp) <= high + 1e-9).all()
        and (high - low).max() > 0.1
    )
    np.testing.assert_allclose(entropies(top, 1.0, 400), (low + high) / 2, rtol=0, atol=1e-5)
    # The token itself may stand behind the likeliest, and truncation leaves fewer than were asked for.
    more = np.concatenate([top, np.full((200, 1), -np.inf)], 1)
    np.testing.assert_allclose(
        entropies(more, 1.0, 400), entropies(top, 1.0, 400), rtol=0, atol=1e-12
    )


def test_a_truncated_distribution_has_no_more_tokens_than_its_top_k():
    logp = random_logp(np.random.default_rng(2), 40, 30)
    logp = -np.sort(-logp, 1)[:, :8]
    logp -= np.logaddexp.reduce(logp, 1)[:, None]
    np.testing.assert_allclose(entropies(logp, 1.0, 400, top_k=8), exact(logp), rtol=0, atol=1e-6)
    low, high = bounds(logp[:, :5], 8)
    assert (low <= exact(logp) + 1e-9).all() and (exact(logp) <= high + 1e-9).all()
    np.testing.assert_allclose(
        entropies(logp[:, :5], 1.0, 400, top_k=8), (low + high) / 2, rtol=0, atol=1e-5
    )


def test_a_certain_token_has_no_entropy():
    assert entropies(
        np.array([[0.0, -np.inf], [-1e-9, -800.0]]), 1.0, 400
    ).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_nothing_may_follow_on_an_end_token():
    ask, whole = ended("end")
    choice = whole["choices"][0]
    choice["token_ids"] *= 2
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        choice["logprobs"][name] *= 2
    with pytest.raises(EngineFailure, match="which ends a turn") as failure:
        taken(whole, replace(ask, most=50))
    assert failure.value.fault is EngineFault.MISMATCH
