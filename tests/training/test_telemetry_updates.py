import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.training.loss.objective import start_terms
from turngym.training.metrics.telemetry import diagnose

ADVANTAGE = (
    1.5,
    -0.7,
    0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.3,
    -0.3,
    0.5,
    1.0,
    -1.0,
    0.8,
    0.9,
    -0.4,
    1.1,
    -1.2,
    0.6,
    0.2,
)


@pytest.fixture
def terms(toy):
    ramp = torch.linspace(0.5, 1.5, toy.batch.n_slots, dtype=torch.float64)
    base = start_terms(torch.tensor(ADVANTAGE, dtype=torch.float64))
    return replace(base, clip_low=base.clip_low * ramp, clip_high=base.clip_high * ramp.flip(0))


def reference(logp, batch, terms, computed):
    """Return the same statistics from their definitions, slot by slot, tokens once by a dictionary."""
    old, turn, token = batch.logp_old.tolist(), batch.turn.tolist(), batch.token.tolist()
    advantage, low, high = (
        getattr(terms, name).tolist() for name in ("advantage", "clip_low", "clip_high")
    )
    found = {}
    for end, wanted in [("", None)] + [
        (f"_turn/{t}", t) for t in sorted({turn[s] for s in computed})
    ]:
        slots = [s for s in range(len(old)) if wanted in (None, turn[s])]
        ratios = {token[s]: math.exp(logp[s] - old[s]) for s in reversed(slots) if s in computed}
        held = [
            (advantage[s] < 0 and ratio < 1 - low[s], advantage[s] > 0 and ratio > 1 + high[s])
            for s in slots
            if s in computed and (ratio := math.exp(logp[s] - old[s]))
        ]
        found[f"clip_low{end}"] = sum(one for one, _ in held) / len(slots)
        found[f"clip_high{end}"] = sum(other for _, other in held) / len(slots)
        ordered = sorted(ratios.values())
        for percent in (5, 50, 95):
            place = percent / 100 * (len(ordered) - 1)
            below, part = int(place), place - int(place)
            above = ordered[min(below + 1, len(ordered) - 1)]
            found[f"ratio_p{percent:02}{end}"] = ordered[below] * (1 - part) + above * part
        found[f"log_ratio_max{end}"] = max(abs(math.log(ratio)) for ratio in ratios.values())
    gaps = {token[s]: abs(old[s] - batch.logp_roll[s].item()) for s in reversed(range(len(old)))}
    found["mismatch"], found["mismatch_max"] = sum(gaps.values()) / len(gaps), max(gaps.values())
    found["kl_old"] = sum(old[s] - logp[s] for s in computed) / len(old)
    x = [logp[s] - batch.logp_ref[s].item() for s in computed]
    found["kl"] = sum(math.exp(-one) + one - 1 for one in x) / len(old)
    return found


def test_every_number_agrees_with_its_definition(toy, terms):
    logp = toy.current(toy.logits).logp
    found = diagnose(logp, toy.batch, terms)
    assert found == pytest.approx(
        reference(logp.tolist(), toy.batch, terms, range(len(logp))), abs=1e-12
    )
    assert (
        found["clip_low"] > 0
        and found["clip_high"] > 0
        and {"ratio_p05_turn/2", "clip_low_turn/1"} <= set(found)
    )


def test_tokens_that_paths_share_are_one_ratio_but_as_many_slots(toy, terms):
    """Both paths of the first group begin with the same two tokens."""
    token, logp, old = (
        toy.batch.token.clone(),
        toy.current(toy.logits).logp,
        toy.batch.logp_old.clone(),
    )
    token[3:5] = token[:2]
    logp[3:5], old[3:5] = logp[:2], old[:2]
    share = torch.bincount(token).double().reciprocal()[token]
    batch = replace(toy.batch, token=token, share=share, logp_old=old, logp_roll=old - 0.1)
    found = diagnose(logp, batch, terms)
    assert found == pytest.approx(
        reference(logp.tolist(), batch, terms, range(len(logp))), abs=1e-12
    )
    alone = diagnose(logp, replace(batch, token=toy.batch.token), terms)
    assert (
        found["ratio_p50_turn/0"] != alone["ratio_p50_turn/0"]
        and found["clip_low"] == alone["clip_low"]
    )


