import subprocess
import sys
from itertools import combinations, pairwise

import pytest

from turngym.training import methods
from turngym.training.control.chain import chain
from turngym.training.control.control import Control
from turngym.training.methods import (
    METHODS,
    check_methods,
    describe,
    evidence,
    parameters,
    parse_methods,
    plausible,
    title,
)


@pytest.mark.parametrize("name", METHODS)
def test_a_control_is_called_what_its_row_is_called(name) -> None:
    assert METHODS[name]().name == name
    assert list(METHODS) == sorted(METHODS)


def test_a_description_has_the_card_and_the_parameters_with_their_ranges() -> None:
    assert (
        title("entropy-bonus")
        == "Entropy bonus (Williams & Peng 1991; Mnih et al., arXiv 1602.01783)."
    )
    text = describe("entropy-bonus")
    assert (
        text.startswith("entropy-bonus\n\nEntropy bonus (Williams")
        and "L ← L - coef · mean H" in text
    )
    assert "coef=0.001 (" in text
    with pytest.raises(ValueError, match="no method is called 'grp'; did you mean 'grpo'"):
        describe("grp")


def test_every_card_says_what_it_turns_and_how_well_it_is_known() -> None:
    found = {name: evidence(name) for name in METHODS}
    assert found["bapo"] == ("clip", "A") and found["deng"] == ("advantage", "C")
    assert [name for name, (knob, grade) in found.items() if not (knob and grade)] == [
        "turn-floor"
    ]  # ours
    assert plausible("grpo,deng:alpha=0.1,epo,eag-rl") == ["deng", "eag-rl"]


def test_names_cards_and_parameters_are_read_and_checked_without_torch() -> None:
    code = "import sys; from turngym.training import methods as m; from turngym.training.cli import train as commands; [m.describe(n) for n in m.METHODS]\n"
    code += "try: m.check_methods('grpo,epo:alpha=-1')\nexcept ValueError: print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("name", METHODS)
def test_the_text_of_a_signature_says_what_the_function_does(name) -> None:
    row = METHODS[name]
    assert list(row.parameters().values()) == list(parameters(row.load()).values())
    assert row.parameters("code").keys() == row.parameters().keys() - set(row.paper)


@pytest.mark.parametrize(
    "all_pairs", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["neighbours", "all"]
)
def test_two_base_algorithms_are_refused_before_they_are_built(all_pairs) -> None:
    alone = [name for name in METHODS if METHODS[name].recipe.get("method") == name]
    for one, other in combinations(alone, 2) if all_pairs else pairwise(alone):
        with pytest.raises(
            ValueError,
            match=f"{one} and {other} both set credit; use one of them: --method {one} or",
        ):
            check_methods(f"{one},{other}")
        with pytest.raises(ValueError, match=f"{one} and {other} both set "):
            chain(*parse_methods(f"{one},{other}"))
    for name in METHODS:
        if recipe := METHODS[name].recipe:
            check_methods(recipe["method"])


@pytest.mark.parametrize("name", METHODS)
def test_a_row_says_what_its_control_sets(name) -> None:
    others = {
        "clip_low": 0.3,
        "clip_high": 0.3,
        "limit": 2.0,
        "aggregation": "turn-mean",
        "baseline": "group",
        "pool": 0.25,
    }
    rules = [rule for rule in METHODS[name].sets.values() if rule]
    single = [
        {key: value}
        for rule in rules
        for key in rule
        for value in (rule[key], others.get(key, "paper"))
    ]
    for values in (
        {},
        *rules,
        *single,
        {key: value for rule in rules for key, value in rule.items()},
    ):
        text = ",".join(f"{key}={value}" for key, value in values.items())
        (control,) = parse_methods(f"{name}:{text}" if text else name)
        assert set(methods._sets(name, text.split(",") if text else [])) == control.sets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "grpo,arpo,aepo",
            "arpo and aepo both set branching; use one of them: --method grpo,arpo or --method grpo,aepo",
        ),
        (
            "grpo,cispo:hi=2,gspo",
            "cispo and gspo both set surrogate; use one of them: --method grpo,cispo:hi=2 or",
        ),
        ("grpo:clip_high=0.3,starpo-s", "grpo and starpo-s both set clip"),
        ("rloo,reinforce", "rloo and reinforce both set surrogate"),
        ("rloo:variant=code,reinforce", ""),
        ("grpo:aggregation=turn-mean,gspo", "grpo and gspo both set aggregation"),
        ("grpo,starpo-s,cispo:lo=0.5", "starpo-s and cispo both set clip"),
    ],
)
def test_methods_that_set_the_same_are_refused_before_they_are_built(text, message) -> None:
    if not message:
        return check_methods(text)
    with pytest.raises(ValueError, match=message):
        check_methods(text)
    with pytest.raises(ValueError, match="both set "):
        chain(*parse_methods(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epo:alpha=-1", "epo: alpha is -1.0; it must be 0 or more"),
        (
            "grpo:normalise=std",
            "no parameter of grpo is called 'normalise'; did you mean 'normalize'",
        ),
        ("grpo:ddof=1.5", "grpo: ddof is '1.5'; it must be a whole number"),
        ("grpo,,epo", "write names with commas between"),
        ("epo:variant=code,gamma=3", "no parameter of epo is called 'gamma'"),
        ("arpo:threshold=1,variant=code", "no parameter of arpo is called 'threshold'"),
    ],
)
def test_a_wrong_parameter_is_found_without_the_method(text, message) -> None:
    with pytest.raises(ValueError, match=message):
        check_methods(text)


