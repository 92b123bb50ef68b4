"""README and the pages of docs: their blocks of code, tables and commands."""

import ast
import importlib
import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import turngym

ROOT = Path(turngym.__file__).parent
FILES = (
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
PAGES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in FILES}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
_COMMAND = re.compile(r"^(?:\w+=\S+ )*(?:torchrun .*-m |\S*/)?turngym ([a-z][a-z-]*(?: .*)?)$")


def names_of(module: str) -> set[str]:
    """Return a module's names: from its source, where another project that it is a bridge to is not installed."""
    try:
        return set(dir(importlib.import_module(module)))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "openenv":
            raise
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    body = ast.parse(Path(found.origin).read_text("utf-8")).body
    return {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@dataclass(frozen=True)
class Block:
    """A fenced block of code; `number` counts those of its page from 0."""

    page: str
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.page}-{self.number}"


def blocks(language: str = "") -> list[Block]:
    """Return the blocks of all pages, or those of one language."""
    every = [
        Block(page, number, *found)
        for page, text in PAGES.items()
        for number, found in enumerate(_BLOCK.findall(text))
    ]
    return [block for block in every if not language or block.language == language]


def commands(block: Block) -> list[list[str]]:
    """Return the commands of turngym in a block of shell, as words from the name of the command on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found = [_COMMAND.match(" ".join(shlex.split(line, comments=True))) for line in lines]
    return [match[1].split() for match in found if match]


def named_commands(page: str) -> list[list[str]]:
    """Return the commands that a page names within its sentences."""
    prose = _BLOCK.sub("", PAGES[page])
    spans = [code.replace("\n", " ") for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
    found = [_COMMAND.match(code) for code in spans]
    return [match[1].split() for match in found if match]


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the tables of a page, headers left out, by the heading and the header's first cell: `eval.json: key`."""
    found: dict[str, list[list[str]]] = {}
    heading = title = ""
    for line in PAGES[page].splitlines():
        if line.startswith("#"):
            heading = line.strip("# `")
        if not line.startswith("|"):
            title = ""
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not title:
            title = f"{heading}: {cells[0]}"
            while title in found:
                title += "'"
            found[title] = []
        elif not re.fullmatch(r"[-| :]+", line):
            found[title].append(cells)
    return found


def names(rows: list[list[str]]) -> list[str]:
    """Return what the first cells of a table name in code."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
