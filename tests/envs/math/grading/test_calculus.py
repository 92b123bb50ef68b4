"""Integrals: checked in a session of the Python tool, or not at all."""

import pytest

from turngym.envs.math.grading import calculus
from turngym.envs.math.grading.calculus import NotDecided, Unconfined, find_level, is_integral
from turngym.envs.math.grading.expressions import read_expression
from turngym.envs.math.grading.grader import GraderFailure
from turngym.tools import Status, ToolFailure


def formula(text):
    return read_expression(text, names=True, functions=calculus.FUNCTIONS, powers=True)


def integral(answer, integrand="x**2 + 2*x", seconds=60):
    return is_integral(formula(answer), formula(integrand), "x", seconds)


@pytest.fixture(autouse=True)
def confined():
    try:
        find_level()
    except Unconfined as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        *(("x**3/3 + x**2 + C", True), ("x**2*(x + 3)/3", True), ("1/3*x**3 + x**2 + 7", True)),
        *(("(x**3 + 3*x**2)/3 + sin(x)**2 + cos(x)**2", True), ("x**3/3 + 1.0*x**2 + K", True)),
        *(
            ("x**3/3 + x", False),
            ("x**2 + 2*x", False),
            ("C", False),
            ("0*x", False),
            ("y**3/3 + y**2", False),
        ),
    ],
)
def test_its_derivative_decides(answer, right):
    assert integral(answer) is right


def test_what_takes_too_long_is_not_decided():
    slow = "+".join(f"sin(x+{n})**40*exp(cos(x*{n}))**20" for n in range(1, 25))
    with pytest.raises(NotDecided) as raised:
        integral(slow, seconds=0.2)
    assert raised.value.status in (Status.TIMEOUT, Status.MEMORY, Status.KILLED)
    assert integral("x**3/3 + x**2")


def test_there_is_no_weaker_level(monkeypatch):
    tried = []

    def require(level):
        tried.append(level)
        raise ToolFailure(f"no {level}\nhere")

    monkeypatch.setattr(calculus, "require", require)
    monkeypatch.setattr(calculus, "find_level", find_level.__wrapped__)
    with pytest.raises(
        Unconfined,
        match=r"no program can be confined here \(no namespaces here; no landlock here\)",
    ):
        calculus.find_level()
    assert tried == ["namespaces", "landlock"]
    with pytest.raises(
        GraderFailure, match="an integral cannot be checked: no program can be confined here"
    ):
        integral("x**3/3 + x**2")
