"""What `benchmarks/reading.py` draws, hides, scores and counts."""

import json
import random
import subprocess
import zipfile

import pytest

from turngym.benchmarks import reading, reading_sources
from turngym.benchmarks.reading import choose, main, read_ratings, score
from turngym.benchmarks.reading_counts import Counts, is_participle, table
from turngym.benchmarks.reading_sources import SourceFile, functions_of, room_of, without_projects

LONG = "\n".join(f"    x = {number}" for number in range(30))
SHORT = "\n".join(f"    x = {number}" for number in range(6))
FILES = [
    SourceFile(
        "turngym",
        "tools",
        f"tools/f{number}.py",
        f"def short():\n{SHORT}\n\ndef long():\n{LONG}\n\ndef tiny():\n    pass\n",
    )
    for number in range(20)
]
RATING = "- clarity: 4\n- naming: 5\n- compression: 3\n- clear: yes\n- tripped:\n"


def drawn(count=8, shown_before=(), seed="a"):
    return choose({"tools": FILES}, count, set(shown_before), random.Random(seed))


def test_functions_are_of_different_files_and_a_quarter_is_long() -> None:
    functions = drawn()
    assert len({function.file.path for function in functions}) == 8
    assert sum(function.name == "long" for function in functions[:2]) == 2
    assert all(function.statements >= 6 for function in functions)


def test_the_same_hash_draws_the_same_functions_and_another_hash_others() -> None:
    assert [one.identity for one in drawn()] == [one.identity for one in drawn()]
    assert [one.identity for one in drawn()] != [one.identity for one in drawn(seed="b")]


def test_no_function_is_drawn_twice() -> None:
    first = {one.identity for one in drawn(20)}
    assert not first & {one.identity for one in drawn(16, first)}


def test_a_room_with_too_few_functions_is_an_error() -> None:
    with pytest.raises(ValueError, match="tools has 20 functions that can be drawn, of 30"):
        drawn(30)


def test_methods_are_functions_with_their_decorators_and_inner_functions_are_not() -> None:
    body = "    @cached\n    def f(self):\n        '''Say.'''\n        def g():\n            return 1\n        return g\n"
    text = f"class A:\n{body}"
    (function,) = functions_of(SourceFile("turngym", "tools", "a.py", text))
    assert (function.name, function.statements) == ("A.f", 3)
    assert function.text.startswith("@cached\ndef f(self):\n    '''Say.'''")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import httpx; TinkerClient(TRL)", "import project; ProjectClient(PROJECT)"),
        ("ctrl = encode(control)", "ctrl = encode(control)"),
        ("tinker_cookbook.rl", "project.rl"),
        ("'Turngym'", "'Project'"),
    ],
)
def test_names_of_projects_are_taken_out(text, shown) -> None:
    assert without_projects(text) == shown


def test_a_file_is_in_the_innermost_folder_that_is_named() -> None:
    assert (
        room_of("training/methods/base_algorithms/grpo.py", ["training", "training/methods"])
        == "training/methods"
    )
    assert room_of("training_data.py", ["training"]) is None


def test_a_sheet_says_nothing_of_origins_and_the_key_all(tmp_path, monkeypatch, capsys) -> None:
    repository = tmp_path / "repository"
    (repository / "tools").mkdir(parents=True)
    for file in FILES:
        (repository / file.path).write_text(file.text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Files"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    wheel = tmp_path / "httpx-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number in range(4):
            archive.writestr(f"httpx/g{number}.py", f"def ask_httpx():\n{SHORT}\n")
        archive.writestr("httpx/tests/test_g.py", f"def test():\n{SHORT}\n")
    monkeypatch.setattr(reading_sources, "ROOT", repository)
    monkeypatch.setattr(reading, "fetch_wheels", lambda folder: {"httpx": wheel})
    out = tmp_path / "out"
    assert main(["draw", "--rooms", "tools", "--count", "4", "--out", str(out)]) == 0
    sheet, key = (out / "sheet.md").read_text(), json.loads((out / "key.json").read_text())
    assert sheet.count("~~~python") == 8 and "ask_project" in sheet
    assert "httpx" not in sheet and "tools/" not in sheet
    assert sorted(row["origin"] for row in key["functions"]) == ["httpx"] * 4 + ["turngym"] * 4
    assert (
        main(
            [
                "draw",
                "--rooms",
                "tools",
                "--count",
                "4",
                "--out",
                str(out),
                "--exclude",
                str(out / "key.json"),
            ]
        )
        == 1
    )
    assert "httpx has 0 functions that can be drawn, of 4" in capsys.readouterr().err


def test_ratings_are_scored_by_origin_and_room(tmp_path) -> None:
    rows = [("turngym", "tools", "a.py", "f"), ("httpx", "httpx", "b.py", "g")]
    names = ("number", "origin", "room", "path", "name")
    key = {
        "functions": [
            dict(zip(names, (number, *row), strict=True)) for number, row in enumerate(rows, 1)
        ]
    }
    low = (
        RATING.replace("clarity: 4", "clarity: 2")
        .replace("clear: yes", "clear: no")
        .replace("tripped:", "tripped: x, y")
    )
    file = tmp_path / "ratings.md"
    file.write_text(f"## 1\n\n~~~python\n## 9\nx = 1\n~~~\n\n{low}\n## 2\n\n{RATING}")
    lines = score(key, [read_ratings(file)] * 2).splitlines()
    assert "| turngym | 2 | 2.00 | 5.00 | 3.00 | 0 of 2 |" in lines
    assert "| turngym tools | 2 | 2.00 | 5.00 | 3.00 | 0 of 2 |" in lines
    assert "| others | 2 | 4.00 | 5.00 | 3.00 | 2 of 2 |" in lines
    assert lines[-1] == "- 1: a.py f: x, y; x, y"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("clarity: 4", "clarity:"), "function 1: clarity is ''; write a number from 1 to 5"),
        (("clear: yes", "clear: maybe"), "function 1: clear is 'maybe'; write yes or no"),
    ],
)
def test_a_rating_that_is_not_complete_is_an_error(tmp_path, change, message) -> None:
    file = tmp_path / "ratings.md"
    file.write_text(f"## 1\n\n{RATING.replace(*change)}")
    with pytest.raises(ValueError, match=message):
        read_ratings(file)


def test_counts_see_the_habits() -> None:
    text = '''"""A module."""

def held(own):
    """Say."""
    a, b = own, 2
    if (found := a) > b:
        raise ValueError(f"{found}; {fix}")
    return [[x for x in y] for y in own if y] if a else None

def read_file(path):
    return path
'''
    counts = Counts.of([SourceFile("turngym", "tools", "a.py", text)])
    habits = counts.habits
    assert {name: habits[name] for name in ("walruses", "tuple assignments", "glued messages")} == {
        "walruses": 1,
        "tuple assignments": 1,
        "glued messages": 1,
    }
    assert (
        habits["comprehensions"],
        habits["nested comprehensions"],
        habits["conditional expressions"],
    ) == (2, 1, 1)
    assert (habits["participles"], habits["one-word functions"], counts.functions) == (1, 1, 2)
    assert (habits["vague names"], counts.bindings) == (2, 7)
    assert table([("tools", counts)]).splitlines()[-1] == "| non-blank lines | 9 |"


@pytest.mark.parametrize(
    ("name", "is_one"), [("paid", True), ("adjusted", True), ("seed", False), ("is_paid", False)]
)
def test_participles_are_words_that_end_so(name, is_one) -> None:
    assert is_participle(name) is is_one
