"""The comparison of a server's log-probabilities with the learner's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from turngym.agents.engines.vllm.probe import (
    LENGTH,
    LIMIT,
    MARGIN,
    POINTS,
    Answer,
    Expected,
    Noise,
    Verdict,
    allowed,
    compare,
    expected,
    noise,
    prompts,
)
from turngym.agents.policy import LoraSpec, load_policy

ACCEPTED = Noise(1e-3, 1e-4)


def made(seed: int, n: int = 16, vocabulary: int = 9) -> Expected:
    return Expected(-np.random.default_rng(seed).random((n, vocabulary)).astype(np.float32) * 5)


def answer(of: Expected, off: float = 0.0) -> Answer:
    return Answer(tuple({i: float(row[i]) + off for i in (4, 1, 7)} for row in of.logp))


def moved(of: Expected, by: float) -> Expected:
    noise = np.random.default_rng(99).standard_normal(of.logp.shape)
    return Expected(of.logp + (by * noise).astype(np.float32))


def altered(of: Expected, row: int, by: float) -> Answer:
    top = list(answer(of).top)
    return Answer((*top[:row], {**top[row], 7: top[row][7] + by}, *top[row + 1 :]))


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
    assert all(np.array_equal(one, other) for one, other in zip(prompts(policy), asked, strict=True))
    assert max(len(prompt) for prompt in prompts(policy, 10**6)) == 511


def test_what_is_expected_is_the_log_softmax_in_float64(qwen2_folder: Path) -> None:
    policy = load_policy(qwen2_folder, lora=LoraSpec(rank=2))
    asked = prompts(policy, 40)
    policy.model.train()
    said = expected(policy, asked)
    assert policy.model.training
    policy.model.eval().double()
    with torch.no_grad():
        for row, tokens in zip(said.logp, asked, strict=True):
            exact = policy.model(input_ids=torch.tensor(tokens)[None].long()).logits[0, -1].log_softmax(-1)
            np.testing.assert_allclose(row, exact, atol=2e-5)


def test_what_is_shown_behind_a_prompt_is_read_by_token() -> None:
    right = made(0)
    assert noise(answer(right), right) == Noise(0.0, 0.0)
    shown = tuple(dict(reversed(list(top.items()))) for top in answer(right).top)
    assert noise(Answer(shown), right).most == 0.0
    assert noise(altered(right, 1, 0.25), right).most == pytest.approx(0.25)


def test_right_wrong_and_near() -> None:
    new = made(0)
    others = {"before": moved(new, 0.1), "none": moved(new, 1.0)}
    right = compare(answer(new, 5e-5), new, others, ACCEPTED)
    assert right.verdict is Verdict.RIGHT and right.nearest == "the new weights" and right.error == pytest.approx(5e-5)
    stale = compare(answer(others["before"]), new, others, ACCEPTED)
    assert stale.verdict is Verdict.WRONG and stale.nearest == "before" and stale.distance["before"] < 1e-7
    near = compare(answer(new), new, {**others, "hardly": moved(new, 1e-5)}, ACCEPTED)
    assert near.verdict is Verdict.INDISTINGUISHABLE and near.near == ("hardly",)


def test_each_bound_alone_fails_an_answer() -> None:
    new = made(0)
    assert compare(altered(new, 3, 0.0011), new, {}, Noise(1e-3, 1.0)).verdict is Verdict.WRONG
    assert compare(answer(new, 2e-4), new, {}, ACCEPTED).verdict is Verdict.WRONG


def test_a_right_answer_is_far_nearer_to_the_new_weights_than_to_others() -> None:
    new = made(0)
    before = {"before": Expected(new.logp - np.float32(0.001))}
    apart, near = Noise(1.0, 0.99e-3 / (MARGIN + 1)), Noise(1.0, 1.01e-3 / (MARGIN + 1))
    off = -0.999 * apart.rms  # towards those before, as far as is accepted
    finding = compare(answer(new, off), new, before, apart)
    assert finding.verdict is Verdict.RIGHT
    assert finding.distance["before"] > MARGIN * finding.distance["the new weights"]
    assert compare(answer(new, off), new, before, near).verdict is Verdict.INDISTINGUISHABLE


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_never_right(bad: float) -> None:
    new = made(0)
    with np.errstate(invalid="ignore"):
        assert compare(altered(new, 0, bad), new, {}, ACCEPTED).verdict is Verdict.WRONG


def test_noise_is_learned_within_bounds() -> None:
    assert allowed(Noise(0.0, 0.0), "float32") == Noise(2e-4, 1.5e-5)
    assert allowed(Noise(3e-5, 5e-6), "float32") == Noise(pytest.approx(3e-4), pytest.approx(2e-5))
    assert allowed(Noise(1.0, 1.0), "float32") == LIMIT["float32"]
    assert allowed(Noise(0.05, 0.01), "bfloat16") == Noise(pytest.approx(0.5), pytest.approx(0.04))
