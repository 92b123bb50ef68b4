"""What every row of `METHODS` promises, and that each check of the battery sees a promise broken."""

from dataclasses import replace
from itertools import count, permutations

import pytest
import torch

from turngym.tests.verify.methods.battery import CHECKS, DIRECTIONS, directions
from turngym.tests.verify.methods.cases import CASES, Case
from turngym.training.control.chain import chain
from turngym.training.control.control import Control, Needs
from turngym.training.methods import METHODS, describe

CARD = ("arXiv", "Knob: ", "Defaults: ", "Evidence: ", "Deviations: ")
FIRST = {case.method: case for case in reversed(CASES)}


def parameter(number: int, case: Case):
    """Return a case as the parameter of a test; those of further variants of a method are slow."""
    marks = () if case is FIRST[case.method] else pytest.mark.slow
    return pytest.param(case, id=f"{case.method}-{number}", marks=marks)


each = pytest.mark.parametrize(
    "case", [parameter(number, case) for number, case in enumerate(CASES)]
)


def test_every_method_has_a_case() -> None:
    assert {case.method for case in CASES} == set(METHODS)


@each
@pytest.mark.parametrize("check", CHECKS)
def test_a_method_keeps_what_all_promise(check, case) -> None:
    assert CHECKS[check](case)


@each
def test_a_step_moves_what_the_method_says_the_way_it_says(case) -> None:
    assert [name for name in directions(case) if not DIRECTIONS[name](case)] == []


def broken(name):
    """Return a control that breaks the promise `name`."""
    calls = count()
    parts = {
        "neutral": {"shape": lambda terms, *_: replace(terms, weight=2 * terms.weight)},
        "acts": {},
        "masked": {
            "shape": lambda terms, *_: replace(terms, weight=(1 + next(calls)) * terms.weight)
        },
        "split": {"shape": lambda terms, *_: replace(terms, surrogate=across_paths)},
        "order": {
            "shape": lambda terms, batch, *_: replace(terms, weight=terms.weight * (1 + batch.path))
        },
        "pure": {"shape": lambda terms, *_: replace(terms, weight=terms.weight.mul_(2))},
        "finite": {"shape": lambda terms, *_: replace(terms, weight=terms.weight.double())},
        "saved": {"observe": lambda stats, state: ({"seen": (stats.step,)}, frozenset())},
        "needed": {"needs": Needs(entropy_grad=True)},
        "unscored": {
            "credit": lambda batch, state: (batch.turns.score - batch.turns.score.mean())[batch.row]
        },
        "advantage_moves": {"shape": lambda terms, *_: replace(terms, surrogate=backwards)},
        "entropy_moves": {
            "shape": lambda terms, *_: replace(terms, entropy_coef=terms.entropy_coef - 1)
        },
    }
    return Control(name=name, **parts[name])


def across_paths(current, batch, terms):
    return terms.advantage * current.logp * len(current.logp)


def backwards(current, batch, terms):
    return -terms.advantage * current.logp


@pytest.mark.parametrize("check", [*CHECKS, *DIRECTIONS])
def test_a_broken_promise_is_seen(check, monkeypatch) -> None:
    control = broken(check)
    monkeypatch.setitem(METHODS, "broken", lambda: control)
    assert not {**CHECKS, **DIRECTIONS}[check](Case("broken", {}, {}, entropy=1))


def test_a_method_that_only_samples_must_have_a_plan(monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "broken", lambda: Control(name="broken"))
    assert not CHECKS["acts"](Case("broken", {}, {}, samples=True))
    assert not CHECKS["neutral"](Case("broken", {}, None))


def test_methods_that_set_different_things_commute(toy) -> None:
    bonus, epo, _, grpo = CASES[:4]
    for one, other in permutations([bonus, epo, grpo], 2):
        there = toy.learn(chain(one.control(), other.control()), [one.state, other.state])
        back = toy.learn(chain(other.control(), one.control()), [other.state, one.state])
        assert abs(there[0] - back[0]) < 1e-12 and torch.allclose(
            there[1], back[1], rtol=0, atol=1e-13
        )


@pytest.mark.parametrize("method", METHODS)
def test_the_card_is_complete(method) -> None:
    card = describe(method)
    assert [part for part in CARD if part not in card] == []
