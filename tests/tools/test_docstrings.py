"""Docstrings of other people's code, read without an import; what cannot be read is said in a few words."""

import sys

import pytest

from turngym.tests.support.packages import install, working_in
from turngym.tools.docstrings import first_sentence, read_docstring
from turngym.tools.plugins import ListedPlugin, list_plugins

DECAY = '''"""Methods of mine."""

raise RuntimeError("imported")


def turn_decay():
    """Later turns count less. They come last.

    And more.
    """
    local_name = 3


class World:
    """A world of mine, version 2.5 of it."""


if World:

    async def inner():
        """Deep inside."""


def silent(): ...


made = lambda: None
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    with working_in(tmp_path):
        monkeypatch.syspath_prepend(str(tmp_path))
        yield tmp_path


@pytest.fixture
def package(folder):
    """A package whose `__init__` takes a function over from a module of it."""
    made = folder / "my_package"
    (made / "deep").mkdir(parents=True)
    (made / "__init__.py").write_text(
        "from .decay import turn_decay as exported\nfrom .deep import *\n"
    )
    (made / "decay.py").write_text(DECAY)
    (made / "deep" / "__init__.py").write_text("from ..decay import World\n")
    (made / "broken.py").write_text("def f(:\n")
    return made


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("my_package.decay:turn_decay", "Later turns count less"),
        ("my_package.decay:World", "A world of mine, version 2.5 of it"),
        ("my_package.decay:inner", "Deep inside"),
        ("my_package.decay:silent", "Methods of mine"),
        ("my_package.decay:made", "Methods of mine"),
        ("my_package:exported", "Later turns count less"),
        ("my_package.deep:World", "A world of mine, version 2.5 of it"),
        ("my_package:World", ""),  # behind a star, so it cannot be told
        ("math:floor", ""),  # no text in Python
    ],
)
def test_the_first_sentence_is_read_without_an_import(package, spec, sentence):
    assert first_sentence(read_docstring(spec)) == sentence
    assert not [name for name in sys.modules if name.startswith("my_package")]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("my_package.decay:turn_decoy", "the module my_package.decay has no turn_decoy"),
        ("my_package.decay:local_name", "the module my_package.decay has no local_name"),
        ("my_package.nowhere:f", "there is no module my_package.nowhere"),
        ("nowhere_to_be:f", "there is no module nowhere_to_be"),
        (
            "my_package.broken:f",
            "the module my_package.broken is not Python: invalid syntax (line 1)",
        ),
        ("my_package", "'my_package' is not of the form module:name"),
        ("my_package:a.b", "'my_package:a.b' is not of the form module:name"),
    ],
)
def test_a_broken_declaration_is_told_in_a_line(package, spec, problem):
    with pytest.raises(ValueError) as caught:
        read_docstring(spec)
    assert str(caught.value) == problem


def test_modules_that_take_a_name_over_from_each_other_come_to_an_end(folder):
    (folder / "own_left.py").write_text("from own_right import f\n")
    (folder / "own_right.py").write_text("from own_left import f\n")
    assert read_docstring("own_left:f") == ""


def test_a_list_of_plugins_has_a_line_for_each_also_for_what_cannot_be_used(package, folder):
    points = {
        "decay": "my_package.decay:turn_decay",
        "gone": "my_package.decay:gone",
        "own": "my_package.decay:World",
    }
    install(folder, "some-methods", "own.things", twice="my_package.decay:silent", **points)
    install(
        folder,
        "more-methods",
        "own.things",
        twice="my_package.decay:silent",
        plain="my_package.deep:f",
    )
    (package / "deep" / "__init__.py").write_text("f = print\n")
    doubled = "broken: twice is declared by the packages more-methods and some-methods; uninstall all but one"
    assert list_plugins("own.things", taken=["own"]) == [
        ListedPlugin("decay", "Later turns count less", "some-methods"),
        ListedPlugin("gone", "broken: the module my_package.decay has no gone", "some-methods"),
        ListedPlugin("own", "not used, as turngym has own itself: rename it", "some-methods"),
        ListedPlugin("plain", "Of more-methods.", "more-methods"),
        ListedPlugin("twice", doubled, "more-methods"),
        ListedPlugin("twice", doubled, "some-methods"),
    ]
    assert not [name for name in sys.modules if name.startswith("my_package")]
