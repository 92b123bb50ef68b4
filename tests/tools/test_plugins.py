"""Other people's code: found by name, imported only when asked for, and every mistake told in one line."""

import importlib
import sys
from pathlib import Path

import pytest

from turngym.tools.plugins import Plugin, declared_plugins, find_plugin, import_object, is_foreign

GOOD = "def factory(size=3):\n    return 'x' * size\n\nclass Thing:\n    pass\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder that Python's path does not have; what is imported there is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    importlib.invalidate_caches()


def install(folder, package, lines, group="own.things"):
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: Things.\n"
    )
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")
    importlib.invalidate_caches()


def test_a_module_in_the_current_folder_is_found(folder):
    (folder / "own_guess.py").write_text(GOOD)
    assert import_object("own_guess:factory", "environment")() == "xxx"
    (folder / "deep").mkdir()
    (folder / "deep" / "worlds.py").write_text(GOOD)
    assert import_object("deep.worlds:Thing", "environment").__name__ == "Thing"
    assert sys.path[-1] == str(folder) and sys.path.count(str(folder)) == 1


def test_a_file_takes_the_place_of_no_other_module(folder):
    for name in ("json", "numpy", "turngym", "gzip", "sys"):
        (folder / f"{name}.py").write_text("own = 1\n")
        with pytest.raises(
            ValueError, match=f"has no own; it has the name of your {name}.py: rename that$"
        ):
            import_object(f"{name}:own", "thing")
        assert not hasattr(sys.modules[name], "own")


def test_python_s_path_stays_as_it_is_where_it_has_the_module(folder):
    before = list(sys.path)
    assert (
        import_object("turngym.tools:tool", "thing")
        is importlib.import_module("turngym.tools").tool
    )
    assert sys.path == before


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            "own_gues:factory",
            "there is no module own_gues, nor a file of it in {folder}; did you mean 'own_guess'?",
        ),
        ("own_guess.part:x", "there is no module own_guess.part, nor a file of it in {folder}"),
        (
            "own_guess:Thin",
            "the module own_guess ({folder}/own_guess.py) has no Thin; did you mean 'Thing'?",
        ),
        (
            "own_guess.py:Thing",
            "'own_guess.py' is no module; write what Python imports, such as 'own_guess'",
        ),
        (
            "a/own_guess.py:Thing",
            "'a/own_guess.py' is no module; write what Python imports, such as 'a.own_guess'",
        ),
        ("no-name:Thing", "'no-name' is no module; write what Python imports"),
        ("own_guess", "the thing is 'own_guess'; write module:name"),
        ("own_guess:", "the thing is 'own_guess:'; write module:name"),
        (":Thing", "the thing is ':Thing'; write module:name"),
        ("own_guess:Thing.make", "the thing is 'own_guess:Thing.make'; write module:name"),
        ("own_guess.py", "the thing is 'own_guess.py'; write module:name"),
    ],
)
def test_what_is_not_there_is_named_with_the_fix(spec, words, folder):
    (folder / "own_guess.py").write_text(GOOD)
    with pytest.raises(ValueError) as caught:
        import_object(spec, "thing")
    assert words.format(folder=folder) in str(caught.value) and "\n" not in str(caught.value)
    assert spec in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import os\n\ndef f():\n    return 1 / 0\n\nf()\n",
            "ZeroDivisionError: division by zero ({file}, line 4)",
        ),
        ("import numpyy\n", "ModuleNotFoundError: No module named 'numpyy' ({file}, line 1)"),
        ("def f(:\n", "SyntaxError: invalid syntax (own_broken.py, line 1)"),
        ("import json\njson.loads('{')\n", "line 1 column 2 (char 1) ({file}, line 2)"),
        ("raise SystemExit('usage: guess')\n", "SystemExit: usage: guess ({file}, line 1)"),
        ("from json import nothing\n", "ImportError: cannot import name 'nothing' from 'json'"),
        ("raise ValueError('two\\nlines')\n", "ValueError: two lines ({file}, line 1)"),
    ],
)
def test_an_import_that_fails_is_one_line_with_the_place(text, words, folder):
    (folder / "own_broken.py").write_text(text)
    with pytest.raises(
        ValueError, match="the thing 'own_broken:Thing': importing own_broken raises "
    ) as caught:
        import_object("own_broken:Thing", "thing")
    assert words.format(file=folder / "own_broken.py") in str(caught.value) and "\n" not in str(
        caught.value
    )


def test_what_packages_declare_is_listed_without_an_import(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "own_broken.py").write_text("1 / 0\n")
    install(folder, "two-things", "second = own_broken:Thing\nfirst = own_broken:factory")
    install(folder, "other-things", "second = own_guess:Thing")
    assert declared_plugins("own.things") == (
        Plugin("first", "own_broken:factory", "two-things", "Things."),
        Plugin("second", "own_guess:Thing", "other-things", "Things."),
        Plugin("second", "own_broken:Thing", "two-things", "Things."),
    )
    assert declared_plugins("own.nothing") == () and "own_broken" not in sys.modules


def test_a_name_of_two_packages_is_an_error_only_when_it_is_used(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    install(folder, "two-things", "second = own_broken:Thing\nfirst = own_broken:factory")
    install(folder, "other-things", "second = own_guess:Thing")
    assert (
        find_plugin("first", "own.things").package == "two-things"
        and find_plugin("third", "own.things") is None
    )
    with pytest.raises(
        ValueError,
        match="second is declared by the packages other-things and two-things; uninstall",
    ):
        find_plugin("second", "own.things")


def test_only_code_that_nobody_named_is_foreign(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "own_guess.py").write_text(GOOD)
    install(folder, "two-things", "first = own_guess:factory")
    assert is_foreign("first", "own.things")
    import_object("own_guess:factory", "thing")
    assert not is_foreign("first", "own.things") and not is_foreign("grpo", "own.things")
    # Any function of any module can be written so, `os:system` among them.
    assert is_foreign("own_guess:factory", "own.things") and is_foreign("os:system", "own.things")
    assert Path.cwd() == folder
