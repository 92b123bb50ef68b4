"""Declared ranges: every parameter of every method, and the checks themselves."""

from math import inf, nan
from typing import Annotated, Literal

import pytest

from turngym.training.parameters import Bound, Count, Finite, Range, Share, checked, parameters


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