def test_a_function_of_ones_own_can_be_a_row(monkeypatch) -> None:
    def mine(alpha: float = 0.5) -> Control:
        """Mine."""
        return Control(name=f"mine {alpha}")

    monkeypatch.setitem(METHODS, "mine", mine)
    assert title("mine") == "Mine." and "alpha=0.5 (finite)" in describe("mine")
    assert parse_methods("mine:alpha=2")[0].name == "mine 2.0"


def test_parse_methods_reads_names_in_order_with_their_parameters() -> None:
    controls = parse_methods(
        " grpo:clip_high=0.28 ,epo:coef=0,alpha = 0.2,high=1.5, entropy-bonus:coef=0.01"
    )
    assert [control.name for control in controls] == ["grpo", "epo", "entropy-bonus"]
    assert "clip" in controls[0].sets
    assert not controls[1].needs.entropy_grad
    assert controls[2].needs.entropy_grad


def test_parse_methods_gives_the_control_the_factory_gives(toy) -> None:
    (parsed,) = parse_methods("grpo:normalize=none,ddof=0,kl_coef=0.1,aggregation=turn-mean")
    built = METHODS["grpo"](normalize="none", ddof=0, kl_coef=0.1, aggregation="turn-mean")
    assert parsed.sets == built.sets == {"credit", "aggregation"}
    assert toy.learn(parsed, {})[0] == toy.learn(built, {})[0]


def test_defaults_fill_only_parameters_that_exist_and_are_left_out(toy) -> None:
    state = {"sum": 1.0, "count": 1, "step": 5}

    def loss(text: str, **defaults) -> float:
        return toy.learn(parse_methods(text, defaults)[0], state)[0]

    assert loss("epo:high=0.5", steps=10) == loss("epo:high=0.5,steps=10")
    assert (
        loss("epo:high=0.5,steps=4", steps=10)
        == loss("epo:high=0.5,steps=4")
        != loss("epo:high=0.5,steps=10")
    )
    assert parse_methods("grpo", {"steps": 10})[0].name == "grpo"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grp", r"no method is called 'grp'; did you mean 'grpo'\? known are .*grpo"),
        ("zzz", "no method is called 'zzz'; known are"),
        ("epo:alfa=1", r"no parameter of epo is called 'alfa'; did you mean 'alpha'\?"),
        ("epo:alpha", "epo: 'alpha' is no parameter; write epo:parameter=value"),
        ("epo:alpha=x", "epo: alpha is 'x'; it must be a number"),
        ("epo:alpha=-1", r"epo: alpha is -1\.0; it must be 0 or more"),
        ("epo:alpha=1,alpha=2", "epo: alpha is given twice"),
        ("epo:variant=papr", "epo: variant is 'papr'; it must be paper or code"),
        ("grpo:ddof=1.5", r"grpo: ddof is '1\.5'; it must be a whole number"),
        ("", "methods are ''; write names with commas between"),
        ("grpo,,epo", "methods are 'grpo,,epo'; write names"),
        ("alpha=2", "no method is called 'alpha=2'"),
    ],
)
def test_a_bad_text_is_refused_with_the_fix(text, message) -> None:
    with pytest.raises(ValueError, match=message):
        parse_methods(text)
