import itertools
import json
import re

import pytest

from turngym.envs.household.grammar import HELP, facing, get_dialect, listed, state_of_thing


def test_lists_are_written_with_commas_and_and():
    assert listed([]) == "nothing"
    assert listed(["mug 1"]) == "a mug 1"
    assert listed(["egg 1", "mug 2", "mug 1"]) == "a egg 1, a mug 2, and a mug 1"
    assert facing(["drawer 2"]) == "drawer 2" and facing(["drawer 2", "drawer 1"]) == "drawer 2, and drawer 1"


def test_what_is_said_of_a_thing_is_what_the_official_grammar_says(shared_data):
    text = (shared_data / "household" / "logic" / "alfred.twl2").read_text()
    rules = json.loads(text.split('"""')[1])["examineObject.feedback"][1:]
    flags = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "issliced": "sliced", "istoggled": "on"}
    for values in itertools.product((False, True), repeat=5):
        state = dict(zip(flags.values(), values))
        given = {flag: state[name] for flag, name in flags.items()}
        # Nothing is ever untoggled; what was sliced or toggled can be.
        given |= {"not_istoggled": False, "toggleable": True, "sliceable": True}
        fits = (
            rule["rhs"]
            for rule in rules
            if all(given[flag] for flag in re.findall(r"(\w+)\(", rule.get("condition", "")))
        )
        assert state_of_thing("apple 1", **state) == next(fits).replace("{o.name}", "apple 1")


def test_help_is_that_of_the_official_grammar(shared_data):
    text = json.loads((shared_data / "household" / "game_common.json").read_text())["grammar_template"]
    assert text.count(HELP) == 1


def test_an_unknown_form_of_text_is_refused():
    with pytest.raises(ValueError, match=r"text is 'new'; it is 'current' \(`move X to Y`\) or 'old'"):
        get_dialect("new")
