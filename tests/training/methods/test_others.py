"""Methods of others: `module:factory` on the command line, and what installed packages declare."""

import sys

import pytest

from turngym.tests.support.packages import install, working_in
from turngym.training.cli.methods import Methods
from turngym.training.comparison.plan import plan
from turngym.training.methods import (
    GROUP,
    check_methods,
    describe,
    foreign,
    method_parameters,
    others,
    parse_methods,
)
from turngym.training.runs.config import TrainConfig, read_recipe, reserved_of, to_toml

OWN = '''"""Methods that I wrote."""

from dataclasses import replace
from typing import Annotated, Literal

from turngym.training.control.control import Control
from turngym.training.control.parameters import Range


def sharpen(alpha: Annotated[float, Range(0, 1)] = 0.2, steps: int = 1, mode: Literal["a", "b"] = "a") -> Control:
    """Multiply every advantage by 1 + alpha."""
    shape = lambda terms, batch, now, state: replace(terms, advantage=terms.advantage * (1 + alpha))
    return Control(name=f"sharpen {alpha} {steps} {mode}", shape=shape)


def plain() -> Control:
    return Control(name="plain")


def loose(x) -> Control: ...
def needy(x: float) -> Control: ...
def words(x: str = "a") -> Control: ...
def wrong() -> Control:
    return 3
def broken() -> Control:
    raise KeyError("no")
number = 3
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own_methods.py").write_text(OWN)
    with working_in(tmp_path):
        yield tmp_path


@pytest.fixture
def packages(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    points = {"sharp": "own_methods:sharpen", "gone": "own_gone:f", "grpo": "own_methods:plain"}
    install(folder, "good-methods", GROUP, twice="own_methods:plain", **points)
    install(folder, "more-methods", GROUP, twice="own_methods:plain")
    return folder


def names(text):
    return [control.name for control in parse_methods(text, {"steps": 7})]


def test_a_function_of_a_module_is_a_method_with_parameters(folder):
    assert names("grpo, own_methods:sharpen:alpha=0.5,mode=b,epo:alpha=1,own_methods:plain") == [
        *("grpo", "sharpen 0.5 7 b", "epo", "plain"),
    ]
    assert names("own_methods:sharpen") == ["sharpen 0.2 7 a"]
    assert [str(one) for one in method_parameters("own_methods:sharpen").values()] == [
        *("alpha=0.2 (0 to 1)", "steps=1 (finite)", "mode=a (a or b)"),
    ]


def test_its_card_is_what_the_function_says_or_the_module(folder):
    assert describe("own_methods:sharpen").startswith(
        "own_methods:sharpen\n\nMultiply every advantage by 1 + alpha.\n"
    )
    assert describe("own_methods:plain").startswith("own_methods:plain\n\nMethods that I wrote.\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own_methods:sharpen:alpha=2", "own_methods:sharpen: alpha is 2.0; it must be 0 to 1"),
        (
            "own_methods:sharpen:beta=2",
            "no parameter of own_methods:sharpen is called 'beta'; known are alpha",
        ),
        (
            "own_methods:sharpen:alpha",
            "own_methods:sharpen: 'alpha' is no parameter; write own_methods:sharpen:par",
        ),
        ("own_methods:sharpn", "has no sharpn; did you mean 'sharpen'?"),
        ("own_nothing:f", "the method 'own_nothing:f': there is no module own_nothing"),
        (
            "own_methods:loose",
            "the method 'own_methods:loose': x is annotated None; annotate it with float or int and",
        ),
        ("own_methods:needy", "the method 'own_methods:needy': x has no default; give it one"),
        (
            "own_methods:words",
            "x is annotated <class 'str'>; annotate it with float or int and a Range, Literal",
        ),
        (
            "own_methods:number",
            "the method 'own_methods:number' is a int; write a function that returns a Control",
        ),
        (
            "own_methods:wrong",
            "the method 'own_methods:wrong' returns a int; it must return a turngym.training.control.control",
        ),
        ("own_methods:broken", "the method 'own_methods:broken' raises KeyError: 'no' ("),
        ("own_methods", "no method is called 'own_methods'"),
        ("epo:alpha", "epo: 'alpha' is no parameter; write epo:parameter=value"),
        ("epoo:alpha=1", "no method is called 'epoo'; did you mean 'epo'?"),
    ],
)
def test_what_is_wrong_with_one_is_a_line(folder, text, message):
    for read in (parse_methods, check_methods):
        with pytest.raises(ValueError) as caught:
            read(f"grpo,{text}")
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_packages_declare_is_listed_with_the_package_and_nothing_is_imported(packages, capsys):
    assert [(one.name, one.package) for one in others()] == [
        *(("gone", "good-methods"), ("sharp", "good-methods")),
        *(("twice", "good-methods"), ("twice", "more-methods")),  # grpo is turngym's
    ]
    Methods().run()
    shown = " ".join(capsys.readouterr().out.split())
    for line in (
        "sharp Multiply every advantage by 1 + alpha (package good-methods)",
        "gone broken: there is no module own_gone (package good-methods)",
        "grpo not used, as turngym has grpo itself: rename it (package good-methods)",
        "twice broken: twice is declared by the packages good-methods and more-methods; uninstall all but one",
    ):
        assert line in shown
    assert "own_methods" not in sys.modules
    assert names("grpo") == ["grpo"] and names("sharp:alpha=0.1") == ["sharpen 0.1 7 a"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gone",
            "the method gone of the package good-methods 'own_gone:f': there is no module own_gone",
        ),
        (
            "twice",
            "twice is declared by the packages good-methods and more-methods; uninstall all but one",
        ),
        ("shar", r"no method is called 'shar'; did you mean 'sharp'\? known are .*sharp, .*twice"),
    ],
)
def test_a_broken_declaration_is_an_error_only_where_it_is_used(packages, name, message):
    with pytest.raises(ValueError, match=message):
        parse_methods(name)
    assert names("sharp") == ["sharpen 0.2 7 a"]


def test_only_the_command_may_name_one(packages):
    assert [
        foreign(text)
        for text in ("grpo,epo:alpha=1", "sharp", "grpo,own_methods:plain", "grpo,os:system")
    ] == [
        *(False, True, True, True),
    ]
    (packages / "mine.toml").write_text('method = "grpo,own_methods:sharpen:alpha=0.1"\n')
    (packages / "config.toml").write_text(
        to_toml(TrainConfig().changed(method="grpo,own_methods:plain"), {})
    )
    asked = reserved_of(TrainConfig().changed(method="grpo,own_methods:sharpen:alpha=0.1"))
    with pytest.raises(
        ValueError, match=r"add --method grpo,own_methods:sharpen:alpha=0\.1 to the command"
    ):
        read_recipe("mine.toml")
    assert read_recipe("mine.toml", allowed=asked).method == "grpo,own_methods:sharpen:alpha=0.1"
    assert "own_methods" not in sys.modules


def test_a_comparison_takes_a_method_in_place_of_a_recipe(folder):
    pytest.importorskip("matplotlib")
    (folder / "mine.toml").write_text('method = "grpo,own_methods:sharpen"\n')
    found = plan(
        ["grpo", "grpo,own_methods:sharpen:alpha=0.1"],
        "math-python",
        1,
        {"steps": 1},
        str(folder / "out"),
    )
    assert [trial.config.method for trial in found.trials] == [
        "grpo",
        "grpo,own_methods:sharpen:alpha=0.1",
    ]
    with pytest.raises(
        ValueError, match="name it in place of the recipe: turngym compare grpo,own_methods:sharpen"
    ):
        plan(["grpo", "mine.toml"], "math-python", 1, {"steps": 1}, str(folder / "out2"))
