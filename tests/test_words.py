"""Words and sentences that must not come back: plain English is part of the interface."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import turngym

ROOT = Path(turngym.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = [ROOT / "__main__.py"]
CODE += [path for room in ("tools", "envs", "agents", "training") for path in sorted((ROOT / room).rglob("*.py"))]

WORDS = (  # regular expressions; they match whole words, whatever their case
    "obituar(y|ies)",
    "steward(s|ed)?",
    "furnish(es|ed|ing)?",
    "bur(y|ies|ied|ying)",
    "autops(y|ies)",
    "way_on",
    "turn about",
    "(laid|lies?|lay) end to end",
    "by what it (sees|is shown)",
    "(go|goes|gone|went) astray",
    "no longer",
)
SENTENCES = (
    "a token on paths of both weighs in each the share of its paths",
    "so both add up to all",
    "What has no term in the loss is not computed",
    "it has no ratio and is not held by a clip",
    "The missing mass lies on a number of tokens between the fewest that can hold it and all that were not shown",
    "and they would be their plain form",
    "each from its own thread, are as alone",
    "Runs a method, with the seed of",
    "are what they were",
)
NAMES = {  # of modules, classes, functions, fields and parameters; ordinary words in a sentence
    *("laid", "lay", "stage", "standing", "course", "given", "dice", "heat", "told", "said"),
    *("obituary", "steward", "furnish", "bury", "autopsy"),
}
FUNCTIONS = {"found", "whole"}  # no names of functions


def found(text: str) -> list[str]:
    """The words and sentences of the lists in a text, wherever its lines break."""
    flat = re.sub(r"\s+(#\s)?", " ", text)
    words = [match[0] for word in WORDS for match in re.finditer(rf"\b{word}\b", flat, re.I)]
    return words + [sentence for sentence in SENTENCES if sentence.lower() in flat.lower()]


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """What a module defines: names of classes, functions, fields and parameters, and whether it is a function's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, True
            yield from ((arg.arg, False) for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        elif isinstance(node, ast.ClassDef):
            yield node.name, False
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            yield from ((field.id, False) for field in fields if isinstance(field, ast.Name))


def misnamed(module: str, text: str) -> list[str]:
    """The names of the lists that a module has or defines."""
    names = [(module, False), *defined(ast.parse(text))]
    plain = [(name, name.strip("_").lower(), function) for name, function in names]
    return [name for name, bare, function in plain if bare in NAMES or (function and bare in FUNCTIONS)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_has_them(path):
    assert found(path.read_text("utf-8")) == []


def test_no_module_has_them():
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in CODE}
    assert {name: words for name, text in texts.items() if (words := found(text))} == {}
    assert {name: words for name, text in texts.items() if (words := misnamed(Path(name).stem, text))} == {}


def test_words_are_found_across_lines_and_in_any_case():
    assert found("Environments are stepped turn\n    about; it is buried.") == ["buried", "turn about"]
    assert found("64 episodes of a file are\n# what they were") == ["are what they were"]
    assert found("Environments are stepped in turn, about 64 of them.") == []


def test_names_are_found_where_they_are_defined():
    assert misnamed("steward", "def _told(stage, found): ...\nclass Laid:\n    heat: float = found()") == [
        *("steward", "_told", "stage", "Laid", "heat"),
    ]
    assert misnamed("whole", "def found(whole): ...") == ["found"]
