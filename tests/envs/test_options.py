import pytest

from turngym.envs.options import EnvOptions


def test_what_is_left_out_is_not_passed():
    assert EnvOptions().kwargs() == {}


def test_named_options_are_passed():
    assert EnvOptions(tasks="a.jsonl", difficulty=(1, 3)).kwargs() == {"tasks": "a.jsonl", "difficulty": (1, 3)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max_turns=3", 3),
        ("timeout=0.5", 0.5),
        ("format=llama-json", "llama-json"),
        ("level=rlimits-only", "rlimits-only"),
        ("families=['words', 'units']", ["words", "units"]),
        ("system=Say \"yes\" = 'no'", "Say \"yes\" = 'no'"),
        ("system=", ""),
        ("flag=true", True),
        ("split='test'", "test"),
    ],
)
def test_options_are_toml_values_and_bare_words_are_text(text, value):
    assert EnvOptions(option=(text,)).kwargs() == {text.partition("=")[0]: value}


def test_an_option_without_a_value_is_named_with_the_fix():
    with pytest.raises(ValueError, match="--option 'max_turns' is no name=value pair; write, say, max_turns=3"):
        EnvOptions(option=("max_turns",)).kwargs()