def test_what_was_not_computed_has_no_ratio_and_is_not_held(toy, terms):
    logp = toy.current(toy.logits).logp
    computed = [s for s in range(len(logp)) if toy.batch.path[s] in (1, 3)]
    terms = replace(
        terms, advantage=logp - toy.batch.logp_old
    )  # what went up was to, so bounds hold what moved far
    partly = torch.full_like(logp, math.nan)
    partly[computed] = logp[computed]
    found = diagnose(partly, toy.batch, terms)
    assert found == pytest.approx(reference(logp.tolist(), toy.batch, terms, computed), abs=1e-12)
    assert not any(name.endswith("_turn/2") for name in found) and len(found) == 2 + 3 * 6 + 2
    assert found["clip_low"] > 0 and found["clip_high"] > 0


def test_a_shared_token_counts_where_its_first_path_was_not_computed(batch_of):
    batch = batch_of([[1], [1]], logp_old=[-1.0, -1.0])
    batch = replace(batch, token=torch.zeros(2, dtype=torch.long), share=batch.share / 2)
    found = diagnose(
        torch.tensor([math.nan, -0.5], dtype=torch.float64), batch, start_terms(batch.share)
    )
    assert found["log_ratio_max"] == 0.5 and found["ratio_p05"] == pytest.approx(math.exp(0.5))


def test_without_a_computed_slot_nothing_is_told(batch_of):
    batch = batch_of([[2]])
    assert (
        diagnose(torch.full((2,), math.nan, dtype=torch.float64), batch, start_terms(batch.share))
        == {}
    )
    empty = batch_of([[0]])
    assert diagnose(empty.logp_old, empty, start_terms(empty.share)) == {}


def test_sheet_examples_of_the_diagnostics(sheet):
    batch, current, advantage = sheet
    found = diagnose(current.logp, batch, start_terms(advantage))
    assert found["clip_low"] + found["clip_high"] == pytest.approx(0.4, abs=1e-6)
    assert found["kl_old"] == pytest.approx(-0.02, abs=1e-6)
    assert found["kl"] == pytest.approx(0.022712, abs=1e-6)
    assert "kl" not in diagnose(current.logp, replace(batch, logp_ref=None), start_terms(advantage))


def test_a_ratio_too_large_for_a_number_is_held_and_its_logarithm_told(batch_of):
    batch = batch_of([[2]], logp_old=[-900.0, -1.0])
    found = diagnose(
        torch.tensor([0.0, -1.0], dtype=torch.float64), batch, start_terms(batch.share)
    )
    assert (
        found["log_ratio_max"] == 900
        and found["ratio_p95"] < math.exp(20)
        and found["clip_high"] == 0.5
    )


def test_sampler_and_learner_are_compared_where_they_differ(batch_of):
    batch = batch_of([[2], [2]], logp_old=[-1.0, -2.0, -1.0, -3.0])
    batch = replace(
        batch, token=torch.tensor([0, 1, 0, 2]), share=torch.tensor([0.5, 1, 0.5, 1]).double()
    )
    terms = start_terms(batch.share)
    assert not {"mismatch", "mismatch_max"} & set(diagnose(batch.logp_old, batch, terms))
    other = replace(batch, logp_roll=batch.logp_old + torch.tensor([0.3, 0.0, 0.3, -0.9]).double())
    found = diagnose(batch.logp_old, other, terms)
    assert (found["mismatch"], found["mismatch_max"]) == pytest.approx(((0.3 + 0 + 0.9) / 3, 0.9))
    idle = diagnose(torch.full_like(batch.logp_old, np.nan), other, terms)
    assert set(idle) == {"mismatch", "mismatch_max"}
