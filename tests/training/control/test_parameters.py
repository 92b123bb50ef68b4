"""Declared ranges: every parameter of every method, and the checks themselves."""

from math import inf, nan
from typing import Annotated, Literal

import pytest

from turngym.training.control.parameters import (
    Bound,
    Count,
    Finite,
    Range,
    Share,
    checked,
    parameters,
)
from turngym.training.methods import METHODS, method_parameters


@checked
def some_method(
    *,
    share: Share = 0.5,
    rate: Annotated[float, Range(0, 1, above=True)] = 0.5,
    bound: Bound = inf,
    skip: Annotated[float, Range(0, 1, below=True)] = 0.0,
    level: Finite = 0.0,
    gain: Annotated[float, Range(1, above=True, unbounded=True)] = 2.0,
    steps: Count = 1,
    mode: Literal["one", "two", "three"] = "one",
    flag: bool = True,
) -> str:
    return f"{share} {mode}"


RULES = {
    "share": "0 to 1",
    "rate": "above 0 and at most 1",
    "bound": "0 or more, or inf",
    "skip": "at least 0 and below 1",
    "level": "finite",
    "gain": "above 1, or inf",
    "steps": "1 or more",
    "mode": "one, two or three",
    "flag": "true or false",
}


def test_what_is_declared_is_told_in_words() -> None:
    assert {name: one.rule for name, one in parameters(some_method).items()} == RULES
    assert list(map(str, parameters(some_method).values()))[-2:] == [
        "mode=one (one, two or three)",
        "flag=true (true or false)",
    ]
    assert some_method.__name__ == "some_method"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("share", [0, 0.5, 1], [-0.1, 1.1, inf, nan]),
        ("rate", [0.1, 1], [0, 1.1, nan]),
        ("bound", [0, 3, inf], [-1, -inf, nan]),
        ("skip", [0, 0.9], [-0.1, 1, nan]),
        ("level", [-1e9, 0, 1e9], [inf, -inf, nan]),
        ("gain", [1.1, inf], [1, -inf, nan]),
        ("steps", [1, 2], [0, -1]),
        ("mode", ["three"], ["four", ""]),
    ],
)
def test_an_argument_out_of_range_is_refused(name, good, bad) -> None:
    for value in good:
        some_method(**{name: value})
    for value in bad:
        with pytest.raises(ValueError) as refused:
            some_method(**{name: value})
        assert str(refused.value) == f"some-method: {name} is {value!r}; it must be {RULES[name]}"


def outside(allowed: Range) -> list[float]:
    """Return values just outside a range."""
    below = [allowed.low if allowed.above else allowed.low - 1] if allowed.low > -inf else []
    beyond = [allowed.high if allowed.below else allowed.high + 1] if allowed.high < inf else []
    return [*below, *beyond, -inf, nan] + ([] if allowed.unbounded else [inf])


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, "paper") for name in METHODS]
    + [(name, "code") for name in METHODS if "variant" in method_parameters(name)],
)
def test_every_parameter_of_every_method_keeps_its_range(name, variant) -> None:
    row = METHODS[name]
    known = method_parameters(name, variant)
    several = {"variant": variant} if "variant" in known else {}
    row(**{key: one.default for key, one in known.items()} | several)
    for key, one in known.items():
        wrong = (
            outside(one.allowed)
            if isinstance(one.allowed, Range)
            else ["other"]
            if one.allowed
            else []
        )
        for value in wrong:
            with pytest.raises(ValueError, match=rf": {key} is .*; it must be "):
                row(**{**several, key: value})


@pytest.mark.parametrize(
    "name", ["aepo", "aepo-branching", "aepo-clip", "arpo", "dapo", "epo", "rloo"]
)
def test_a_variant_is_the_papers_or_the_codes(name) -> None:
    assert METHODS[name](variant="code").name == METHODS[name]().name == name
    with pytest.raises(ValueError, match=f"{name}: variant is 'v1'; it must be paper or code"):
        METHODS[name](variant="v1")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "arpo",
            {"group": 4, "initial": 5},
            "initial is 5; it must be 0 (half of the group) to 4, the group",
        ),
        (
            "dapo",
            {"longest": 100, "cache": 101},
            "cache is 101; it must be 1 to 100, the longest path",
        ),
        ("epo", {"low": 1.0, "high": 1.0}, "high is 1.0; it must be above low, which is 1.0"),
        (
            "reinforce-pp",
            {"baseline": "group", "gamma": 0.9},
            "gamma, kl_reward is (0.9, 0.0); it must be 1, 0 with baseline group: it has no steps",
        ),
        ("spear", {"low": 4.0, "high": 4.0}, "high is 4.0; it must be above low, which is 4.0"),
        (
            "starpo-s",
            {"rule": "top-k-abs"},
            "share is 0.25; it must be a number of groups for top-k-abs",
        ),
        (
            "starpo-s",
            {"rule": "top-k-abs", "share": 2.5},
            "share is 2.5; it must be a number of groups for top-k-abs",
        ),
        ("starpo-s", {"share": 1.5}, "share is 1.5; it must be above 0 and at most 1"),
        ("tis", {"low": 3.0}, "low is 3.0; it must be at most high, which is 2.0"),
        ("tis", {"by": "sequence"}, "by is 'sequence'; it must be own where weights are truncated"),
        (
            "tis",
            {"outside": "reject", "normalize": True},
            "normalize is True; it must be false where tokens are rejected",
        ),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(name, arguments, message) -> None:
    with pytest.raises(ValueError) as refused:
        METHODS[name](**arguments)
    assert str(refused.value) == f"{name}: {message}"
