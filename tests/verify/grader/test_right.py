from fractions import Fraction

import pytest

from turngym.tests.verify.grader.right import SETTINGS, right, spellings
from turngym.tests.verify.grader.written import number

GOLDS = ["1234", "-7", r"\frac{3}{4}", r"(1, \sqrt{2})", r"\text{Monday}", "12.5", "x+1", r"20\%"]


def test_completions_take_golds_and_settings_in_turn_and_all_spellings():
    made = list(right(GOLDS, 400))
    assert [one.gold for one in made[:9]] == [*GOLDS, GOLDS[0]]
    assert {one.ways[1] for one in made} == set(SETTINGS)
    names = {name for gold in GOLDS for name in spellings(gold)}
    assert names <= {one.ways[0] for one in made} and len(names) > 40


def test_every_setting_shows_the_answer_in_its_last_box():
    for name, setting in SETTINGS.items():
        assert "%s" in setting, name
        last = max(setting.rfind("boxed"), setting.rfind("fbox"))
        assert setting.find("%s", last) > last, name


@pytest.mark.parametrize("gold", ["1234", "-7", "0", "70000"])
def test_plain_spellings_of_a_number_have_its_value(gold):
    plain = {name: number(text) for name, text in spellings(gold).items()}
    read = {name: value for name, value in plain.items() if value is not None}
    assert len(read) >= 5 and set(read.values()) == {Fraction(gold)}


def test_the_generators_do_not_know_the_grader():
    from turngym.tests.verify.grader import right as module
    from turngym.tests.verify.grader import wrong

    for one in (module, wrong):
        assert not any(
            getattr(value, "__module__", "").startswith("turngym.envs") or "Grader" in name
            for name, value in vars(one).items()
        )
