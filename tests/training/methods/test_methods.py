import pytest

from turngym.training.methods import METHODS, describe, get_method, parse_methods


def test_get_method_returns_the_factory_of_a_name() -> None:
    assert get_method("epo")(coef=0.5).name == "epo"


@pytest.mark.parametrize("name", METHODS)
def test_a_control_is_called_what_its_row_is_called(name) -> None:
    assert METHODS[name]().name == name
    assert list(METHODS) == sorted(METHODS)


def test_describe_gives_parameters_and_title() -> None:
    assert describe("entropy-bonus") == (
        "entropy-bonus",
        "coef=0.001",
        "Entropy bonus (Williams & Peng 1991; Mnih et al., arXiv 1602.01783).",
    )


def test_parse_methods_reads_names_in_order_with_their_parameters() -> None:
    controls = parse_methods(" grpo:clip_high=0.28 ,epo:coef=0,alpha = 0.2,high=1.5, entropy-bonus:coef=0.01")
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
    assert loss("epo:high=0.5,steps=4", steps=10) == loss("epo:high=0.5,steps=4") != loss("epo:high=0.5,steps=10")
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
        ("epo:variant=papr", "epo: variant is 'papr'; it must be one of paper, code"),
        ("grpo:ddof=1.5", r"grpo: ddof is '1\.5'; it must be a whole number"),
        ("", "methods are ''; write names with commas between"),
        ("grpo,,epo", "methods are 'grpo,,epo'; write names"),
        ("alpha=2", "no method is called 'alpha=2'"),
    ],
)
def test_a_bad_text_is_refused_with_the_fix(text, message) -> None:
    with pytest.raises(ValueError, match=message):
        parse_methods(text)
