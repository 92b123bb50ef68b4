import ast
import os
import sys
import time
from pathlib import Path

import pytest

from turngym.agents.check import search
from turngym.tools import PythonTool

HEAD, TAIL = (
    f"55{os.getpid():08d}",
    "44433322",
)  # of this process: others may leave theirs in the temporary folder
CALL = f"\nprint(search({HEAD!r}, {TAIL!r}, SINCE))"
SPELLED = f"h, t = {HEAD!r}, {TAIL!r}\n"


def found(setup, level="namespaces"):
    """The places where the program finds the text after `setup`, which must not spell it out."""
    tool, since = PythonTool(timeout=60.0, memory_mb=1024, level=level), time.time() - 1.0
    try:
        if setup:
            assert tool.call({"code": SPELLED + setup}).status == "ok"
        result = tool.call(
            {"code": Path(search.__file__).read_text("utf-8") + CALL.replace("SINCE", repr(since))}
        )
    finally:
        tool.close()
    assert result.status == "ok", result.text
    return set(ast.literal_eval(result.text))


def test_the_program_does_not_find_itself():
    assert found("") == set()


@pytest.mark.parametrize(
    ("setup", "places"),
    [
        ("kept = [h + t]", {"objects"}),
        ("kept = {'a': (h + t).encode()}", {"objects"}),
        ("import os; os.environ['GOLD'] = h + t", {"environment"}),
        ("import sys; sys.argv.append(h + t)", {"arguments", "objects"}),
        ("import os; os.mkdir('a'); open('a/b', 'w').write(h + t) and None", {"working folder"}),
        ("open(h + t, 'w').close()", {"working folder"}),
        (
            "import os; f = open('x', 'w+'); f.write(h + t); f.flush(); os.remove('x')",
            {"open files"},
        ),
        (
            "import tempfile; f = tempfile.TemporaryFile(dir='/tmp'); f.write((h + t).encode()); f.flush()",
            {"open files"},
        ),
    ],
)
def test_every_place_is_searched(setup, places):
    seen = found(setup)
    assert places <= seen <= places | {"objects", "temporary files"}


def test_only_what_changed_is_entered_and_read(tmp_path):
    path = tmp_path / "deep" / "er" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"the text of it")
    changed = path.stat().st_mtime
    assert {b"deep", b"er", b"file", b"the text of it"} == set(search._files(tmp_path, changed - 1))
    assert {b"deep"} == set(search._files(tmp_path, changed + 1))
    assert list(search._files(tmp_path / "nowhere", 0.0)) == []


def test_halves_that_stand_apart_are_not_it():
    assert not search._holds(b"ab cd abx abcd"[:-4], b"ab", b"cd")
    assert search._holds(b"ab abcd", b"ab", b"cd") and search._holds(b"aaab", b"aa", b"b")


def test_the_program_needs_nothing_of_the_package():
    tree = ast.parse(Path(search.__file__).read_text("utf-8"))
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0
    ]
    assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)
    assert not any(node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
