"""What is asked of a server behind a publication, and the comparison of its log-probabilities."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from turngym.agents.cli.settings import LoraOptions
from turngym.agents.engines.vllm.publish import (
    LENGTH,
    LIMIT,
    MARGIN,
    POINTS,
    Answer,
    allowed,
    compare,
    expected,
    gaps,
    noise,
    prompts,
)
from turngym.agents.policy import load_policy

ACCEPTED = np.array([1e-3, 1e-4])
Logp = NDArray[np.float32]


def made(seed: int, n: int = 16, vocabulary: int = 9) -> Logp:
    return -np.random.default_rng(seed).random((n, vocabulary)).astype(np.float32) * 5


def answer(of: Logp, off: float = 0.0) -> Answer:
    return [{i: float(row[i]) + off for i in (4, 1, 7)} for row in of]


def moved(of: Logp, by: float) -> Logp:
    return of + (by * np.random.default_rng(99).standard_normal(of.shape)).astype(np.float32)


def altered(of: Logp, row: int, by: float) -> Answer:
    top = answer(of)
    return [*top[:row], {**top[row], 7: top[row][7] + by}, *top[row + 1 :]]


def test_prompts_are_long_fixed_and_within_the_vocabulary(qwen3_folder: Path) -> None:
    policy = load_policy(qwen3_folder)
    asked = prompts(policy)
    assert len(asked) == 2 * POINTS
    chat, spread = asked[POINTS - 1], asked[-1]
    assert len(chat) == len(spread) == LENGTH and chat.dtype == spread.dtype == np.int32
    assert all(np.array_equal(spread[: len(prefix)], prefix) for prefix in asked[POINTS:])
    assert policy.tokenizer.token_to_id("<|im_end|>") in chat
    assert max(chat.max(), spread.max()) < 262 <= policy.vocabulary
    assert len(set(spread.tolist())) > 150
    assert all(
        np.array_equal(one, other) for one, other in zip(prompts(policy), asked, strict=True)
    )
    assert max(len(prompt) for prompt in prompts(policy, 10**6)) == 511


def test_what_is_expected_is_the_log_softmax_in_float64(qwen2_folder: Path) -> None:
    policy = load_policy(qwen2_folder, lora=LoraOptions(rank=2))
    asked = prompts(policy, 40)
    policy.model.train()
    said = expected(policy, asked)
    assert policy.model.training
    policy.model.eval().double()
    with torch.no_grad():
        for row, tokens in zip(said, asked, strict=True):
            exact = (
                policy.model(input_ids=torch.tensor(tokens)[None].long())
                .logits[0, -1]
                .log_softmax(-1)
            )
            np.testing.assert_allclose(row, exact, atol=2e-5)


def test_what_is_shown_behind_a_prompt_is_read_by_token() -> None:
    right = made(0)
    assert not gaps(answer(right), right).any()
    assert not gaps([dict(reversed(list(top.items()))) for top in answer(right)], right).any()
    assert noise(gaps(altered(right, 1, 0.25), right)).tolist() == pytest.approx(
        [0.25, 0.25 / 48**0.5]
    )


def test_right_wrong_and_near() -> None:
    new = made(0)
    others = {"before": moved(new, 0.1), "none": moved(new, 1.0)}
    assert compare(answer(new, 5e-5), new, others, ACCEPTED) == ("", [])
    wrong, near = compare(answer(others["before"]), new, others, ACCEPTED)
    assert wrong.endswith("nearest to before") and not near
    assert compare(answer(new), new, {**others, "hardly": moved(new, 1e-5)}, ACCEPTED) == (
        "",
        ["hardly"],
    )


def test_each_bound_alone_fails_an_answer() -> None:
    new = made(0)
    assert compare(altered(new, 3, 0.0011), new, {}, np.array([1e-3, 1.0]))[0]
    assert compare(answer(new, 2e-4), new, {}, ACCEPTED)[0]


def test_a_right_answer_is_far_nearer_to_the_new_weights_than_to_others() -> None:
    new = made(0)
    before = new - np.float32(0.001)
    apart, near = (np.array([1.0, factor * 1e-3 / (MARGIN + 1)]) for factor in (0.99, 1.01))
    off = answer(new, -0.999 * apart[1])  # towards those before, as far as is accepted
    assert compare(off, new, {"before": before}, apart) == ("", [])
    assert noise(gaps(off, before))[1] > MARGIN * noise(gaps(off, new))[1]
    assert compare(off, new, {"before": before}, near) == ("", ["before"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_never_right(bad: float) -> None:
    new = made(0)
    with np.errstate(invalid="ignore"):
        assert compare(altered(new, 0, bad), new, {}, ACCEPTED)[0]


@pytest.mark.parametrize(
    ("found", "dtype", "right"),
    [
        ((0.0, 0.0), "float32", (2e-4, 1.5e-5)),
        ((3e-5, 5e-6), "float32", (3e-4, 2e-5)),
        ((1.0, 1.0), "float32", LIMIT["float32"]),
        ((0.05, 0.01), "bfloat16", (0.5, 0.04)),
    ],
)
def test_noise_is_learned_within_bounds(
    found: tuple[float, float], dtype: str, right: tuple[float, float]
) -> None:
    assert allowed(np.array(found), dtype).tolist() == pytest.approx(list(right))
